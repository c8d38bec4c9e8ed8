"""IoU: how much two boxes share."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, one_of, paired_loss
from iou_losses.elementary import area

LOG_FLOOR = 1e-6  # the logarithm of an IoU below this would be as good as infinite


def iou_and_union(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return I / U, and U."""
    # U >= I holds in floating point too: each rounding is monotone and both areas are >= I.
    intersection = area(pair.overlap)
    union = area(pair.size1) + area(pair.size2) - intersection
    return pair.ratio(intersection, union, undefined=pair.same), union


def iou(pair: Pair) -> Tensor:
    """Return the IoU; 0/0 is 1 where the coordinates are equal and 0 elsewhere."""
    return iou_and_union(pair)[0]


def steep_iou(pair: Pair) -> Tensor:
    """Return the IoU for what multiplies its slope by a large one.

    Backwards that comes first. Beside 1 / U of two thin boxes it would leave the numbers of the
    dtype, before a thin side brings the slope back; relative to each axis neither is far from 1.
    """
    return iou(pair.by_axis)


def iou_cost(pair: Pair) -> Tensor:
    """Return 1 - IoU."""
    return 1 - iou(pair)


def log_iou_cost(pair: Pair) -> Tensor:
    """Return -ln(max(IoU, floor))."""
    return -torch.log(steep_iou(pair).clamp(min=LOG_FLOOR))


def square_iou_cost(pair: Pair) -> Tensor:
    """Return 1 - IoU^2."""
    return 1 - iou(pair).square()


MODES = {"linear": iou_cost, "log": log_iou_cost, "square": square_iou_cost}


def iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    mode: str = "linear",
) -> Tensor:
    r"""One minus the intersection over union of each box with its target.

    .. math:: L = 1 - I / U

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape. Both are computed in float64 if either is float64 or
            integer, else in float32.
        reduction: `"none"` gives one loss per box, `"mean"` and `"sum"` one number. Without boxes
            these are 0.
        eps: added to every denominator. The default 0 biases nothing; `1e-7` gives torchvision's values.
        weight: multiplies the losses before they are reduced: one per box (...), or one per
            coordinate (..., 4), which is averaged.
        avg_factor: number or 0-d tensor that `"mean"` divides by in place of the number of boxes;
            0 gives 0. Not allowed with `"sum"`, without effect with `"none"`.
        fmt: `"xyxy"`, `"xywh"`, `"cxcywh"`, `"ltrb"` (distances from one shared point) or
            `"xyxy_inclusive"` (the last pixel belongs to the box). A
            `torchvision.tv_tensors.BoundingBoxes` brings its own.
        mode: `"linear"` is 1 - IoU, `"log"` is -ln(max(IoU, 1e-6)), `"square"` is 1 - IoU^2.

    Returns:
        The loss in [0, 1], for `"log"` in [0, 13.82]; float32 or float64, of shape (...) for
        `"none"`, else of shape ().

    Raises:
        TypeError: for what is no tensor, and for bool and complex boxes.
        ValueError: for shapes that differ or do not end in 4, devices that differ, an unknown
            `reduction`, `fmt` or `mode`, a negative `eps`, a `weight` of another shape, `avg_factor`
            with `"sum"`.

    Properties:
        Symmetric, scale free. A disjoint pair costs 1 with a gradient of exactly 0, however far
        apart the boxes are.

    Reference:
        Linear: Zhou et al., "IoU Loss for 2D/3D Object Detection", 3DV 2019, arXiv:1908.03851. Log:
        Yu et al., "UnitBox", ACM MM 2016, arXiv:1608.01471. Square has no paper of its own: it is
        `alpha_iou_loss` with alpha = 2 (arXiv:2110.13675).

    Deviations:
        Two equal boxes without area cost 0. The log mode has the floor, where UnitBox is infinite. In
        the other modes an area below the dtype's smallest number, in units of the hull's longer side
        squared, loses its digits and counts as 0.

    Example:
        >>> import torch
        >>> from iou_losses import iou_loss
        >>> pred = torch.tensor([[1.0, 1, 5, 5], [9, 9, 10, 10]])
        >>> target = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 4]])
        >>> iou_loss(pred, target)  # 1 - 9/23, and a miss
        tensor([0.6087, 1.0000])
    """
    formula = one_of("mode", mode, MODES)
    return paired_loss(formula, pred, target, reduction, eps, weight, avg_factor, fmt)


class IoULoss(BoxLoss):
    """`iou_loss` as a module.

    Args:
        reduction, eps, fmt, mode: as in `iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import IoULoss
        >>> IoULoss()(torch.tensor([[1.0, 1, 5, 5]]), torch.tensor([[0.0, 0, 4, 4]]))
        tensor(0.6087)
    """

    function = staticmethod(iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        mode: str = "linear",
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, mode=mode)
