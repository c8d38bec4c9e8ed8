"""WIoU: attention by the distance of the centres, and a focus that moves with the quality of the batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, distributed

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_base, check_range, paired_loss
from iou_losses.elementary import power, quotient, squared_length
from iou_losses.losses.iou import iou, iou_loss
from iou_losses.reduction import reduce, weighted

PAPER_MOMENTUM = 1 - 0.05 ** (1 / (890 * 34))  # 890 batches per epoch, AP flattens in epoch 34


def wiou_cost(pair: Pair) -> Tensor:
    """Return exp(rho^2 / c^2) (1 - IoU); c^2 is a constant of the gradient."""
    diagonal = squared_length(pair.hull).detach()
    return torch.exp(pair.ratio(squared_length(pair.offset), diagonal)) * (1 - iou(pair))


def wiou2_cost(pair: Pair, mean: float | Tensor, gamma: float) -> Tensor:
    """Return (L / m)^gamma times version 1: poor boxes count most."""
    return focus2(1 - iou(pair), mean, gamma) * wiou_cost(pair)


def wiou3_cost(pair: Pair, mean: float | Tensor, alpha: float, delta: float) -> Tensor:
    """Return b / (delta alpha^(b - delta)) times version 1, b = L / m: medium boxes count most."""
    return focus3(1 - iou(pair), mean, alpha, delta) * wiou_cost(pair)


def outlier_degree(iou_cost: Tensor, mean: float | Tensor) -> Tensor:
    """Return b = L_IoU / m, a constant of the gradient; 0 where the mean is 0."""
    iou_cost = iou_cost.detach()
    mean = mean.to(iou_cost) if isinstance(mean, Tensor) else iou_cost.new_full((), mean)
    return quotient(iou_cost, mean)


def focus2(iou_cost: Tensor, mean: float | Tensor, gamma: float) -> Tensor:
    """Return the monotonic focusing factor of version 2."""
    return power(outlier_degree(iou_cost, mean), gamma)


def focus3(iou_cost: Tensor, mean: float | Tensor, alpha: float, delta: float) -> Tensor:
    """Return the non-monotonic focusing factor of version 3."""
    degree = outlier_degree(iou_cost, mean)
    return degree / (delta * torch.exp((degree - delta) * math.log(alpha)))


def check_wiou(version: int, mean: float | Tensor, gamma: float, alpha: float, delta: float) -> None:
    """Raise a `ValueError` for hyper-parameters that WIoU does not have."""
    if version not in (1, 2, 3):
        raise ValueError(f"version must be 1, 2 or 3, got {version!r}")
    if isinstance(mean, Tensor):
        if mean.dim() != 0:
            raise ValueError(f"mean must be a number or a 0-d tensor, got shape {tuple(mean.shape)}")
    else:
        check_range("mean", mean, 0)
    check_range("gamma", gamma, 0)
    check_range("alpha", alpha, 0, above=True)
    check_range("delta", delta, 0, above=True)


def wiou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    version: int = 1,
    mean: float | Tensor = 1.0,
    gamma: float = 0.5,
    alpha: float = 1.9,
    delta: float = 3.0,
) -> Tensor:
    r"""Wise IoU: the IoU loss, raised for distant centres and focused by the quality of the box.

    .. math::
        L_1 = e^{\rho^2 / c^2} L_{IoU}, \quad
        L_2 = (L_{IoU} / m)^\gamma L_1, \quad
        L_3 = \frac{b}{\delta \alpha^{b - \delta}} L_1, \; b = L_{IoU} / m

    Args:
        pred: boxes of shape (..., 4), in any unit. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        version: 1 attention only, 2 with the monotonic focus, 3 with the non-monotonic one.
        mean: m, the running mean of L_IoU, a number or a 0-d tensor; `WIoULoss` keeps it. 0 gives 0.
        gamma: for version 2, 0 or more.
        alpha, delta: for version 3, above 0. The authors' later code: 1.7 and 2.7.

    Returns:
        The loss in [0, e] for version 1, times the focus for 2 and 3; float32 or float64, of shape
        (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for an unknown `version`, a negative `mean`
            or `gamma`, an `alpha` or `delta` that is not above 0.

    Properties:
        Symmetric, scale free. A disjoint pair has a gradient that brings the centres together.
        c^2, b and m are constants of the gradient.

    Reference:
        Tong et al., "Wise-IoU: Bounding Box Regression Loss with Dynamic Focusing Mechanism", 2023,
        arXiv:2301.10051.

    Deviations:
        None.

    Example:
        >>> import torch
        >>> from iou_losses import wiou_loss
        >>> wiou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]), version=3)
        tensor([0.4836])
    """
    check_wiou(version, mean, gamma, alpha, delta)
    call = (pred, target, reduction, eps, weight, avg_factor, fmt)
    if version == 1:
        return paired_loss(wiou_cost, *call)
    if version == 2:
        return paired_loss(wiou2_cost, *call, mean=mean, gamma=gamma)
    return paired_loss(wiou3_cost, *call, mean=mean, alpha=alpha, delta=delta)


class WIoULoss(BoxLoss):
    """`wiou_loss` as a module that keeps the running mean of L_IoU; or its focus on another loss.

    The mean is a buffer of this module alone, saved in its `state_dict`, in float32 at least, on the
    CPU at first and then where the boxes are. Versions 2 and 3 update it before they use it, in
    `train()` mode only and without waiting for the device. Boxes of weight 0 and NaN rows do not
    count; a batch without boxes leaves it as it is. As the base of another module it does not see
    the weights, so every box counts.

    Args:
        reduction, eps, fmt, version, gamma, alpha, delta: as in `wiou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.
        momentum: share of the newest batch in the mean. The paper: `1 - 0.05 ** (1 / (n * t))` for n
            batches per epoch and an AP that flattens after t epochs; the default is that for its
            890 and 34. The authors' later code: 1e-2.
        sync: average over all ranks where `torch.distributed` is initialised.
        base: any `BoxLoss`, which the focus of version 2 or 3 multiplies in place of version 1's
            loss; reduction, eps, fmt and loss_weight are then those it has now.

    Raises:
        TypeError, ValueError: as `wiou_loss`; for a `base` that is no `BoxLoss`, one with version 1,
            and one beside another reduction, eps, fmt or loss_weight.

    Example:
        >>> import torch
        >>> from iou_losses import CIoULoss, WIoULoss
        >>> criterion = WIoULoss(version=3, momentum=0.5, base=CIoULoss())
        >>> criterion(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.5746)
        >>> criterion.mean  # half of the way from 1 to the batch's 0.5421
        tensor(0.7710)
    """

    function = staticmethod(wiou_loss)
    mean: Tensor
    version: int
    gamma: float
    alpha: float
    delta: float

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        version: int = 1,
        gamma: float = 0.5,
        alpha: float = 1.9,
        delta: float = 3.0,
        momentum: float = PAPER_MOMENTUM,
        sync: bool = False,
        base: BoxLoss | None = None,
    ) -> None:
        check_range("momentum", momentum, 0, 1)
        if base is not None:
            check_base(base)
            if version == 1:
                raise ValueError("version 1 has no focus for a base, use version 2 or 3")
            of_base = (base.reduction, base.eps, base.fmt, base.loss_weight)
            if (reduction, eps, fmt, loss_weight) not in (("mean", 0.0, "xyxy", 1.0), of_base):
                raise ValueError("with a base, reduction, eps, fmt and loss_weight are the base's: set them there")
            reduction, eps, fmt, loss_weight = of_base
        hyper_parameters = {"version": version, "gamma": gamma, "alpha": alpha, "delta": delta}
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, **hyper_parameters)
        self.momentum, self.sync, self.base = momentum, sync, base
        self.register_buffer("mean", torch.ones((), dtype=torch.float32, device="cpu"))
        self._hyper_parameters += ("mean",)

    def compute(
        self,
        pred: Tensor,
        target: Tensor,
        reduction: str,
        weight: Tensor | None,
        avg_factor: float | Tensor | None,
        fmt: str,
    ) -> Tensor:
        """Update the mean, then give the loss, before `loss_weight`."""
        if self.training and self.version != 1:
            self.update(pred, target, weight, fmt)
        if self.base is None:
            return super().compute(pred, target, reduction, weight, avg_factor, fmt)
        loss = self.base.compute(pred, target, "none", None, None, fmt)
        return reduce(loss * self.focus(pred, target, fmt), reduction, weight, avg_factor)

    @torch.no_grad()
    def focus(self, pred: Tensor, target: Tensor, fmt: str) -> Tensor:
        """Give the focusing factor of each box."""
        iou_cost = iou_loss(pred, target, eps=self.eps, fmt=fmt)
        if self.version == 2:
            return focus2(iou_cost, self.mean, self.gamma)
        return focus3(iou_cost, self.mean, self.alpha, self.delta)

    @torch.no_grad()
    def update(self, pred: Tensor, target: Tensor, weight: Tensor | None, fmt: str) -> None:
        """Move the running mean towards the mean L_IoU of the boxes that count."""
        iou_cost = iou_loss(pred, target, eps=self.eps, fmt=fmt).detach()  # no_grad does not stop tangents
        if weight is not None:
            iou_cost = iou_cost.masked_fill(weighted(torch.ones_like(iou_cost), weight) == 0, math.nan)
        total, count = iou_cost.nansum(), (iou_cost >= 0).sum()  # NaN is not
        if self.sync and distributed.is_available() and distributed.is_initialized():
            sums = torch.stack([total, count])
            distributed.all_reduce(sums)
            total, count = sums
        if self.mean.device != total.device:
            self.mean = self.mean.to(total.device)
        moved = self.mean.lerp((total / count).to(self.mean.dtype), self.momentum)
        self.mean.copy_(torch.where(moved.isnan(), self.mean, moved))  # 0/0 where no box counts

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> WIoULoss:
        """Move with the model, in float32 at least: in half precision steps of 1e-4 would vanish."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.mean = self.mean.to(torch.promote_types(self.mean.dtype, torch.float32))
        return self
