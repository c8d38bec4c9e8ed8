"""GIoU: the hull pulls disjoint boxes together."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, paired_loss
from iou_losses.elementary import area, quotient
from iou_losses.losses.iou import iou_and_union


def empty_share(pair: Pair, union: Tensor) -> Tensor:
    """Return (C - U) / C with C the area of the hull."""
    # Not (C - U) / C, whose slope cancels to noise where the boxes are small in their hull.
    covered = quotient(pair.padded(union), pair.padded(area(pair.hull)), 1, balanced=union.requires_grad)
    empty = 1 - covered
    # With shared edges this is 0 plus noise of either sign. Only the value is clamped: a clamped
    # slope would let the noise choose it.
    return empty - empty.detach().clamp(max=0)


def giou(pair: Pair) -> Tensor:
    """Return IoU - (C - U) / C."""
    iou, union = iou_and_union(pair)
    return iou - empty_share(pair, union)


def giou_cost(pair: Pair) -> Tensor:
    """Return 1 - GIoU."""
    return 1 - giou(pair)


def giou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
) -> Tensor:
    r"""One minus the generalised IoU: the empty share of the smallest enclosing box (hull) counts too.

    .. math:: L = 1 - IoU + (C - U) / C

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.

    Returns:
        The loss in [0, 2], float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`.

    Properties:
        Symmetric, scale free, unchanged by a separate stretch of x and y. A disjoint pair costs
        more than 1 and has a gradient that closes the gap.

    Reference:
        Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019, arXiv:1902.09630.

    Deviations:
        None. Where the hull has no area, the second term is 0.

    Example:
        >>> import torch
        >>> from iou_losses import giou_loss
        >>> pred = torch.tensor([[58.0, 58, 158, 158], [3, 0, 4, 1]])
        >>> target = torch.tensor([[50.0, 50, 150, 150], [0, 0, 1, 1]])
        >>> giou_loss(pred, target)  # 1 - 0.7227, and a gap as wide as both boxes together
        tensor([0.2773, 1.5000])
    """
    return paired_loss(giou_cost, pred, target, reduction, eps, weight, avg_factor, fmt)


class GIoULoss(BoxLoss):
    """`giou_loss` as a module.

    Args:
        reduction, eps, fmt: as in `iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import GIoULoss
        >>> GIoULoss()(torch.tensor([[3.0, 0, 4, 1]]), torch.tensor([[0.0, 0, 1, 1]]))
        tensor(1.5000)
    """

    function = staticmethod(giou_loss)
