"""Shape-IoU: distance and shape weighted by the target's own shape."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import power, quotient
from iou_losses.losses.iou import iou
from iou_losses.losses.siou import shape_term


def shape_weights(size: Tensor, scale: float) -> Tensor:
    """Return (hh, ww): for x the share of the target's height, for y that of its width, crossed on purpose."""
    # By the larger side, so that no power underflows; a point weighs both axes alike.
    powers = power(quotient(size, size.amax(-1, keepdim=True), undefined=1), scale)
    return 2 * powers.flip(-1) / powers.sum(-1, keepdim=True)


def shape_iou_cost(pair: Pair, scale: float) -> Tensor:
    """Return 1 - IoU + (hh dx^2 + ww dy^2) / c^2 + shape / 2."""
    weights = shape_weights(pair.size2, scale)
    distance = pair.ratio((weights * pair.offset.square()).sum(-1), pair.hull.square().sum(-1))
    return 1 - iou(pair) + distance + shape_term(pair, 4, weights) / 2


def shape_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    scale: float = 0.0,
) -> Tensor:
    r"""Shape-IoU: distance and shape, weighted by the target's own shape.

    .. math::
        L = 1 - IoU + \frac{hh\,dx^2 + ww\,dy^2}{c^2} + \frac12 \left[
            (1 - e^{-hh |w - w_g| / \max(w, w_g)})^4 + (1 - e^{-ww |h - h_g| / \max(h, h_g)})^4\right]

        ww = 2 w_g^s / (w_g^s + h_g^s), \quad hh = 2 h_g^s / (w_g^s + h_g^s)

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        scale: the power s, 0 or more, for the size of the objects in the data set; 0 weighs
            both axes alike.

    Returns:
        The loss in [0, 4), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a negative `scale`.

    Properties:
        Scale free; symmetric only with scale 0. A disjoint pair has a gradient that brings the
        centres together, along the shorter side of the target first.

    Reference:
        Zhang and Zhang, "Shape-IoU: More Accurate Metric considering Bounding Box Shape and Scale",
        2023, arXiv:2312.17663.

    Deviations:
        None. A target that is a point weighs both axes alike.

    Example:
        >>> import torch
        >>> from iou_losses import shape_iou_loss
        >>> shape_iou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]), scale=1.0)
        tensor([0.5634])
    """
    check_range("scale", scale, 0)
    return paired_loss(shape_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, scale=scale)


class ShapeIoULoss(BoxLoss):
    """`shape_iou_loss` as a module.

    Args:
        reduction, eps, fmt, scale: as in `shape_iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import ShapeIoULoss
        >>> ShapeIoULoss(scale=1.0)(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.5634)
    """

    function = staticmethod(shape_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        scale: float = 0.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, scale=scale)
