"""SCA: side overlaps and corner distances."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import root, squared_length, unit_scale


def length(vector: Tensor) -> Tensor:
    """Return sqrt(x^2 + y^2), with slope 0 at 0; no square can underflow beside a large hull."""
    scale = unit_scale(vector.detach().abs().amax(-1, keepdim=True))
    return root(squared_length(vector * scale)) / scale[..., 0]


def sca_cost(pair: Pair, distance_weight: float) -> Tensor:
    """Return 2 - (i_w / c_w + i_h / c_h), with signed overlaps, + (d1 + d2) / c."""
    # A hull of no width holds four equal numbers: the sides overlap wholly.
    overlaps = pair.ratio(pair.signed_overlap, pair.hull, units=1, undefined=1).sum(-1)
    low, high = pair.corner_offsets
    distances = length(low) + length(high)
    return 2 - overlaps + distance_weight * pair.ratio(distances, length(pair.hull), units=1)


def sca_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    distance_weight: float = 1.0,
) -> Tensor:
    r"""Side and corner aligned loss: overlaps of the sides, signed, and distances of the corners.

    .. math::
        L = 2 - \left(\frac{i_w}{c_w} + \frac{i_h}{c_h}\right) + \lambda \frac{d_1 + d_2}{c}

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        distance_weight: lambda, 0 or more.

    Returns:
        The loss in [0, 4 + 2 lambda), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a negative `distance_weight`.

    Properties:
        Symmetric, scale free. A disjoint pair has negative overlaps and a gradient that closes the
        gap. Not invariant under a mirror, since only two of the four corners are compared.

    Reference:
        Zheng et al., "SCALoss: Side and Corner Aligned Loss for Bounding Box Regression", AAAI
        2022, arXiv:2104.00462.

    Deviations:
        None.

    Example:
        >>> import torch
        >>> from iou_losses import sca_loss
        >>> sca_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([1.0013])
    """
    check_range("distance_weight", distance_weight, 0)
    return paired_loss(sca_cost, pred, target, reduction, eps, weight, avg_factor, fmt, distance_weight=distance_weight)


class SCALoss(BoxLoss):
    """`sca_loss` as a module.

    Args:
        reduction, eps, fmt, distance_weight: as in `sca_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import SCALoss
        >>> SCALoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(1.0013)
    """

    function = staticmethod(sca_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        distance_weight: float = 1.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, distance_weight=distance_weight)
