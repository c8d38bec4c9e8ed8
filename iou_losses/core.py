"""The way of every call: checks and conversion, engine, formula, weighting, reduction."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from iou_losses import native
from iou_losses.boxes import FORMATS, Pair, corners_of
from iou_losses.native import compiled
from iou_losses.reduction import check_reduction, reduce, reducing_factor, total_or_mean

Chosen = TypeVar("Chosen")


def paired_loss(
    formula: Callable[..., Tensor],
    pred: Tensor,
    target: Tensor,
    reduction: str,
    eps: float,
    weight: Tensor | None,
    avg_factor: float | Tensor | None,
    fmt: str,
    **parameters: Any,
) -> Tensor:
    """Give the loss of each pred with its target by `formula(pair, **parameters)`, weighted and reduced."""
    check_reduction(reduction, avg_factor)
    check_range("eps", eps, 0)
    pred, target, formats = prepare(pred, target, fmt)
    require_same_shape(pred, target)
    loss = by_engine(formula, pred, target, formats, eps, parameters, reduction, weight, avg_factor)
    if loss is None:
        values = formula(Pair(*corners_of(pred, target, *formats), eps), **parameters)
        loss = reduce(values, reduction, weight, avg_factor)
    return loss


def by_engine(
    formula: Callable[..., Tensor],
    pred: Tensor,
    target: Tensor,
    formats: tuple[str, str],
    eps: float,
    parameters: Mapping[str, Any],
    reduction: str,
    weight: Tensor | None,
    avg_factor: float | Tensor | None,
) -> Tensor | None:
    """Give the loss by the engine, which reduces it where it can; None where torch has to compute it."""
    kernel = native.paired_kernel(formula, pred, target)
    if kernel is not None:
        factor = reducing_factor(pred, reduction, weight, avg_factor)
        # Numbers, not a running mean itself: it may have moved when a second derivative is asked for.
        numbers = {name: float(value) for name, value in parameters.items()}
        loss = native.paired(native.Call(kernel, formula, formats, eps, numbers, factor), pred, target)
        return loss if factor is not None else reduce(loss, reduction, weight, avg_factor)
    if compiled.paired_goes_into_the_graph(formula, pred, target, parameters):
        summed = reduction != "none" and weight is None
        loss = compiled.paired_in_graph(formula, pred, target, formats, eps, parameters, summed)
        if summed:  # a number of boxes that is symbolic divides what comes out; it cannot go in
            return total_or_mean(loss, pred.numel() // 4, reduction, avg_factor)
        return reduce(loss, reduction, weight, avg_factor)
    return None


def prepare(boxes1: Tensor, boxes2: Tensor, fmt: str) -> tuple[Tensor, Tensor, tuple[str, str]]:
    """Check two box tensors and bring them to plain tensors of the dtype that the loss is computed in."""
    boxes1, fmt1 = plain_boxes(boxes1, fmt)
    boxes2, fmt2 = plain_boxes(boxes2, fmt)
    if boxes1.device != boxes2.device:
        raise ValueError(f"boxes must be on one device, got {boxes1.device} and {boxes2.device}")
    if not boxes1.dtype is boxes2.dtype is torch.float32:  # the usual case needs no conversion
        dtype = compute_dtype(boxes1.dtype, boxes2.dtype)
        boxes1, boxes2 = boxes1.to(dtype), boxes2.to(dtype)
    return boxes1, boxes2, (fmt1, fmt2)


def plain_boxes(boxes: Tensor, fmt: str) -> tuple[Tensor, str]:
    """Return the boxes as a plain tensor, and their format: their own if they are `tv_tensors.BoundingBoxes`."""
    if type(boxes) is not Tensor:
        if not isinstance(boxes, Tensor):
            raise TypeError(f"boxes must be a torch.Tensor, got {type(boxes).__name__}")
        # Known by its two attributes, so that torchvision need not be installed.
        if hasattr(boxes, "canvas_size") and hasattr(boxes, "format"):
            fmt = boxes.format.value.lower()
            boxes = boxes.as_subclass(Tensor)
    one_of("fmt", fmt, FORMATS)
    if boxes.dim() == 0 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must have 4 numbers in the last dimension, got shape {tuple(boxes.shape)}")
    return boxes, fmt


def require_same_shape(pred: Tensor, target: Tensor) -> None:
    """Raise a `ValueError` where pred and target would broadcast."""
    if pred.shape != target.shape:
        raise ValueError(f"pred and target must have the same shape, got {tuple(pred.shape)} and {tuple(target.shape)}")


def compute_dtype(dtype1: torch.dtype, dtype2: torch.dtype) -> torch.dtype:
    """Give float64 if either dtype is float64 or integer, whose differences float32 may round, else float32."""
    for dtype in (dtype1, dtype2):
        if dtype.is_complex or dtype == torch.bool:
            raise TypeError(f"boxes must be of a floating or integer dtype, got {dtype}")
    wide = any(d == torch.float64 or not d.is_floating_point for d in (dtype1, dtype2))
    return torch.float64 if wide else torch.float32


def one_of(name: str, value: str, choices: Mapping[str, Chosen]) -> Chosen:
    """Return what the word chooses, or raise a `ValueError` that lists the words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return choices[value]


