"""Bounded IoU: the best IoU that each coordinate alone still allows."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import smooth_l1


def bounded_iou_cost(pair: Pair, beta: float, factor: float) -> Tensor:
    """Return the sum of smooth L1 of 1 - B over x, y, w, h."""
    size2 = pair.size2
    reach = factor * pair.offset.abs()
    # 1 - max(0, (w_g - f |dx|) / (w_g + f |dx|)) and 1 - min(w / w_g, w_g / w), each as one quotient
    centre = pair.ratio(torch.minimum(2 * reach, size2 + reach), size2 + reach, units=1)
    size = pair.ratio(pair.change.abs(), torch.maximum(pair.size1, size2), units=1)
    return (smooth_l1(centre, beta) + smooth_l1(size, beta)).sum(-1)


def bounded_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    beta: float = 0.2,
    factor: float = 2.0,
) -> Tensor:
    r"""Bounded IoU: for each of x, y, w, h the IoU that this one error alone would allow.

    .. math::
        L = \sum_{t \in x, y, w, h} smooth_\beta(1 - B_t), \quad
        B_x = \max\left(0, \frac{w_g - f |dx|}{w_g + f |dx|}\right), \quad B_w = \min(w / w_g, w_g / w)

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        beta: where the parabola meets the line, above 0. The authors' code: 1.
        factor: f, above 0: 2 in the paper, 1 in the authors' code.

    Returns:
        The loss in [0, 4), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`;
            ValueError for a `beta` or `factor` that is not above 0.

    Properties:
        Scale free, not symmetric: the offset is measured in sizes of the target. A pair whose
        centres are further apart than half the size of the target has no gradient by its centre,
        only by its size. The target is a constant of the gradient.

    Reference:
        Tychsen-Smith and Petersson, "Improving Object Localization with Fitness NMS and Bounded IoU
        Loss", CVPR 2018, arXiv:1711.00164.

    Deviations:
        The defaults are those of mmdetection. One number per box, where mmdetection returns four,
        which makes weights and means disagree with every other loss. Despite its name the bound can
        be below the IoU.

    Example:
        >>> import torch
        >>> from iou_losses import bounded_iou_loss
        >>> bounded_iou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([1.0167])
    """
    check_range("beta", beta, 0, above=True)
    check_range("factor", factor, 0, above=True)
    if isinstance(target, Tensor):
        target = target.detach()  # a constant of the gradient
    return paired_loss(
        bounded_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, beta=beta, factor=factor
    )


class BoundedIoULoss(BoxLoss):
    """`bounded_iou_loss` as a module.

    Args:
        reduction, eps, fmt, beta, factor: as in `bounded_iou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import BoundedIoULoss
        >>> BoundedIoULoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(1.0167)
    """

    function = staticmethod(bounded_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        beta: float = 0.2,
        factor: float = 2.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, beta=beta, factor=factor)
