"""NWD: the Wasserstein distance of two boxes seen as Gaussians."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import root, saturation, squared_length


def nwd_cost(pair: Pair, constant: float) -> Tensor:
    """Return 1 - exp(-sqrt(rho^2 + ((w - w_g)^2 + (h - h_g)^2) / 4) / K), an absolute length: the scale is undone."""
    distance = root(squared_length(pair.offset) + squared_length(pair.change) / 4)
    return saturation(distance / (constant * pair.scale[..., 0]))


def nwd_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    constant: float = 12.8,
) -> Tensor:
    r"""One minus the normalised Wasserstein distance of two boxes seen as Gaussians.

    .. math::
        L = 1 - e^{-W / K}, \quad W^2 = \rho^2 + \frac{(w - w_g)^2 + (h - h_g)^2}{4}

    Args:
        pred: boxes of shape (..., 4), in the unit of `constant`. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        constant: K in the unit of the boxes: the mean size of the objects in the data set, 12.8
            pixels for AI-TOD.

    Returns:
        The loss in [0, 1], float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a `constant` that is not above 0.

    Properties:
        Symmetric, not scale free: K is the ruler. A disjoint pair has a gradient towards the
        target, which fades where W is many times K.

    Reference:
        Wang et al., "A Normalized Gaussian Wasserstein Distance for Tiny Object Detection", 2021,
        arXiv:2110.13389.

    Deviations:
        None. The slope of the square root at 0 is 0, so an identical pair has gradient 0.
        `gcd_loss` is the scale-free successor.

    Example:
        >>> import torch
        >>> from iou_losses import nwd_loss
        >>> nwd_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.1926])
    """
    check_range("constant", constant, 0, above=True)
    return paired_loss(nwd_cost, pred, target, reduction, eps, weight, avg_factor, fmt, constant=constant)


class NWDLoss(BoxLoss):
    """`nwd_loss` as a module.

    Args:
        reduction, eps, fmt, constant: as in `nwd_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import NWDLoss
        >>> NWDLoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.1926)
    """

    function = staticmethod(nwd_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        constant: float = 12.8,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, constant=constant)