def check_range(name: str, value: float, low: float, high: float = math.inf, *, above: bool = False) -> None:
    """Raise a `ValueError` unless the number is finite and in [low, high], or above low where `above` is set."""
    inside = low < value <= high if above else low <= value <= high
    if not inside or value == math.inf:
        bounds = f"above {low:g}" if above else f"at least {low:g}"
        bounds += "" if math.isinf(high) else f" and at most {high:g}"
        raise ValueError(f"{name} must be a finite number {bounds}, got {value!r}")


class BoxLoss(nn.Module):
    """The base of the modules: holds the arguments, calls `function`.

    A subclass names its `function` and hands its hyper-parameters on as keywords; each becomes an
    attribute of the same name.

    Args:
        reduction: `"none"`, `"mean"` or `"sum"`.
        eps: added to every denominator; 0 biases nothing.
        fmt: the format of the boxes, see `iou_losses.iou_loss`.
        loss_weight: multiplies the result.

    Raises:
        ValueError, TypeError: as the function does, but when the module is built.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        **hyper_parameters: Any,
    ) -> None:
        super().__init__()
        no_boxes = torch.zeros(0, 4, device="cpu")  # a wrong argument fails here, not in the first step
        type(self).function(no_boxes, no_boxes, reduction, eps, fmt=fmt, **hyper_parameters)
        self.reduction, self.eps, self.fmt, self.loss_weight = reduction, eps, fmt, loss_weight
        self._hyper_parameters = tuple(hyper_parameters)
        for name, value in hyper_parameters.items():
            setattr(self, name, value)

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Give `loss_weight` times the function's value. The signature is mmdetection's.

        Args:
            pred, target: boxes of the same shape (..., 4).
            weight: per box (...) or per coordinate (..., 4), see the function.
            avg_factor: what `"mean"` divides by instead of the number of boxes.
            reduction_override: takes the place of `reduction` in this call.
        """
        reduction = self.reduction if reduction_override is None else reduction_override
        check_reduction(reduction, avg_factor)  # before a loss with a state changes it
        loss = self.compute(pred, target, reduction, weight, avg_factor, self.fmt)
        return loss if self.loss_weight == 1 else loss * self.loss_weight

    def compute(
        self,
        pred: Tensor,
        target: Tensor,
        reduction: str,
        weight: Tensor | None,
        avg_factor: float | Tensor | None,
        fmt: str,
    ) -> Tensor:
        """Give the function's value, before `loss_weight`."""
        hyper_parameters = {name: getattr(self, name) for name in self._hyper_parameters}
        return type(self).function(
            pred, target, reduction, self.eps, weight=weight, avg_factor=avg_factor, fmt=fmt, **hyper_parameters
        )

    def __repr__(self) -> str:
        """Show the call that builds this module."""
        parameters = inspect.signature(type(self)).parameters.values()
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class CombinedLoss(BoxLoss):
    """The base of the modules that change another loss; reduction, eps, fmt and loss_weight are that one's.

    A subclass says in `per_box` what it makes of the base.

    Args:
        base: any `BoxLoss`.

    Raises:
        TypeError: for a `base` that is none.
    """

    base: BoxLoss

    def __init__(self, base: BoxLoss) -> None:
        check_base(base)
        nn.Module.__init__(self)
        self.base = base

    reduction = property(lambda self: self.base.reduction)
    eps = property(lambda self: self.base.eps)
    fmt = property(lambda self: self.base.fmt)
    loss_weight = property(lambda self: self.base.loss_weight)

    def per_box(self, pred: Tensor, target: Tensor, fmt: str) -> Tensor:
        """Give the loss of each box."""
        raise NotImplementedError

    def compute(
        self,
        pred: Tensor,
        target: Tensor,
        reduction: str,
        weight: Tensor | None,
        avg_factor: float | Tensor | None,
        fmt: str,
    ) -> Tensor:
        """Give the changed loss, weighted and reduced, before `loss_weight`."""
        return reduce(self.per_box(pred, target, fmt), reduction, weight, avg_factor)


def check_base(base: object) -> None:
    """Raise a `TypeError` for a base that is no `BoxLoss`, a `ValueError` for one that has no loss per box."""
    if not isinstance(base, BoxLoss):
        raise TypeError(f"base must be a BoxLoss module such as CIoULoss(), got {base!r}")
    if getattr(base, "normalize", False):
        raise ValueError(f"base must not divide by the weights of a whole batch, set normalize=False: got {base!r}")


def resized(pred: Tensor, target: Tensor, fmt: str, ratio: float) -> tuple[Tensor, Tensor]:
    """Scale both boxes about their own centres; returned as cxcywh about the target's centre.

    A loss does not change under translation, and sizes beside the origin keep their digits.
    """
    pred, target, formats = prepare(pred, target, fmt)
    require_same_shape(pred, target)
    (low1, high1), (low2, high2) = corners_of(pred, target, *formats)
    offset = ((low1 - low2) + (high1 - high2)) / 2
    boxes = torch.cat([offset, ratio * (high1 - low1)], -1)
    return boxes, torch.cat([torch.zeros_like(offset), ratio * (high2 - low2)], -1)
