"""PIoU: the distances of the edges, in sizes of the target."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import saturation
from iou_losses.losses.iou import iou


def edge_distance(pair: Pair) -> Tensor:
    """Return P, the mean distance of the four edges in widths and heights of the target."""
    low, high = pair.corner_offsets
    return pair.ratio((low.abs() + high.abs()) / 4, pair.size2, units=1).sum(-1)


def piou_cost(pair: Pair) -> Tensor:
    """Return 1 - IoU + 1 - exp(-P^2)."""
    return 1 - iou(pair) + saturation(edge_distance(pair).square())


def piou2_cost(pair: Pair, lambda_: float) -> Tensor:
    """Return 3 x exp(-x^2) with x = lambda exp(-P), times version 1: boxes of medium quality count most."""
    distance = edge_distance(pair)
    x = lambda_ * torch.exp(-distance)
    return 3 * x * torch.exp(-x * x) * (1 - iou(pair) + saturation(distance.square()))


def piou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    version: int = 1,
    lambda_: float = 1.3,
) -> Tensor:
    r"""Powerful IoU: the distances of the edges count, in sizes of the target.

    .. math::
        L_1 = 1 - IoU + 1 - e^{-P^2}, \quad
        P = \frac14 \left(\frac{|x_1 - a_1| + |x_2 - a_2|}{w_g} + \frac{|y_1 - b_1| + |y_2 - b_2|}{h_g}\right)

        L_2 = 3 x e^{-x^2} L_1, \quad x = \lambda e^{-P}

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        version: 2 weighs the loss so that boxes of medium quality count most.
        lambda_: for version 2, above 0.

    Returns:
        The loss in [0, 2], version 2 in [0, 2.6), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`;
            ValueError for an unknown `version` and a `lambda_` that is not above 0.

    Properties:
        Scale free, not symmetric: the target is the ruler, so no larger box can be cheaper. A
        disjoint pair has a gradient that moves each edge to its own, which fades where P is large.
        That of version 2 may point away from there on: its focus makes a box cheaper that is far off.
        No factor is a constant of the gradient, as in the authors' code.

    Reference:
        Liu et al., "Powerful-IoU: More straightforward and faster bounding box regression loss with
        a nonmonotonic focusing mechanism", Neural Networks 170, 2024, 276-284.

    Deviations:
        None. A target without width or height leaves its term of P out. This is neither the Pixels
        IoU (arXiv:2007.09584) nor the Prob IoU (arXiv:2106.06072).

    Example:
        >>> import torch
        >>> from iou_losses import piou_loss
        >>> piou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.5945])
    """
    check_range("lambda_", lambda_, 0, above=True)
    if version == 1:
        return paired_loss(piou_cost, pred, target, reduction, eps, weight, avg_factor, fmt)
    if version == 2:
        return paired_loss(piou2_cost, pred, target, reduction, eps, weight, avg_factor, fmt, lambda_=lambda_)
    raise ValueError(f"version must be 1 or 2, got {version!r}")


class PIoULoss(BoxLoss):
    """`piou_loss` as a module.

    Args:
        reduction, eps, fmt, version, lambda_: as in `piou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import PIoULoss
        >>> PIoULoss(version=2)(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.6354)
    """

    function = staticmethod(piou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        version: int = 1,
        lambda_: float = 1.3,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, version=version, lambda_=lambda_)
