"""Matching: the best partner of every box, and who is a positive, a negative or neither."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from iou_losses.core import prepare
from iou_losses.metric import PAIRS, Metric, in_one_format, similarities, without_nan
from iou_losses.native import jobs
from iou_losses.pairwise import box_iou, check_leading

NEGATIVE, IGNORED = -1, -2  # in place of an object's index; torchvision's numbers


class BestMatch(NamedTuple):
    """The greatest similarity of each box, and the box that it has it with."""

    values: Tensor
    indices: Tensor


def best_match(boxes1: Tensor, boxes2: Tensor, metric: Metric = box_iou, *, fmt: str = "xyxy") -> BestMatch:
    """Give each box of one set its best partner in the other, without ever storing the matrix.

    `best_match(a, b)` is `box_iou(a, b).max(-1)` in bounded memory. The native engine serves
    `box_iou`, `generalized_box_iou`, `distance_box_iou` and `complete_box_iou` on the CPU without
    gradients; for everything else the metric is called on one tile of the matrix after the other,
    and once more for each tile in the backward pass.

    Args:
        boxes1: boxes of shape (..., N, 4), floating or integer.
        boxes2: boxes of shape (..., M, 4); the leading dimensions broadcast.
        metric: a function `(boxes1, boxes2, fmt=)` to similarities (..., N, M). It gets float32
            boxes, or float64 where `box_iou` would compute in it.
        fmt: format of both, see `iou_loss`. `tv_tensors.BoundingBoxes` bring their own.

    Returns:
        values: the similarities, shape (..., N), dtype of the metric; differentiable.
        indices: int64, shape (..., N), into `boxes2`. Of equals the first. NaN is never the best, so
            boxes of NaN may pad a batch. Without a partner, as when M is 0, -infinity and -1.

    Raises:
        TypeError, ValueError: as `box_iou`; ValueError for a metric that gives no such matrix.

    Example:
        >>> import torch
        >>> from iou_losses import best_match
        >>> anchors = torch.tensor([[0.0, 0, 10, 10], [5, 0, 15, 10], [90, 90, 99, 99]])
        >>> objects = torch.tensor([[6.0, 0, 16, 10], [0, 0, 10, 12]])
        >>> best_match(anchors, objects)
        BestMatch(values=tensor([0.8333, 0.8182, 0.0000]), indices=tensor([1, 0, 0]))
    """
    boxes1, boxes2, formats = prepare(boxes1, boxes2, fmt)
    check_leading(boxes1.shape, boxes2.shape)
    kernel = jobs.kernel("best", metric, boxes1, boxes2)
    if kernel is not None:
        return BestMatch(*jobs.best(kernel, boxes1, boxes2, formats))
    boxes1, boxes2, fmt = in_one_format(boxes1, boxes2, formats)
    leading = torch.broadcast_shapes(boxes1.shape[:-2], boxes2.shape[:-2])  # type: ignore[no-untyped-call]
    width = max(1, min(boxes2.shape[-2], PAIRS // max(1, math.prod(leading))))
    height = max(1, PAIRS // (width * max(1, math.prod(leading))))
    several = boxes1.shape[-2] > height or boxes2.shape[-2] > width
    blocks = boxes1.split(height, -2)  # type: ignore[no-untyped-call]
    graph = torch.is_grad_enabled() and (boxes1.requires_grad or boxes2.requires_grad)
    parts = (_best_of_rows(metric, rows, boxes2, fmt, width, graph and several) for rows in blocks)
    if graph or not several:
        return BestMatch(*(torch.cat(part, -1) for part in zip(*parts, strict=True)))
    return BestMatch(*_joined(parts, boxes1.shape[-2]))


def _joined(parts: Iterable[tuple[Tensor, ...]], count: int) -> list[Tensor]:
    """Join parts as they come: kept, their small tensors would lie between the freed tiles and fragment the heap."""
    whole: list[Tensor] = []
    start = 0
    for part in parts:
        whole = whole or [piece.new_empty(*piece.shape[:-1], count) for piece in part]
        for tensor, piece in zip(whole, part, strict=True):
            tensor[..., start : start + piece.shape[-1]] = piece
        start += part[0].shape[-1]
    return whole


def _best_of_rows(metric: Metric, rows: Tensor, boxes2: Tensor, fmt: str, width: int, forgetful: bool) -> BestMatch:
    """Go through the tiles beside each other; a forgetful one computes again what its gradient needs."""
    best: BestMatch | None = None
    for left in range(0, boxes2.shape[-2], width):
        arguments = (metric, rows, boxes2[..., left : left + width, :], fmt, left)
        found: BestMatch = _checkpointed(*arguments) if forgetful else _best_of_tile(*arguments)
        if best is not None:
            better = found.values > best.values
            found = BestMatch(*(torch.where(better, new, old) for new, old in zip(found, best, strict=True)))
        best = found
    return best if best is not None else _no_match(rows, boxes2)


def _checkpointed(*arguments: object) -> BestMatch:
    from torch.utils.checkpoint import checkpoint  # it imports the compiler, for a second, in torch 2.6

    return checkpoint(_best_of_tile, *arguments, use_reentrant=False)


def _best_of_tile(metric: Metric, rows: Tensor, columns: Tensor, fmt: str, left: int) -> BestMatch:
    values, indices = without_nan(similarities(metric, rows, columns, fmt)).max(-1)
    return BestMatch(values, (indices + left).masked_fill(values == -math.inf, NEGATIVE))


def _no_match(rows: Tensor, boxes2: Tensor) -> BestMatch:
    shape = torch.broadcast_shapes(rows.shape[:-1], (*boxes2.shape[:-2], 1))  # type: ignore[no-untyped-call]
    return BestMatch(rows.new_full(shape, -math.inf), rows.new_full(shape, NEGATIVE, dtype=torch.int64))


@torch.no_grad()
def match(
    similarity: Tensor,
    *,
    high: float,
    low: float,
    force_best: bool = True,
    floor: float = 0.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Assign to each candidate, such as an anchor, one object or none, by two thresholds.

    A candidate takes the object that it is most similar to, the first of equals. From `high` on it is a
    positive, below `low` a negative, between them neither.

    Args:
        similarity: shape (..., M, N), of M objects with N candidates, floating; any similarity. NaN
            counts as no similarity at all.
        high: a similarity of `high` or more makes a positive.
        low: a similarity below `low` makes a negative.
        force_best: the candidates with the greatest similarity to an object, all of them where
            several are equal, are positives whatever the thresholds say. Such a candidate takes the object
            that *it* is most similar to, as in torchvision, which may be another one.
        floor: an object whose greatest similarity is not above `floor` forces nothing. An object of
            IoU 0 with every candidate is most similar to all of them; torchvision makes them
            all positives, and so does `floor=-math.inf`.
        mask: bool, shape (..., M): which objects are real, where a batch is padded.

    Returns:
        int64, shape (..., N): the index of the object, -1 for a negative, -2 for neither. Equal to
        torchvision's `Matcher(high, low, force_best)` where every object overlaps a candidate.
        Nothing waits for a GPU. Without objects every candidate is a negative.

    Raises:
        TypeError: for a similarity that is not a floating tensor, a mask that is not bool.
        ValueError: for other shapes, thresholds that are not finite, `low` above `high`.

    Reference:
        Ren et al., "Faster R-CNN", NeurIPS 2015, arXiv:1506.01497, section 3.1.2.

    Example:
        >>> import torch
        >>> from iou_losses import match
        >>> iou = torch.tensor([[0.8, 0.5, 0.1, 0.0], [0.0, 0.0, 0.3, 0.0]])  # 2 objects, 4 anchors
        >>> match(iou, high=0.7, low=0.3)  # the third is the second object's best
        tensor([ 0, -2,  1, -1])
    """
    if not isinstance(similarity, Tensor) or not similarity.is_floating_point():
        raise TypeError(f"similarity must be a floating tensor, got {getattr(similarity, 'dtype', type(similarity))}")
    if similarity.dim() < 2:
        raise ValueError(f"similarity must have the shape (..., M, N), got {tuple(similarity.shape)}")
    _check_thresholds(high, low, floor)
    check_mask(mask, similarity.shape[:-1])
    similarity = without_nan(similarity, mask)
    best = similarity.amax(-1) if force_best and similarity.shape[-1] else None
    return _labelled(similarity, best, high, low, floor)


