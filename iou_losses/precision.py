"""From detections that are right or wrong to the curve of precision over recall, and its average."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from iou_losses.core import one_of
from iou_losses.metric import by_score

# The number of recall levels from 0 to 1, None for the area under the curve.
INTERPOLATIONS: dict[str, int | None] = {"coco": 101, "voc07": 11, "voc": None}


@torch.no_grad()
def precision_recall(
    scores: Tensor, correct: Tensor, positives: int | Tensor, ignored: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Give precision and recall after each detection, in order of their scores.

    Args:
        scores: shape (N,), of the detections of a whole data set. Of equals the first counts first; NaN
            counts as -infinity.
        correct: bool, shape (..., N): which are true positives, for each threshold for example.
        positives: the number of objects there are to find: a number, or a tensor of shape (...).
        ignored: bool, shape (..., N): which count neither way; they repeat the point before them.

    Returns:
        precision, recall: float64, shape (..., N). Before anything counts the precision is 0;
        where there is nothing to find the recall is NaN.

    Raises:
        TypeError: for `correct` or `ignored` that is not bool.
        ValueError: for shapes that do not fit.

    Example:
        >>> import torch
        >>> from iou_losses import precision_recall
        >>> precision, recall = precision_recall(torch.tensor([0.7, 0.9, 0.8]), torch.tensor([True, True, False]), 4)
        >>> precision
        tensor([1.0000, 0.5000, 0.6667], dtype=torch.float64)
        >>> recall
        tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    """
    ignored = torch.zeros_like(correct) if ignored is None else ignored
    for name, flags in (("correct", correct), ("ignored", ignored)):
        if flags.dtype != torch.bool:
            raise TypeError(f"{name} must be bool, got {flags.dtype}")
        if scores.dim() != 1 or flags.shape[-1:] != scores.shape or flags.shape != correct.shape:
            raise ValueError(
                f"scores must have the shape (N,), correct and ignored (..., N), got {tuple(scores.shape)}, "
                f"{tuple(correct.shape)} and {tuple(ignored.shape)}"
            )
    order = by_score(scores)
    counted = (~ignored)[..., order].double()
    right = (counted * correct[..., order]).cumsum(-1)
    positives = torch.as_tensor(positives, dtype=torch.float64, device=scores.device)
    return right / counted.cumsum(-1).clamp(min=1), right / positives[..., None]


@torch.no_grad()
def average_precision(precision: Tensor, recall: Tensor, interpolation: str = "coco") -> Tensor:
    """Average the precision over the recall.

    The precision at a recall is the greatest that is reached there or at a higher recall, 0 where no
    such recall is reached.

    Args:
        precision, recall: floating, shape (..., N), as `precision_recall` gives them.
        interpolation: `"coco"`: the mean at 101 recalls 0, 0.01, ..., 1; `"voc07"`: at the 11 recalls 0, 0.1, ..., 1,
            VOC until 2009; `"voc"`: the area under the curve, VOC since 2010. The recalls are
            the products `k * 0.01` and `k * 0.1` in float64, as in the reference implementations.

    Returns:
        The average precision, shape (...), dtype of the precision; NaN where the recall is, 0
        without detections.

    Raises:
        ValueError: for an unknown interpolation, for shapes that differ.

    Example:
        >>> import torch
        >>> from iou_losses import average_precision
        >>> precision, recall = torch.tensor([1.0, 0.5, 0.6667]), torch.tensor([0.25, 0.25, 0.5])
        >>> [round(average_precision(precision, recall, rule).item(), 4) for rule in ("coco", "voc07", "voc")]
        [0.4225, 0.4546, 0.4167]
    """
    points = one_of("interpolation", interpolation, INTERPOLATIONS)
    if precision.shape != recall.shape or not precision.dim():
        raise ValueError(
            "precision and recall must have the same shape (..., N), "
            f"got {tuple(precision.shape)} and {tuple(recall.shape)}"
        )
    if not precision.shape[-1]:
        return precision.new_zeros(precision.shape[:-1])
    envelope = precision.flip(-1).cummax(-1).values.flip(-1)
    if points is None:
        steps = torch.diff(recall, dim=-1, prepend=torch.zeros_like(recall[..., :1]))
        return (steps * envelope).sum(-1)
    levels = torch.arange(points, dtype=recall.dtype, device=recall.device) * (1 / (points - 1))
    reached = torch.searchsorted(recall.contiguous(), levels.expand(*recall.shape[:-1], points).contiguous())
    beyond = reached == recall.shape[-1]
    values = envelope.gather(-1, reached.masked_fill(beyond, 0)).masked_fill(beyond, 0)
    return values.mean(-1).masked_fill(recall.isnan().any(-1), math.nan)
