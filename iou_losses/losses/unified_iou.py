"""Unified-IoU: any loss on boxes that shrink as training goes on."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from iou_losses.core import BoxLoss, CombinedLoss, check_range, one_of, resized
from iou_losses.losses.iou import iou_loss

# From 2 to 0.5 over training: enlarged boxes judge position first, shrunken ones the details.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda t: 2 - 1.5 * t,
    "cosine": lambda t: 0.75 * math.cos(math.pi * t) + 1.25,
    "fraction": lambda t: 2 / (1 + 3 * t),
}
QUALITY_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda power: torch.ones_like(power),
    "focal": lambda power: 1 - power,
    "focal_inv": lambda power: power,
}


class UnifiedIoULoss(CombinedLoss):
    """A loss on both boxes scaled about their own centres, by a ratio that falls from 2 to 0.5.

    The training loop says how far it is: `criterion.progress = epoch / epochs`. The progress is
    the loop's own state, so it is not in the `state_dict`: set it after resuming, too.

    Args:
        base: any `BoxLoss`; reduction, eps, fmt and loss_weight are the base's.
        schedule: `"linear"` 2 - 1.5 t, `"cosine"` 0.75 cos(pi t) + 1.25, `"fraction"` 2 / (1 + 3 t),
            t the progress in [0, 1].
        quality: weight of each box by the IoU of the scaled boxes, a constant of the gradient:
            `"none"`, `"focal"` 1 - IoU^gamma (poor boxes count), `"focal_inv"` IoU^gamma.
        gamma: the exponent, above 0.

    Raises:
        TypeError: for a `base` that is no `BoxLoss`.
        ValueError: for an unknown `schedule` or `quality`, a `gamma` that is not above 0, a
            `progress` outside [0, 1].

    Reference:
        Luo et al., "Unified-IoU: For High-Quality Object Detection", 2024, arXiv:2408.06636.

    Deviations:
        None.

    Example:
        >>> import torch
        >>> from iou_losses import CIoULoss, UnifiedIoULoss
        >>> criterion = UnifiedIoULoss(CIoULoss())
        >>> criterion(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.4453)
        >>> criterion.progress = 1.0
        >>> criterion(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.7739)
    """

    def __init__(self, base: BoxLoss, schedule: str = "linear", quality: str = "none", gamma: float = 0.5) -> None:
        one_of("schedule", schedule, SCHEDULES)
        one_of("quality", quality, QUALITY_WEIGHTS)
        check_range("gamma", gamma, 0, above=True)
        super().__init__(base)
        self.schedule, self.quality, self.gamma = schedule, quality, gamma
        self._progress = 0.0

    @property
    def progress(self) -> float:
        """The share of training that is done, in [0, 1]."""
        return self._progress

    @progress.setter
    def progress(self, value: float) -> None:
        check_range("progress", value, 0, 1)
        self._progress = value

    @property
    def ratio(self) -> float:
        """What the sides are multiplied by now."""
        return SCHEDULES[self.schedule](self.progress)

    def per_box(self, pred: Tensor, target: Tensor, fmt: str) -> Tensor:
        """Give the loss of each box."""
        pred, target = resized(pred, target, fmt, self.ratio)
        loss = self.base.compute(pred, target, "none", None, None, "cxcywh")
        if self.quality == "none":
            return loss
        # Detached, not under no_grad, which does not stop tangents of the forward mode.
        iou = 1 - iou_loss(pred.detach(), target.detach(), eps=self.eps, fmt="cxcywh")
        return loss * QUALITY_WEIGHTS[self.quality](iou.pow(self.gamma))
