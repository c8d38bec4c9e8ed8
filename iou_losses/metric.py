"""Similarities of the caller's choice, for matching, suppression and scoring."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from iou_losses.boxes import FORMATS

# (..., N, 4) and (..., M, 4) boxes and the keyword `fmt` to (..., N, M) similarities.
Metric = Callable[..., Tensor]

PAIRS = 1 << 20  # similarities at once: formulas hold some 100 to 200 bytes for each


def as_metric(loss: Callable[..., Tensor]) -> Metric:
    """Make a similarity matrix of any loss of paired boxes: 1 - loss, of every box with every other.

    It serves as `metric=` in matching, suppression and scoring.

    Args:
        loss: a function `(boxes1, boxes2, reduction="none", fmt=)`, such as `siou_loss`, or
            `functools.partial(mpdiou_loss, image_size=(640, 480))`.

    Returns:
        A function `(boxes1, boxes2, fmt="xyxy")` of (..., N, 4) and (..., M, 4) boxes to (..., N, M)
        similarities; of the four losses that have a matrix of their own, take that: it is faster.

    Example:
        >>> import torch
        >>> from iou_losses import as_metric, nwd_loss
        >>> as_metric(nwd_loss)(torch.tensor([[0.0, 0, 8, 8]]), torch.tensor([[0.0, 0, 8, 8], [4, 0, 12, 8]]))
        tensor([[1.0000, 0.7316]])
    """

    def metric(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
        grid = boxes1[..., :, None, :], boxes2[..., None, :, :]
        pairs = torch.broadcast_tensors(*grid)  # type: ignore[no-untyped-call]
        return 1 - loss(*pairs, reduction="none", fmt=fmt)

    return metric


def in_one_format(boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]) -> tuple[Tensor, Tensor, str]:
    """Bring boxes of two formats to corners; a metric takes one format."""
    if formats[0] == formats[1]:
        return boxes1, boxes2, formats[0]
    return corners(boxes1, formats[0]), corners(boxes2, formats[1]), "xyxy"


def corners(boxes: Tensor, fmt: str) -> Tensor:
    """Return the boxes as `"xyxy"`."""
    return torch.cat(FORMATS[fmt](boxes[..., :2], boxes[..., 2:]), -1)


def similarities(metric: Metric, boxes1: Tensor, boxes2: Tensor, fmt: str) -> Tensor:
    """Call the metric, and raise a `ValueError` unless it gives a matrix of the boxes."""
    result = metric(boxes1, boxes2, fmt=fmt)
    leading = torch.broadcast_shapes(boxes1.shape[:-2], boxes2.shape[:-2])  # type: ignore[no-untyped-call]
    expected = (*leading, boxes1.shape[-2], boxes2.shape[-2])
    if not isinstance(result, Tensor) or result.shape != expected:
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"metric must give similarities of shape {expected} for these boxes, got {got}")
    return result


def by_score(scores: Tensor) -> Tensor:
    """Return the order of descending scores, of equals the first; NaN counts as -infinity."""
    return scores.nan_to_num(-math.inf, math.inf, -math.inf).argsort(descending=True, stable=True)


def without_nan(similarity: Tensor, mask: Tensor | None = None) -> Tensor:
    """Put -infinity for NaN and for the rows outside the mask: what is never the greatest."""
    absent = similarity.isnan()
    if mask is not None:
        absent = absent | ~mask[..., None]
    return similarity.masked_fill(absent, -math.inf)