@torch.no_grad()
def match_boxes(
    true_boxes: Tensor,
    boxes: Tensor,
    *,
    high: float,
    low: float,
    force_best: bool = True,
    floor: float = 0.0,
    mask: Tensor | None = None,
    metric: Metric = box_iou,
    fmt: str = "xyxy",
) -> Tensor:
    """Give `match(metric(true_boxes, boxes), ...)` in bounded memory.

    Args:
        true_boxes: objects of shape (..., M, 4), floating or integer.
        boxes: candidates of shape (..., N, 4); the leading dimensions broadcast.
        high, low, force_best, floor: as in `match`.
        mask: bool, shape (..., M): which objects are real.
        metric, fmt: as in `best_match`.

    Returns:
        int64, shape (..., N), as `match`.

    Raises:
        TypeError, ValueError: as `match` and `best_match`.

    Example:
        >>> import torch
        >>> from iou_losses import match_boxes
        >>> objects = torch.tensor([[6.0, 0, 16, 10], [0, 0, 10, 12]])
        >>> anchors = torch.tensor([[0.0, 0, 10, 10], [5, 0, 15, 10], [90, 90, 99, 99]])
        >>> match_boxes(objects, anchors, high=0.7, low=0.3)
        tensor([ 1,  0, -1])
    """
    true_boxes, boxes, formats = prepare(true_boxes, boxes, fmt)
    check_leading(true_boxes.shape, boxes.shape)
    _check_thresholds(high, low, floor)
    true_boxes, boxes, fmt = in_one_format(true_boxes, boxes, formats)
    leading = torch.broadcast_shapes(true_boxes.shape[:-2], boxes.shape[:-2])  # type: ignore[no-untyped-call]
    check_mask(mask, torch.Size((*leading, true_boxes.shape[-2])))
    width = max(1, PAIRS // max(1, math.prod(leading) * true_boxes.shape[-2]))
    blocks = boxes.split(width, -2)  # type: ignore[no-untyped-call]

    def tiles() -> Iterator[Tensor]:
        return (without_nan(similarities(metric, true_boxes, block, fmt), mask) for block in blocks)

    # The same tiles twice: what a similarity is rounded to may depend on its place in a tile, and an object's best is
    # looked for by equality.
    best = reduce(torch.maximum, (tile.amax(-1) for tile in tiles())) if force_best and boxes.shape[-2] else None
    return _joined(((_labelled(tile, best, high, low, floor),) for tile in tiles()), boxes.shape[-2])[0]


def _labelled(similarity: Tensor, best: Tensor | None, high: float, low: float, floor: float) -> Tensor:
    """Label candidates by their similarities, of which none is NaN, and each object's best, to all candidates."""
    if 0 in similarity.shape[-2:]:
        shape = (*similarity.shape[:-2], similarity.shape[-1])
        return similarity.new_full(shape, NEGATIVE, dtype=torch.int64)
    values, indices = similarity.max(-2)
    labels = indices.masked_fill(values < high, IGNORED).masked_fill(values < low, NEGATIVE)
    if best is None:
        return labels
    forced = (similarity == best[..., None]) & (best > floor)[..., None]
    return torch.where(forced.any(-2), indices, labels)


def _check_thresholds(high: float, low: float, floor: float) -> None:
    if not -math.inf < low <= high < math.inf:
        raise ValueError(f"low and high must be finite numbers, low at most high, got {low!r} and {high!r}")
    if math.isnan(floor):
        raise ValueError(f"floor must be a number, got {floor!r}")


def check_mask(mask: Tensor | None, shape: torch.Size) -> None:
    """Raise unless the mask of the objects, where there is one, is bool and has this shape."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask must be a bool tensor, got {getattr(mask, 'dtype', type(mask))}")
    if mask.shape != shape:
        raise ValueError(f"mask must have the shape {tuple(shape)}, one for each object, got {tuple(mask.shape)}")
