"""Extended IoU: an intersection that turns negative when the boxes part."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import area, smooth_l1


def extended_distance(pair: Pair) -> Tensor:
    """Return 1 - I / U with the signed intersection I in both; 1 - IoU where the boxes overlap."""
    signed = pair.signed_overlap
    gap = signed.masked_fill(signed >= 0, 0)
    inner = pair.inner_edges
    # The paper's four products, sorted by sign, so that none cancels against another.
    intersection = area(pair.overlap) + gap[..., 0] * inner[..., 1] + gap[..., 1] * inner[..., 0]
    areas = area(pair.size1) + area(pair.size2)
    union = areas - intersection
    # Far apart I / U is near -1 and its slopes cancel to noise; those of (I + U) / U, which is one more, do not.
    apart = -2 * intersection > union
    full = pair.ratio(union, union) if pair.eps else 1
    return 1 + apart * full - pair.ratio(torch.where(apart, areas, intersection), union, undefined=pair.same)


def extended_iou_cost(pair: Pair, smooth: float) -> Tensor:
    """Return the smooth L1 norm of 1 - I / U."""
    return smooth_l1(extended_distance(pair), smooth)


def extended_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    smooth: float = 0.1,
) -> Tensor:
    r"""Extended IoU: the intersection is signed, so a gap counts as a negative one.

    .. math::
        L = \begin{cases} d^2 / (2 s) & d < s \\ d - s / 2 & \text{else} \end{cases}, \quad d = 1 - I / U

        I = (x_2 - e_x)(y_2 - e_y) + (x_{min} - e_x)(y_{min} - e_y)
            - (x_1 - e_x)(y_{max} - e_y) - (x_{max} - e_x)(y_1 - e_y)

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        smooth: where the parabola meets the line, above 0.

    Returns:
        The loss in [0, 2), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a `smooth` that is not above 0.

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient that closes the gap; it grows with the
        gap over the area, without a bound. For disjoint boxes the loss is not invariant under a
        mirror, since e is the top-left corner of the hull.

    Reference:
        Peng and Yu, "A Systematic IoU-Related Method: Beyond Simplified Regression for Better
        Localization", IEEE TIP 30, 2021, arXiv:2112.01793.

    Deviations:
        None. x1 = max of the left edges, x2 = min of the right edges, x_min and x_max the smaller
        and larger of the two; y likewise; U is the sum of the areas minus the signed I. mmdetection
        calls this loss EIoULoss.

    Example:
        >>> import torch
        >>> from iou_losses import extended_iou_loss
        >>> extended_iou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.4921])
    """
    check_range("smooth", smooth, 0, above=True)
    return paired_loss(extended_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, smooth=smooth)


class ExtendedIoULoss(BoxLoss):
    """`extended_iou_loss` as a module.

    Args:
        reduction, eps, fmt, smooth: as in `extended_iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import ExtendedIoULoss
        >>> ExtendedIoULoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.4921)
    """

    function = staticmethod(extended_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        smooth: float = 0.1,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, smooth=smooth)
