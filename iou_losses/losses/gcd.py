"""GCD: a scale-free distance of two boxes seen as Gaussians."""

from __future__ import annotations

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, paired_loss
from iou_losses.elementary import root, saturation


def gcd_cost(pair: Pair) -> Tensor:
    """Return 1 - exp(-D) with offsets and size differences measured in sizes of both boxes."""
    # Divided before they are squared: the square of a small side would underflow.
    offset, change = pair.offset, pair.change / 2
    shares = [pair.ratio(d, size, units=1).square() for d in (offset, change) for size in (pair.size1, pair.size2)]
    return saturation(root(((shares[0] + shares[1]) + (shares[2] + shares[3])).sum(-1) / 2))


def gcd_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
) -> Tensor:
    r"""One minus the exponential of the Gaussian combined distance, the scale-free successor of NWD.

    .. math::
        L = 1 - e^{-D}, \quad D^2 = \frac12 \sum_{t \in x, y} \left(d_t^2 + \frac{(w_t - w_{g,t})^2}{4}\right)
            \left(\frac{1}{w_t^2} + \frac{1}{w_{g,t}^2}\right)

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.

    Returns:
        The loss in [0, 1], float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`.

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient towards the target, which fades where
        D is large.

    Reference:
        Guan et al., "Gaussian Combined Distance: A Generic Metric for Object Detection", IEEE GRSL
        22, 2025, arXiv:2510.27649.

    Deviations:
        None. The slope of the square root at 0 is 0, so an identical pair has gradient 0. A side of
        length 0 leaves its quotients out.

    Example:
        >>> import torch
        >>> from iou_losses import gcd_loss
        >>> gcd_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor([0.2735])
    """
    return paired_loss(gcd_cost, pred, target, reduction, eps, weight, avg_factor, fmt)


class GCDLoss(BoxLoss):
    """`gcd_loss` as a module.

    Args:
        reduction, eps, fmt: as in `gcd_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import GCDLoss
        >>> GCDLoss()(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.2735)
    """

    function = staticmethod(gcd_loss)
