"""Inner-IoU: the IoU of boxes scaled about their own centres, in any loss."""

from __future__ import annotations

from torch import Tensor

from iou_losses.core import BoxLoss, CombinedLoss, check_range, resized
from iou_losses.losses.iou import iou_loss


class InnerIoULoss(CombinedLoss):
    """A loss whose IoU is that of both boxes scaled about their own centres.

    L = L_base + IoU - IoU_inner. With a ratio below 1 the gradient of good boxes is larger, with
    one above 1 boxes that do not overlap yet get one.

    Args:
        base: any `BoxLoss`; reduction, eps, fmt and loss_weight are the base's.
        ratio: what the sides are multiplied by, above 0; useful from 0.5 to 1.5.

    Raises:
        TypeError: for a `base` that is no `BoxLoss`.
        ValueError: for a `ratio` that is not above 0.

    Reference:
        Zhang et al., "Inner-IoU: More Effective Intersection over Union Loss with Auxiliary
        Bounding Box", 2023, arXiv:2311.02877.

    Deviations:
        None.

    Example:
        >>> import torch
        >>> from iou_losses import CIoULoss, InnerIoULoss
        >>> criterion = InnerIoULoss(CIoULoss(), ratio=0.7)
        >>> criterion(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.6387)
    """

    def __init__(self, base: BoxLoss, ratio: float) -> None:
        check_range("ratio", ratio, 0, above=True)
        super().__init__(base)
        self.ratio = ratio

    def per_box(self, pred: Tensor, target: Tensor, fmt: str) -> Tensor:
        """Give the loss of each box."""
        loss = self.base.compute(pred, target, "none", None, None, fmt)
        inner = iou_loss(*resized(pred, target, fmt, self.ratio), eps=self.eps, fmt="cxcywh")
        return loss + inner - iou_loss(pred, target, eps=self.eps, fmt=fmt)
