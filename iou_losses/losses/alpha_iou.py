"""alpha-IoU: the terms of a loss, each raised to a power."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, one_of, paired_loss
from iou_losses.elementary import power
from iou_losses.losses.ciou import aspect_term
from iou_losses.losses.diou import centre_distance
from iou_losses.losses.giou import empty_share
from iou_losses.losses.iou import iou_and_union, steep_iou


def alpha_iou_cost(pair: Pair, alpha: float) -> Tensor:
    """Return 1 - IoU^alpha."""
    return 1 - power(steep_iou(pair), alpha)


def alpha_giou_cost(pair: Pair, alpha: float) -> Tensor:
    """Return 1 - IoU^alpha + ((C - U) / C)^alpha."""
    pair = pair.by_axis
    overlap, union = iou_and_union(pair)
    return 1 - power(overlap, alpha) + power(empty_share(pair, union), alpha)


def alpha_diou_cost(pair: Pair, alpha: float) -> Tensor:
    """Return 1 - IoU^alpha + (rho^2 / c^2)^alpha."""
    return alpha_iou_cost(pair, alpha) + power(centre_distance(pair), alpha)


def alpha_ciou_cost(pair: Pair, alpha: float) -> Tensor:
    """Return 1 - IoU^alpha + (rho^2 / c^2)^alpha + (beta v)^alpha, with CIoU's own alpha as the constant beta."""
    overlap = steep_iou(pair)
    beta, v = aspect_term(pair, overlap)
    return 1 - power(overlap, alpha) + power(centre_distance(pair), alpha) + power(beta * v, alpha)


BASES = {"iou": alpha_iou_cost, "giou": alpha_giou_cost, "diou": alpha_diou_cost, "ciou": alpha_ciou_cost}


def alpha_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    alpha: float = 3.0,
    base: str = "iou",
) -> Tensor:
    r"""alpha-IoU: the IoU and the penalties of a base loss, each raised to the power alpha.

    .. math::
        L = 1 - IoU^\alpha + penalty^\alpha

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        alpha: the power, above 0. Above 1 good boxes get larger gradients than poor ones.
        base: `"iou"` (no penalty), `"giou"`, `"diou"` or `"ciou"`, whose two penalties are
            raised to the power one by one.

    Returns:
        The loss in [0, 1], with penalties in [0, 3), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`;
            ValueError for an `alpha` that is not above 0 and an unknown `base`.

    Properties:
        Symmetric, scale free. A disjoint pair gets what the base gives it; without a penalty no
        gradient. CIoU's own alpha is a constant of the gradient.

    Reference:
        He et al., "alpha-IoU: A Family of Power Intersection over Union Losses for Bounding Box
        Regression", NeurIPS 2021, arXiv:2110.13675.

    Deviations:
        None in value. For alpha < 1 the slope is infinite at IoU = 0 and at a penalty of 0; there
        it is 0 here.

    Example:
        >>> import torch
        >>> from iou_losses import alpha_iou_loss
        >>> alpha_iou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.9040])
    """
    check_range("alpha", alpha, 0, above=True)
    formula = one_of("base", base, BASES)
    return paired_loss(formula, pred, target, reduction, eps, weight, avg_factor, fmt, alpha=alpha)


class AlphaIoULoss(BoxLoss):
    """`alpha_iou_loss` as a module.

    Args:
        reduction, eps, fmt, alpha, base: as in `alpha_iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import AlphaIoULoss
        >>> AlphaIoULoss(base="ciou")(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.9040)
    """

    function = staticmethod(alpha_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        alpha: float = 3.0,
        base: str = "iou",
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, alpha=alpha, base=base)
