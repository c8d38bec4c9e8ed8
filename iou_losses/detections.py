"""Which detection found which object, at every threshold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from iou_losses.boxes import FORMATS, SIZED, Pair, corners_of
from iou_losses.core import one_of, prepare
from iou_losses.elementary import area, extent
from iou_losses.matching import IGNORED, NEGATIVE
from iou_losses.metric import Metric, by_score, in_one_format, similarities
from iou_losses.pairwise import box_iou
from iou_losses.scoring import COCO_THRESHOLDS

RULES = {"coco": True, "voc": False}  # may a detection take its second best object?

Partners = list[tuple[int, list[tuple[int, float]]]]  # detections, with the objects in reach and how similar they are


class DetectionLabels(NamedTuple):
    """What became of each detection and each object, one row for each threshold.

    Attributes:
        matches: int64, shape (T, N), or (N,) for a single threshold: the object that a detection
            found, -1 for a false positive, -2 for one that is not counted.
        found_by: int64, shape (T, M) or (M,): the detection that found an object, -1 for an object
            that was missed, -2 for one that is not counted.
        order: int64, shape (N,): the detections by descending score, of equals the first;
            `matches[..., order]` is in order of score.
    """

    matches: Tensor
    found_by: Tensor
    order: Tensor


@torch.no_grad()
def label_detections(
    pred_boxes: Tensor,
    scores: Tensor,
    true_boxes: Tensor,
    thresholds: float | Sequence[float] | Tensor = COCO_THRESHOLDS,
    *,
    pred_labels: Tensor | None = None,
    true_labels: Tensor | None = None,
    ignore: Tensor | None = None,
    crowd: Tensor | None = None,
    area_range: tuple[float, float] | None = None,
    areas: Tensor | None = None,
    max_detections: int | None = None,
    rule: str = "coco",
    metric: Metric = box_iou,
    fmt: str = "xyxy",
) -> DetectionLabels:
    """Say of each detection in an image whether it found an object, and which, for all thresholds at once.

    In order of their scores, detections take an object each, whose similarity is the threshold or more.

    Args:
        pred_boxes: shape (N, 4), floating or integer; compared in float64.
        scores: shape (N,). NaN counts as -infinity.
        true_boxes: shape (M, 4).
        thresholds: a number, or several such as `COCO_THRESHOLDS`, in float64: float32's 0.6 is above 0.6.
        pred_labels, true_labels: integers, shapes (N,) and (M,): a detection finds objects of its class.
        ignore: bool, shape (M,): objects that count neither as found nor as missed (VOC's
            "difficult"). What finds one counts neither way.
        crowd: bool, shape (M,): regions of many objects, ignored. The similarity to one is the
            share of the detection that lies in it, and any number of detections may find it.
        area_range: objects with an area outside these two, bounds included, are ignored, and
            so are detections outside that find nothing.
        areas: shape (M,), the areas of the objects where they are not those of the boxes: COCO's
            are those of the segmentation.
        max_detections: so many detections of a class, those with the highest scores, count at all.
        rule: `"coco"`: a detection takes, of the objects that are still free, the most similar one,
            ignored ones last, of equals the last. `"voc"`: it takes the most similar object, of equals
            the first, and is a false positive if that was found before; ignored ones
            can be found again.
        metric: a function `(boxes1, boxes2, fmt=)` to similarities (N, M).
        fmt: format of all boxes, see `iou_loss`; VOC's boxes are `"xyxy_inclusive"`.

    Returns:
        `matches`, `found_by` and `order`, see `DetectionLabels`; on the CPU.

    Raises:
        TypeError: for what is no tensor, bool and complex boxes, `ignore` or `crowd` that is not bool.
        ValueError: for other shapes, devices that differ, labels of one side only, an unknown rule or format.

    Reference:
        Lin et al., "Microsoft COCO", ECCV 2014, arXiv:1405.0312, and its `COCOeval`; Everingham et al.,
        "The PASCAL Visual Object Classes Challenge", IJCV 2010, and its `VOCevaldet`.

    Example:
        >>> import torch
        >>> from iou_losses import label_detections
        >>> truth = torch.tensor([[0.0, 0, 100, 100]])
        >>> found = torch.tensor([[25.0, 0, 125, 100], [0, 0, 100, 100]])  # IoU 0.6, and a duplicate of 1.0
        >>> label_detections(found, torch.tensor([0.9, 0.8]), truth, (0.5, 0.75)).matches
        tensor([[ 0, -1],
                [-1,  0]])
    """
    second_best = one_of("rule", rule, RULES)
    levels = torch.as_tensor(thresholds, dtype=torch.float64, device="cpu")
    if levels.dim() > 1:
        raise ValueError(f"thresholds must be a number or a sequence of numbers, got shape {tuple(levels.shape)}")
    preds, truths, formats = _on_cpu(pred_boxes, true_boxes, fmt)
    classes = _classes(pred_labels, true_labels, len(preds), len(truths))
    crowd = _flags("crowd", crowd, len(truths))
    ignored = _flags("ignore", ignore, len(truths)) | crowd
    similarity = similarities(metric, *in_one_format(preds, truths, formats)).to(torch.float64, copy=True)
    similarity[:, crowd] = share_inside(preds, truths[crowd], formats)
    similarity.masked_fill_(classes[0][:, None] != classes[1], -math.inf)
    order = by_score(_vector("scores", scores, len(preds)))
    ranked = order.tolist() if max_detections is None else first_of_each(classes[0], order, max_detections)
    unmatched = order.new_full((len(preds),), IGNORED)
    unmatched[ranked] = NEGATIVE
    if area_range is not None:
        object_areas = areas_of(truths, formats[1]) if areas is None else _vector("areas", areas, len(truths))
        ignored = ignored | outside(object_areas, area_range)
        unmatched[outside(areas_of(preds, formats[0]), area_range)] = IGNORED
    missed = torch.where(ignored, IGNORED, NEGATIVE)
    partners = partners_of(similarity, ranked, levels, ignored, second_best)
    reusable = (crowd if second_best else ignored).tolist()
    rows = [find(partners, t, unmatched.tolist(), missed.tolist(), reusable) for t in levels.reshape(-1).tolist()]
    matches = levels.new_tensor([row[0] for row in rows], dtype=torch.int64).reshape(*levels.shape, len(preds))
    found_by = levels.new_tensor([row[1] for row in rows], dtype=torch.int64).reshape(*levels.shape, len(truths))
    return DetectionLabels(matches, found_by, order)


def partners_of(similarity: Tensor, ranked: list[int], levels: Tensor, ignored: Tensor, second_best: bool) -> Partners:
    """List, in order of score, the detections that reach an object at the lowest level, with the objects.

    The objects are in the order in which the detection would take them.
    """
    lowest = levels.min() if levels.numel() else math.inf
    rows, columns = (similarity >= lowest).nonzero(as_tuple=True)
    found: dict[int, list[tuple[int, float]]] = {}
    for i, j, s in zip(rows.tolist(), columns.tolist(), similarity[rows, columns].tolist(), strict=True):
        found.setdefault(i, []).append((j, s))
    last = ignored.tolist()
    if second_best:
        return [(i, sorted(found[i], key=lambda p: (last[p[0]], -p[1], -p[0]))) for i in ranked if i in found]
    return [(i, [max(found[i], key=lambda p: (p[1], -p[0]))]) for i in ranked if i in found]


def find(
    partners: Partners, threshold: float, matches: list[int], found_by: list[int], reusable: list[bool]
) -> tuple[list[int], list[int]]:
    """Let the detections take their objects; given and returned are `matches` and `found_by`."""
    taken = set()
    for i, objects in partners:
        for j, similarity in objects:
            if similarity >= threshold and (j not in taken or reusable[j]):
                taken.add(j)
                matches[i] = IGNORED if found_by[j] == IGNORED else j
                found_by[j] = IGNORED if found_by[j] == IGNORED else i
                break
    return matches, found_by


def first_of_each(classes: Tensor, order: Tensor, count: int) -> list[int]:
    """Return the first detections of each class."""
    seen: Counter[float] = Counter()
    first = []
    for i, label in zip(order.tolist(), classes[order].tolist(), strict=True):
        seen[label] += 1
        if seen[label] <= count:
            first.append(i)
    return first


def share_inside(boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]) -> Tensor:
    """Give the share of each box's area that lies in each of the others."""
    pair = Pair(*corners_of(boxes1[:, None], boxes2, *formats))
    return pair.ratio(area(pair.overlap), area(pair.size1))


