"""EIoU: the differences of width and height in place of the aspect ratio; and its focal form."""

from __future__ import annotations

import torch
from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.losses.diou import centre_distance
from iou_losses.losses.iou import iou, iou_loss
from iou_losses.reduction import weighted


def eiou_cost(pair: Pair) -> Tensor:
    """Return 1 - IoU + rho^2 / c^2 + (w - w_g)^2 / c_w^2 + (h - h_g)^2 / c_h^2."""
    # Divided before they are squared: the square of a thin hull's side would underflow.
    sizes = pair.ratio(pair.change, pair.hull, units=1).square().sum(-1)
    return 1 - iou(pair) + centre_distance(pair) + sizes


def focal_eiou_cost(pair: Pair, gamma: float) -> Tensor:
    """Return IoU^gamma times the EIoU loss; the focusing factor is a constant of the gradient."""
    return iou(pair).detach().pow(gamma) * eiou_cost(pair)


def eiou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
) -> Tensor:
    r"""Efficient IoU: overlap, distance of the centres and differences of the sides.

    .. math::
        L = 1 - IoU + \frac{\rho^2}{c^2} + \frac{(w - w_g)^2}{c_w^2} + \frac{(h - h_g)^2}{c_h^2}

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.

    Returns:
        The loss in [0, 4), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`.

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient that brings the centres together and
        the sides to those of the target.

    Reference:
        Zhang et al., "Focal and Efficient IOU Loss for Accurate Bounding Box Regression",
        Neurocomputing 2022, arXiv:2101.08158.

    Deviations:
        None. `eps` joins c_w and c_h, not their squares. This is the Efficient IoU; the Extended
        IoU, which mmdetection calls EIoULoss, is `extended_iou_loss`.

    Example:
        >>> import torch
        >>> from iou_losses import eiou_loss
        >>> eiou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.6843])
    """
    return paired_loss(eiou_cost, pred, target, reduction, eps, weight, avg_factor, fmt)


class EIoULoss(BoxLoss):
    """`eiou_loss` as a module.

    Args:
        reduction, eps, fmt: as in `eiou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import EIoULoss
        >>> EIoULoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.6843)
    """

    function = staticmethod(eiou_loss)


def focal_eiou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    gamma: float = 0.5,
    normalize: bool = False,
) -> Tensor:
    r"""Efficient IoU, weighted by the IoU: boxes that overlap well count more.

    .. math::
        L = IoU^\gamma \, L_{EIoU}

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        gamma: exponent of the weight, 0 or more; 0 is `eiou_loss`.
        normalize: divide the `"mean"` by the sum of the weights IoU^gamma in place of the
            number of boxes (the paper's eq. 11). Weights that sum to 0 give 0.

    Returns:
        The loss in [0, 4), float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`;
            ValueError for a negative `gamma`, and for `normalize` with `avg_factor`.

    Properties:
        Symmetric, scale free. The weight is a constant of the gradient; it is 0 for a disjoint
        pair, which costs 0 and gets no gradient.

    Reference:
        Zhang et al., "Focal and Efficient IOU Loss for Accurate Bounding Box Regression",
        Neurocomputing 2022, arXiv:2101.08158.

    Deviations:
        The paper does not say whether the weight is differentiated; the implementations in
        circulation do not, and neither does this one.

    Example:
        >>> import torch
        >>> from iou_losses import focal_eiou_loss
        >>> focal_eiou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.4631])
    """
    check_range("gamma", gamma, 0)
    if normalize:
        if avg_factor is not None:
            raise ValueError("normalize=True divides by the sum of the weights; it cannot be used with avg_factor")
        if reduction == "mean":
            with torch.no_grad():  # and detached: no_grad does not stop tangents of the forward mode
                focus = (1 - iou_loss(pred, target, eps=eps, fmt=fmt)).detach().pow(gamma)
                avg_factor = (focus if weight is None else weighted(focus, weight.detach())).sum()
    return paired_loss(focal_eiou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, gamma=gamma)


class FocalEIoULoss(BoxLoss):
    """`focal_eiou_loss` as a module.

    Args:
        reduction, eps, fmt, gamma, normalize: as in `focal_eiou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import FocalEIoULoss
        >>> FocalEIoULoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.4631)
    """

    function = staticmethod(focal_eiou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        gamma: float = 0.5,
        normalize: bool = False,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, gamma=gamma, normalize=normalize)
