"""Suppression: of boxes that show the same object, the one with the highest score."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from iou_losses.core import check_range, compute_dtype, one_of, plain_boxes
from iou_losses.metric import PAIRS, Metric, by_score, similarities
from iou_losses.native import jobs
from iou_losses.pairwise import box_iou

METHODS = {"linear": False, "gaussian": True}


@torch.no_grad()
def nms(
    boxes: Tensor,
    scores: Tensor,
    threshold: float,
    *,
    metric: Metric = box_iou,
    labels: Tensor | None = None,
    fmt: str = "xyxy",
) -> Tensor:
    """Keep, in order of their scores, the boxes that are not too similar to one kept before.

    A box goes if its similarity to a kept box of its class is above the threshold, as numbers: an IoU of
    exactly 0.5 stays at 0.5, and float32's 0.3, which lies above 0.3, goes at 0.3, as in torchvision.
    The native engine serves `box_iou`, `generalized_box_iou`, `distance_box_iou` (DIoU-NMS) and
    `complete_box_iou` on the CPU; everything else takes blocks of rows of the matrix.

    Args:
        boxes: shape (N, 4), floating (also float16 on a CPU) or integer.
        scores: shape (N,), floating or integer. NaN counts as -infinity.
        threshold: a finite number; DIoU and GIoU may be compared with one below 0.
        metric: a function `(boxes1, boxes2, fmt=)` to similarities (N, M).
        labels: integers, shape (N,): boxes of different classes do not see each other.
        fmt: format of the boxes, see `iou_loss`. `tv_tensors.BoundingBoxes` bring their own.

    Returns:
        int64, the indices of the boxes that are kept, by descending score; of equal scores the
        first comes first. For valid boxes and `box_iou` what `torchvision.ops.nms` or `batched_nms`
        gives. A box with a NaN coordinate neither suppresses nor is suppressed.

    Raises:
        TypeError: for what is no tensor, bool and complex boxes or scores, labels that are not integers.
        ValueError: for other shapes, devices that differ, a threshold that is not finite.

    Reference:
        DIoU-NMS: Zheng et al., AAAI 2020, arXiv:1911.08287. Blocks of rows are settled as in Cluster-NMS:
        Zheng et al., IEEE Trans. Cybernetics 2021, arXiv:2005.03572.

    Example:
        >>> import torch
        >>> from iou_losses import nms
        >>> boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [30, 30, 40, 40]])
        >>> nms(boxes, torch.tensor([0.6, 0.9, 0.7]), 0.5)
        tensor([1, 2])
    """
    boxes, fmt = _checked(boxes, scores, labels, fmt)
    if not math.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number, got {threshold!r}")
    order = by_score(scores)
    boxes = boxes.index_select(0, order)
    labels = labels if labels is None else labels.index_select(0, order)
    kernel = jobs.kernel("suppress", metric, boxes, boxes)
    if kernel is None:
        return order[_suppressed_by_blocks(metric, boxes, labels, fmt, threshold)]
    grouped, counts = _grouped(labels, len(boxes))
    if grouped is None:
        return order[jobs.suppress(kernel, boxes, counts, fmt, threshold)]
    keep = boxes.new_empty(len(boxes), dtype=torch.bool)
    keep[grouped] = jobs.suppress(kernel, boxes.index_select(0, grouped), counts, fmt, threshold)
    return order[keep]


@torch.no_grad()
def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    *,
    method: str = "gaussian",
    sigma: float = 0.5,
    threshold: float = 0.3,
    min_score: float = 0.001,
    metric: Metric = box_iou,
    labels: Tensor | None = None,
    fmt: str = "xyxy",
) -> tuple[Tensor, Tensor]:
    """Lower the scores of boxes that are similar to one of a higher score, in place of removing them.

    The box of the highest score is picked; each remaining box of its class has its score multiplied,
    by `1 - s` where the similarity s is `threshold` or more (`"linear"`), or by
    `exp(-s^2 / sigma)` (`"gaussian"`); and so on while a score is `min_score` or more.

    Args:
        boxes, metric, labels, fmt: as in `nms`.
        scores: shape (N,), not negative. NaN is never picked.
        method: `"gaussian"` or `"linear"`.
        sigma: above 0; for `"gaussian"`.
        threshold: in [0, 1]; for `"linear"`.
        min_score: boxes whose score falls below it are dropped.

    Returns:
        indices: int64, the boxes that are left, by descending new score; of equals the first.
        scores: their new scores, float64 if boxes or scores are float64 or integer, else float32.

    Raises:
        TypeError, ValueError: as `nms`; ValueError for an unknown method and numbers out of range.

    Reference:
        Bodla et al., "Soft-NMS", ICCV 2017, arXiv:1704.04503.

    Deviations:
        A negative similarity (GIoU, DIoU) lowers nothing. The authors' code takes `s > threshold`
        for the linear method, the paper `s >= threshold`.

    Example:
        >>> import torch
        >>> from iou_losses import soft_nms
        >>> boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [30, 30, 40, 40]])
        >>> soft_nms(boxes, torch.tensor([0.9, 0.8, 0.7]), method="linear")
        (tensor([0, 2, 1]), tensor([0.9000, 0.7000, 0.4000]))
    """
    gaussian = one_of("method", method, METHODS)
    check_range("sigma", sigma, 0, above=True)
    check_range("threshold", threshold, 0, 1)
    check_range("min_score", min_score, 0)
    boxes, fmt = _checked(boxes, scores, labels, fmt)
    dtype = compute_dtype(boxes.dtype, scores.dtype)
    boxes, scores, fading = boxes.to(dtype), scores.to(dtype), (gaussian, sigma, threshold)
    kernel = jobs.kernel("soft_suppress", metric, boxes, boxes)
    if kernel is None:
        picks, picked = _faded_one_by_one(metric, boxes, scores, labels, fmt, fading, min_score)
    else:
        grouped, counts = _grouped(labels, len(boxes))
        if grouped is not None:
            boxes, scores = boxes.index_select(0, grouped), scores.index_select(0, grouped)
        picks, picked = jobs.soft_suppress(kernel, boxes, counts, fmt, fading, scores, min_score)
        picks = picks if grouped is None else grouped[picks]
    picks, order = picks.sort()  # so that of equals the first comes first
    picked, ranks = picked[order].sort(descending=True, stable=True)
    return picks[ranks], picked


def _checked(boxes: Tensor, scores: Tensor, labels: Tensor | None, fmt: str) -> tuple[Tensor, str]:
    """Return the boxes as a plain tensor of the dtype that is computed in, and their format."""
    boxes, fmt = plain_boxes(boxes, fmt)
    if boxes.dim() != 2:
        raise ValueError(f"boxes must have the shape (N, 4), got {tuple(boxes.shape)}")
    for name, values in (("scores", scores), ("labels", labels)):
        if values is None:
            continue
        if not isinstance(values, Tensor) or values.is_complex() or values.dtype == torch.bool:
            raise TypeError(f"{name} must be a real tensor, got {getattr(values, 'dtype', type(values))}")
        if values.shape != boxes.shape[:1] or values.device != boxes.device:
            raise ValueError(
                f"{name} must have the shape {tuple(boxes.shape[:1])}, one for each box, and be on {boxes.device}, "
                f"got {tuple(values.shape)} on {values.device}"
            )
    if labels is not None and labels.is_floating_point():
        raise TypeError(f"labels must be integers, got {labels.dtype}")
    return boxes.to(compute_dtype(boxes.dtype, boxes.dtype)), fmt


def _grouped(labels: Tensor | None, count: int) -> tuple[Tensor | None, Tensor]:
    """Return the order that puts boxes of one class together, None for the order they are in, and the class sizes."""
    if labels is None or not count:
        return None, torch.tensor([count], device="cpu")  # whatever the default device is
    in_order, grouped = labels.sort(stable=True)
    _, counts = in_order.unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    return grouped, counts


def _suppressed_by_blocks(metric: Metric, boxes: Tensor, labels: Tensor | None, fmt: str, threshold: float) -> Tensor:
    """Tell which boxes are kept, given them by descending score."""
    count = len(boxes)
    keep = torch.ones(count, dtype=torch.bool, device=boxes.device)
    height = max(1, PAIRS // max(1, count))
    for start in range(0, count, height):
        block, stop = boxes[start : start + height], min(start + height, count)
        above = similarities(metric, block, boxes[start:], fmt).double() > threshold
        if labels is not None:
            above &= labels[start:stop, None] == labels[start:]
        keep[start:stop] = _settled(above[:, : stop - start].triu(1), keep[start:stop])
        keep[stop:] &= ~(above[:, stop - start :] & keep[start:stop, None]).any(0)
    return keep


def _settled(above: Tensor, alive: Tensor) -> Tensor:
    """Return who is kept of a block: with each round, one more at least is final."""
    kept = alive
    while True:
        again = alive & ~(above & kept[:, None]).any(0)
        if torch.equal(again, kept):
            return kept
        kept = again


def _faded_one_by_one(
    metric: Metric,
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor | None,
    fmt: str,
    fading: tuple[bool, float, float],
    min_score: float,
) -> tuple[Tensor, Tensor]:
    """Give the boxes in the order they are picked, and their scores then."""
    gaussian, sigma, threshold = fading
    least = float(torch.tensor(min_score, dtype=scores.dtype, device="cpu"))
    picks, picked = [], []
    for _ in range(len(boxes)):
        scores = scores.nan_to_num(-math.inf, math.inf, -math.inf)  # NaN, also of an infinite score that fades
        pick = int(scores.argmax())
        score = float(scores[pick])
        if score < least:
            break
        picks.append(pick)
        picked.append(score)
        scores[pick] = -math.inf
        s = similarities(metric, boxes[pick : pick + 1], boxes, fmt)[0].to(scores.dtype)
        factor = (-s.square() / sigma).exp().where(s > 0, 1.0) if gaussian else (1 - s).where(s >= threshold, 1.0)
        if labels is not None:
            factor = factor.where(labels == labels[pick], 1.0)
        scores = scores * factor
    indices = torch.tensor(picks, dtype=torch.int64, device=boxes.device)
    return indices, torch.tensor(picked, dtype=scores.dtype, device=boxes.device)