def areas_of(boxes: Tensor, fmt: str) -> Tensor:
    """Return the areas; a size that the user gave is taken as it is."""
    low, high = FORMATS[fmt](boxes[:, :2], boxes[:, 2:])
    return area(boxes[:, 2:] if fmt in SIZED else extent(high - low))


def outside(areas: Tensor, area_range: tuple[float, float]) -> Tensor:
    """Tell which areas lie outside the range, whose bounds belong to it."""
    low, high = area_range
    return (areas < low) | (areas > high)


def _on_cpu(pred_boxes: Tensor, true_boxes: Tensor, fmt: str) -> tuple[Tensor, Tensor, tuple[str, str]]:
    preds, truths, formats = prepare(pred_boxes, true_boxes, fmt)
    for name, boxes in (("pred_boxes", preds), ("true_boxes", truths)):
        if boxes.dim() != 2:
            raise ValueError(f"{name} must have the shape (n, 4), got {tuple(boxes.shape)}")
    return preds.double().cpu(), truths.double().cpu(), formats


def _classes(pred: Tensor | None, true: Tensor | None, preds: int, truths: int) -> tuple[Tensor, Tensor]:
    if pred is None and true is None:
        return torch.zeros(preds, device="cpu"), torch.zeros(truths, device="cpu")
    if pred is None or true is None:
        raise ValueError(f"pred_labels and true_labels belong together, got {'pred' if true is None else 'true'} alone")
    return _vector("pred_labels", pred, preds), _vector("true_labels", true, truths)


def _flags(name: str, flags: Tensor | None, count: int) -> Tensor:
    if flags is None:
        return torch.zeros(count, dtype=torch.bool, device="cpu")
    flags = _vector(name, flags, count)
    if flags.dtype != torch.bool:
        raise TypeError(f"{name} must be bool, got {flags.dtype}")
    return flags


def _vector(name: str, values: Tensor, count: int) -> Tensor:
    """Return values, one for each box, on the CPU."""
    if not isinstance(values, Tensor) or values.is_complex():
        raise TypeError(f"{name} must be a real tensor, got {getattr(values, 'dtype', type(values).__name__)}")
    if values.shape != (count,):
        raise ValueError(f"{name} must have the shape ({count},), one for each box, got {tuple(values.shape)}")
    return values.detach().cpu()
