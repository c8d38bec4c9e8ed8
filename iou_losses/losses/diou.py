"""DIoU: the distance of the centres, as a share of the hull's diagonal."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, paired_loss
from iou_losses.elementary import squared_length
from iou_losses.losses.iou import iou


def centre_distance(pair: Pair) -> Tensor:
    """Return rho^2 / c^2, in [0, 1] also in floating point: the offset never exceeds the hull."""
    return pair.ratio(squared_length(pair.offset), squared_length(pair.hull))


def diou(pair: Pair) -> Tensor:
    """Return IoU - rho^2 / c^2."""
    return iou(pair) - centre_distance(pair)


def diou_cost(pair: Pair) -> Tensor:
    """Return 1 - DIoU."""
    return 1 - diou(pair)


def diou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
) -> Tensor:
    r"""One minus the distance IoU: the squared distance of the centres counts, relative to the hull's diagonal.

    .. math:: L = 1 - IoU + \rho^2 / c^2

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
        Symmetric, scale free. A disjoint pair has a gradient that brings the centres together;
        concentric boxes of different shape cost 1 - IoU alone.

    Reference:
        Zheng et al., "Distance-IoU Loss", AAAI 2020, arXiv:1911.08287.

    Deviations:
        None. For two equal points, the second term is 0.

    Example:
        >>> import torch
        >>> from iou_losses import diou_loss
        >>> diou_loss(torch.tensor([[3.0, 0, 4, 1]]), torch.tensor([[0.0, 0, 1, 1]]))  # 1 + 9/17
        tensor([1.5294])
    """
    return paired_loss(diou_cost, pred, target, reduction, eps, weight, avg_factor, fmt)


class DIoULoss(BoxLoss):
    """`diou_loss` as a module.

    Args:
        reduction, eps, fmt: as in `iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import DIoULoss
        >>> DIoULoss()(torch.tensor([[3.0, 0, 4, 1]]), torch.tensor([[0.0, 0, 1, 1]]))
        tensor(1.5294)
    """

    function = staticmethod(diou_loss)
