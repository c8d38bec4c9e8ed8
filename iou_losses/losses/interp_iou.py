"""InterpIoU: a second IoU, of a box part of the way to the target."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import area, extent
from iou_losses.losses.iou import iou


def interpolated_iou(pair: Pair, coefficient: Tensor | float) -> Tensor:
    """Return the IoU of the second box and the first that went this share of its way to the second."""
    low, high = pair.corner_offsets
    low, high = (1 - coefficient) * low, (1 - coefficient) * high
    (start, end), zero = pair.box2, low.new_zeros(())
    size2 = (end - start) * pair.scale
    # By offsets, not by corners: a corner that is nearly the target's would be rounded to it.
    intersection = area(extent(size2 + torch.minimum(high, zero) - torch.maximum(low, zero)))
    union = area(extent(size2 + high - low)) + area(pair.size2) - intersection
    return pair.ratio(intersection, union, undefined=pair.same)


def interp_iou_cost(pair: Pair, coefficient: float) -> Tensor:
    """Return 1 - IoU + 1 - IoU of the interpolated box."""
    return 2 - iou(pair) - interpolated_iou(pair, coefficient)


def dynamic_interp_iou_cost(pair: Pair) -> Tensor:
    """Return the same with the coefficient 1 - IoU, kept in [0.6, 0.99], a constant of the gradient."""
    overlap = iou(pair)
    coefficient = (1 - overlap.detach()).clamp(0.6, 0.99).unsqueeze(-1)
    return 2 - overlap - interpolated_iou(pair, coefficient)


def interp_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    coefficient: float | str = 0.98,
) -> Tensor:
    r"""InterpIoU: the IoU of the box, and that of a box part of the way to the target, which still overlaps.

    .. math::
        L = 1 - IoU(B, B_g) + 1 - IoU((1 - a) B + a B_g, B_g)

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        coefficient: a in [0, 1], or `"dynamic"`: 1 - IoU kept in [0.6, 0.99].

    Returns:
        The loss in [0, 2], float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`;
            ValueError for a `coefficient` outside [0, 1] and another word than "dynamic".

    Properties:
        Scale free, not symmetric: the interpolated box lies near the target. A disjoint pair has a
        gradient once the interpolated box overlaps; a pair too far apart for that has none.

    Reference:
        Liu and Watanabe, "InterpIoU: Rethinking Bounding Box Regression with Interpolation-Based
        IoU Optimization", 2025, arXiv:2507.12420.

    Deviations:
        None. The dynamic coefficient is a constant of the gradient.

    Example:
        >>> import torch
        >>> from iou_losses import interp_iou_loss
        >>> interp_iou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.5604])
    """
    if coefficient == "dynamic":
        return paired_loss(dynamic_interp_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt)
    if isinstance(coefficient, str):
        raise ValueError(f"coefficient must be a number in [0, 1] or 'dynamic', got {coefficient!r}")
    check_range("coefficient", coefficient, 0, 1)
    return paired_loss(interp_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, coefficient=coefficient)


class InterpIoULoss(BoxLoss):
    """`interp_iou_loss` as a module.

    Args:
        reduction, eps, fmt, coefficient: as in `interp_iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import InterpIoULoss
        >>> InterpIoULoss(coefficient="dynamic")(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.8323)
    """

    function = staticmethod(interp_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        coefficient: float | str = 0.98,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, coefficient=coefficient)
