"""One-to-one assignment: every object takes one prediction, at the lowest total cost."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from iou_losses.core import prepare
from iou_losses.matching import NEGATIVE, check_mask
from iou_losses.metric import Metric, in_one_format, similarities
from iou_losses.pairwise import check_leading, generalized_box_iou


@torch.no_grad()
def matching_cost(
    true_boxes: Tensor,
    pred_boxes: Tensor,
    true_labels: Tensor | None = None,
    class_scores: Tensor | None = None,
    *,
    metric: Metric = generalized_box_iou,
    box_weight: float = 2.0,
    class_weight: float = 1.0,
    fmt: str = "xyxy",
) -> Tensor:
    """Give what it costs that a prediction stands for an object: little where box and class fit.

    The cost is `-box_weight * similarity - class_weight * score`, where the score is the
    prediction's for the object's class. DETR adds five times the L1 distance of normalised boxes:
    `cost + 5 * torch.cdist(true_boxes, pred_boxes, p=1)`.

    Args:
        true_boxes: objects of shape (..., M, 4), floating or integer.
        pred_boxes: predictions of shape (..., N, 4).
        true_labels: int64, shape (..., M), in [0, C), of padding objects too. Without labels
            and scores the boxes alone count.
        class_scores: floating, shape (..., N, C), probabilities as a rule.
        metric: a function `(boxes1, boxes2, fmt=)` to similarities (..., N, M).
        box_weight, class_weight: weights; the defaults are DETR's.
        fmt: format of both boxes, see `iou_loss`.

    Returns:
        The costs, shape (..., M, N), for `assign`; without gradient.

    Raises:
        TypeError, ValueError: as `box_iou`; ValueError for labels without scores or scores
            without labels, and for shapes that do not fit the boxes.

    Reference:
        Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020, arXiv:2005.12872.

    Example:
        >>> import torch
        >>> from iou_losses import matching_cost
        >>> boxes = torch.tensor([[0.0, 0, 4, 4], [5, 5, 9, 9]])
        >>> scores = torch.tensor([[0.1, 0.9], [0.5, 0.5]])
        >>> matching_cost(boxes[:1], boxes, torch.tensor([1]), scores)
        tensor([[-2.9000,  0.7099]])
    """
    true_boxes, pred_boxes, formats = prepare(true_boxes, pred_boxes, fmt)
    check_leading(true_boxes.shape, pred_boxes.shape)
    cost = -box_weight * similarities(metric, *in_one_format(true_boxes, pred_boxes, formats))
    if (true_labels is None) != (class_scores is None):
        given = "true_labels" if class_scores is None else "class_scores"
        raise ValueError(f"true_labels and class_scores belong together, got {given} alone")
    if true_labels is None or class_scores is None:
        return cost
    if true_labels.shape != true_boxes.shape[:-1] or class_scores.shape[:-1] != pred_boxes.shape[:-1]:
        raise ValueError(
            f"true_labels {tuple(true_labels.shape)} and class_scores {tuple(class_scores.shape)} must have the shapes "
            f"{tuple(true_boxes.shape[:-1])} and ({', '.join(map(str, pred_boxes.shape[:-1]))}, C)"
        )
    scores = class_scores.transpose(-1, -2).to(cost.dtype)  # (..., C, N)
    classes = true_labels.long()[..., None].expand(*true_labels.shape, scores.shape[-1])
    return cost - class_weight * scores.gather(-2, classes)


@torch.no_grad()
def assign(cost: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Assign each object one prediction and each prediction at most one object, at the lowest total cost.

    Needs scipy, whose `linear_sum_assignment` solves it on the CPU: a GPU is waited for.

    Args:
        cost: shape (..., M, N), of M objects and N predictions, real. A cost that is NaN or infinite
            forbids its pair: such pairs are left apart, even if other pairs become dearer.
        mask: bool, shape (..., M): which objects are real, where a batch is padded.

    Returns:
        int64, shape (..., N), on the device of `cost`: the index of the object, or -1. Where M
        exceeds N, the objects that cost the most are left out.

    Raises:
        ImportError: where scipy is missing.
        TypeError: for costs that are no real tensor, a mask that is not bool.
        ValueError: for other shapes.

    Reference:
        Crouse, "On implementing 2D rectangular assignment algorithms", IEEE TAES 2016 (scipy's).

    Example:
        >>> import torch
        >>> from iou_losses import assign
        >>> assign(torch.tensor([[1.0, 2.0, 9.0], [1.5, 9.0, 9.0]]))  # 2 + 1.5, rather than 1 + 9
        tensor([ 1,  0, -1])
    """
    if not isinstance(cost, Tensor) or cost.is_complex() or cost.dtype == torch.bool:
        raise TypeError(f"cost must be a real tensor, got {getattr(cost, 'dtype', type(cost))}")
    if cost.dim() < 2:
        raise ValueError(f"cost must have the shape (..., M, N), got {tuple(cost.shape)}")
    check_mask(mask, cost.shape[:-1])
    allowed = cost.isfinite() if mask is None else cost.isfinite() & mask[..., None]
    matrices = cost.double().cpu().flatten(0, -3) if cost.dim() > 2 else cost.double().cpu()[None]
    allowed = allowed.cpu().reshape(matrices.shape)
    solve = _solver()
    assigned = [_assign_one(solve, one, may) for one, may in zip(matrices, allowed, strict=True)]
    shape = (*cost.shape[:-2], cost.shape[-1])
    return (
        torch.stack(assigned).reshape(shape).to(cost.device) if assigned else cost.new_empty(shape, dtype=torch.int64)
    )


def _assign_one(solve: Any, cost: Tensor, allowed: Tensor) -> Tensor:
    result = cost.new_full(cost.shape[-1:], NEGATIVE, dtype=torch.int64)
    if not allowed.any():
        return result
    # Dearer than any choice of allowed pairs, so that forbidden ones are chosen as rarely as can be.
    values = cost[allowed]
    forbidden = values.max() + (values.max() - values.min() + 1) * min(cost.shape)
    rows, columns = map(torch.from_numpy, solve(cost.where(allowed, forbidden).numpy()))
    taken = allowed[rows, columns]
    result[columns[taken]] = rows[taken]
    return result


def _solver() -> Any:
    try:
        return importlib.import_module("scipy.optimize").linear_sum_assignment
    except ImportError as error:
        raise ImportError("assign needs scipy: pip install scipy") from error
