"""The way of every call: checks and conversion, engine, formula, weighting, reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from iou_losses import native
from iou_losses.boxes import FORMATS, Pair, corners_of
from iou_losses.reduction import check_reduction, reduce, reducing_factor, weighted


def paired_loss(
    formula: Callable[..., Tensor],
    pred: Tensor,
    target: Tensor,
    reduction: str,
    eps: float,
    weight: Tensor | None,
    avg_factor: float | Tensor | None,
    fmt: str,
    **parameters: float,
) -> Tensor:
    """Give the loss of each pred with its target by `formula(pair, **parameters)`, weighted and reduced."""
    check_reduction(reduction, avg_factor)
    check_eps(eps)
    pred, target, formats = prepare(pred, target, fmt)
    require_same_shape(pred, target)
    kernel = native.paired_kernel(formula, pred, target)
    if kernel is None:
        loss = formula(Pair(*corners_of(pred, target, *formats), eps), **parameters)
    else:
        factor = reducing_factor(pred, reduction, weight, avg_factor)
        loss = native.paired(native.Call(kernel, formula, formats, eps, parameters, factor), pred, target)
        if factor is not None:
            return loss
    if weight is not None:
        loss = weighted(loss, weight)
    return reduce(loss, reduction, avg_factor)


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
    if fmt not in FORMATS:
        raise ValueError(f"fmt must be one of {', '.join(map(repr, FORMATS))}, got {fmt!r}")
    if boxes.shape[-1:] != (4,):
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


def check_eps(eps: float) -> None:
    """Raise a `ValueError` unless eps is a finite number that is not negative."""
    if not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be a finite number, 0 or more, got {eps!r}")


class BoxLoss(nn.Module):
    """The base of the modules: holds the arguments, calls `function`.

    A subclass names its `function` and hands its hyper-parameters on as keywords; they become
    attributes of the same names.

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
        self.reduction, self.eps, self.fmt, self.loss_weight = reduction, eps, fmt, loss_weight
        self._hyper_parameters = tuple(hyper_parameters)
        for name, value in hyper_parameters.items():
            setattr(self, name, value)
        no_boxes = torch.zeros(0, 4)
        self._call(no_boxes, no_boxes, reduction)  # a wrong argument fails here, not in the first step

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
        loss = self._call(pred, target, reduction, weight=weight, avg_factor=avg_factor)
        return loss if self.loss_weight == 1 else loss * self.loss_weight

    def _call(self, pred: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:
        hyper_parameters = {name: getattr(self, name) for name in self._hyper_parameters}
        return type(self).function(pred, target, reduction, self.eps, fmt=self.fmt, **options, **hyper_parameters)

    def __repr__(self) -> str:
        """Show the call that builds this module."""
        names = ("reduction", "eps", "fmt", "loss_weight", *self._hyper_parameters)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
