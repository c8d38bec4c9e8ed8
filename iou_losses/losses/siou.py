"""SIoU: overlap, distance weighted by the angle of the centres, and shape."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import quotient, saturation
from iou_losses.losses.iou import iou


def sine_of_double_angle(offset: Tensor) -> Tensor:
    """Return sin(2a) of the line between the centres, 0 where they coincide; needs neither asin nor sqrt."""
    offset = offset.abs()
    total = offset[..., 0] + offset[..., 1]
    x, y = quotient(offset[..., 0], total), quotient(offset[..., 1], total)
    return quotient(2 * x * y, x * x + y * y)


def shape_term(pair: Pair, theta: float, factor: Tensor | float = 1.0) -> Tensor:
    """Return the sum over width and height of (1 - exp(-|w - w_g| / max(w, w_g)))^theta."""
    change = pair.ratio(pair.change.abs(), torch.maximum(pair.size1, pair.size2), units=1)
    return saturation(factor * change).pow(theta).sum(-1)


def siou_cost(pair: Pair, theta: float) -> Tensor:
    """Return 1 - IoU + (distance + shape) / 2."""
    offset = pair.offset
    sharpness = 2 - sine_of_double_angle(offset)
    shares = pair.ratio(offset, pair.hull, units=1).square()
    distance = saturation(sharpness.unsqueeze(-1) * shares).sum(-1)
    return 1 - iou(pair) + (distance + shape_term(pair, theta)) / 2


def siou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    theta: float = 4.0,
) -> Tensor:
    r"""SIoU: overlap, shape, and the distance of the centres weighted by the direction between them.

    .. math::
        L = 1 - IoU + \frac{\Delta + \Omega}{2}, \quad
        \Delta = \sum_{t \in x, y} 1 - e^{-(2 - \sin 2 a) (d_t / c_t)^2}, \quad
        \Omega = \sum_{t \in w, h} \left(1 - e^{-|t - t_g| / \max(t, t_g)}\right)^\theta

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        theta: how much the shape matters, 1 or more; the paper uses 2 to 6.

    Returns:
        The loss in [0, 2.5), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a `theta` below 1.

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient that brings the centres together,
        along the nearer axis first.

    Reference:
        Gevorgyan, "SIoU Loss: More Powerful Learning for Bounding Box Regression", 2022,
        arXiv:2205.12740.

    Deviations:
        None in value. sin(2a) is written as 2 |dx dy| / (dx^2 + dy^2), which is the same number
        without the infinite slopes of asin and sqrt, and is 0 for concentric boxes.

    Example:
        >>> import torch
        >>> from iou_losses import siou_loss
        >>> siou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.5714])
    """
    check_range("theta", theta, 1)
    return paired_loss(siou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, theta=theta)


class SIoULoss(BoxLoss):
    """`siou_loss` as a module.

    Args:
        reduction, eps, fmt, theta: as in `siou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import SIoULoss
        >>> SIoULoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.5714)
    """

    function = staticmethod(siou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        theta: float = 4.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, theta=theta)
