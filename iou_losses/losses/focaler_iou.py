"""Focaler-IoU: an IoU that counts in one interval only, in any loss."""

from __future__ import annotations

from torch import Tensor

from iou_losses.core import BoxLoss, CombinedLoss, check_range
from iou_losses.losses.iou import iou_loss


class FocalerIoULoss(CombinedLoss):
    """A loss whose IoU is mapped linearly from [d, u] to [0, 1] and clamped.

    L = L_base + IoU - clamp((IoU - d) / (u - d), 0, 1). A low interval focuses on poor boxes, a
    high one on good ones; outside of it the IoU itself gives no gradient.

    Args:
        base: any `BoxLoss`; reduction, eps, fmt and loss_weight are the base's.
        d: lower end, at least 0.
        u: upper end, above d and at most 1.

    Raises:
        TypeError: for a `base` that is no `BoxLoss`.
        ValueError: unless 0 <= d < u <= 1.

    Reference:
        Zhang and Zhang, "Focaler-IoU: More Focused Intersection over Union Loss", 2024,
        arXiv:2401.10525.

    Deviations:
        None.

    Example:
        >>> import torch
        >>> from iou_losses import FocalerIoULoss, IoULoss
        >>> criterion = FocalerIoULoss(IoULoss())
        >>> criterion(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.5180)
    """

    def __init__(self, base: BoxLoss, d: float = 0.0, u: float = 0.95) -> None:
        check_range("d", d, 0, 1)
        check_range("u", u, 0, 1)
        if not d < u:
            raise ValueError(f"d must be below u, got d={d!r} and u={u!r}")
        super().__init__(base)
        self.d, self.u = d, u

    def per_box(self, pred: Tensor, target: Tensor, fmt: str) -> Tensor:
        """Give the loss of each box."""
        loss = self.base.compute(pred, target, "none", None, None, fmt)
        iou = 1 - iou_loss(pred, target, eps=self.eps, fmt=fmt)
        return loss + iou - ((iou - self.d) / (self.u - self.d)).clamp(0, 1)
