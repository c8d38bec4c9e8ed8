"""CIoU: DIoU and the difference of the aspect ratios."""

from __future__ import annotations

import math

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import turn
from iou_losses.losses.diou import centre_distance
from iou_losses.losses.iou import iou


def aspect_term(pair: Pair, overlap: Tensor, iou_threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return alpha, which is a constant of the gradient, and v."""
    v = (4 / math.pi**2) * turn(pair.size1, pair.size2).square()
    v_, overlap = v.detach(), overlap.detach()
    alpha = pair.ratio(v_, (1 - overlap) + v_, units=0)
    if iou_threshold > 0:  # strictly below: at the default 0 a disjoint pair keeps alpha
        alpha = alpha.masked_fill(overlap < iou_threshold, 0)
    return alpha, v


def ciou(pair: Pair, iou_threshold: float = 0.0) -> Tensor:
    """Return IoU - rho^2 / c^2 - alpha v."""
    overlap = iou(pair)
    alpha, v = aspect_term(pair, overlap, iou_threshold)
    return overlap - centre_distance(pair) - alpha * v


def ciou_cost(pair: Pair, iou_threshold: float = 0.0) -> Tensor:
    """Return 1 - CIoU."""
    return 1 - ciou(pair, iou_threshold)


def ciou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    iou_threshold: float = 0.0,
) -> Tensor:
    r"""One minus the complete IoU: overlap, distance of the centres and difference of the aspect ratios.

    .. math::
        L = 1 - IoU + \rho^2 / c^2 + \alpha v, \quad
        v = \frac{4}{\pi^2} \left(\arctan\frac{w_g}{h_g} - \arctan\frac{w}{h}\right)^2, \quad
        \alpha = \frac{v}{(1 - IoU) + v}

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        iou_threshold: below this IoU alpha is 0. 0.0 is the conference paper, 0.5 the journal
            version (arXiv:2005.03572).

    Returns:
        The loss in [0, 3), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for an `iou_threshold` outside [0, 1].

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient that brings the centres together;
        it may shrink the box for the sake of its shape. alpha is a constant of the gradient.

    Reference:
        Zheng et al., "Distance-IoU Loss", AAAI 2020, arXiv:1911.08287.

    Deviations:
        The gradient of v is the true one. The authors' code drops its factor 1 / (w^2 + h^2), as
        the paper suggests for boxes in [0, 1]. A line has the angle of its side, a point that of
        a square. The authors' code for the journal version and mmdetection keep alpha for
        `IoU > 0.5`, the paper for `IoU >= 0.5`.

    Example:
        >>> import torch
        >>> from iou_losses import ciou_loss
        >>> ciou_loss(torch.tensor([[2.0, 3, 9, 8]]), torch.tensor([[4.0, 1, 12, 7]]))
        tensor([0.7396])
    """
    check_range("iou_threshold", iou_threshold, 0, 1)
    return paired_loss(ciou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, iou_threshold=iou_threshold)


class CIoULoss(BoxLoss):
    """`ciou_loss` as a module.

    Args:
        reduction, eps, fmt, iou_threshold: as in `ciou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import CIoULoss
        >>> CIoULoss()(torch.tensor([[2.0, 3, 9, 8]]), torch.tensor([[4.0, 1, 12, 7]]))
        tensor(0.7396)
    """

    function = staticmethod(ciou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        iou_threshold: float = 0.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, iou_threshold=iou_threshold)
