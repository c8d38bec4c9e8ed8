"""The engine's other calls: the best partner of every box, and suppression, without a matrix."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from struct import Struct

import torch
from torch import Tensor

from iou_losses import native
from iou_losses.losses.ciou import ciou
from iou_losses.losses.diou import diou
from iou_losses.losses.giou import giou
from iou_losses.losses.iou import iou
from iou_losses.pairwise import box_iou, complete_box_iou, distance_box_iou, generalized_box_iou

# The similarities that the library knows, by the public functions that a user names them with.
FORMULAS: tuple[tuple[Callable[..., Tensor], Callable[..., Tensor]], ...] = (
    (box_iou, iou),
    (generalized_box_iou, giou),
    (distance_box_iou, diou),
    (complete_box_iou, ciou),
)

# Calls as `csrc/` declares them.
# matrices, rows, columns, boxes1, boxes2, values, indices, formats of boxes1 and boxes2, threads
BEST = Struct("@3q4P3i0q")
# groups, their sizes, boxes, which are kept, format, threshold
SUPPRESS = Struct("@q3Pid")
# groups, their sizes, boxes, scores, picks, their scores, their count, format, gaussian, sigma, threshold, least score
SOFT_SUPPRESS = Struct("@q6P2i3d")


def kernel(job: str, metric: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor) -> native.Kernel | None:
    """Return the function that does the job by this metric, None where torch has to."""
    for known, formula in FORMULAS:
        if metric is known and native.matrix_kernel(formula, boxes1, boxes2) is not None:
            return native.entry_point(f"{formula.__name__}_{job}", boxes1.dtype)
    return None


def best(kernel: native.Kernel, boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Give the greatest similarity of each of `boxes1` to one of `boxes2`, and which it is."""
    boxes1, boxes2 = native.side_by_side(boxes1, boxes2)
    *leading, rows, _ = boxes1.shape
    columns = boxes2.shape[-2]
    values = boxes1.new_empty(*leading, rows)
    indices = boxes1.new_empty(*leading, rows, dtype=torch.int64)
    kernel(
        BEST.pack(
            math.prod(leading),
            rows,
            columns,
            boxes1.data_ptr(),
            boxes2.data_ptr(),
            values.data_ptr(),
            indices.data_ptr(),
            native.FORMAT_CODES[formats[0]],
            native.FORMAT_CODES[formats[1]],
            native.threads_for(values.numel() * columns),
        )
    )
    return values, indices


def suppress(kernel: native.Kernel, boxes: Tensor, counts: Tensor, fmt: str, threshold: float) -> Tensor:
    """Tell which boxes are kept. `counts` are the sizes of the groups, whose boxes are in order of their scores."""
    boxes, counts = _grouped(boxes, counts)
    keep = boxes.new_empty(len(boxes), dtype=torch.bool)
    groups = (len(counts), counts.data_ptr(), boxes.data_ptr())
    kernel(SUPPRESS.pack(*groups, keep.data_ptr(), native.FORMAT_CODES[fmt], threshold))
    return keep


def soft_suppress(
    kernel: native.Kernel,
    boxes: Tensor,
    counts: Tensor,
    fmt: str,
    fading: tuple[bool, float, float],
    scores: Tensor,
    least: float,
) -> tuple[Tensor, Tensor]:
    """Give the boxes that are picked, group by group, and their scores.

    `fading` says whether it is Gaussian, its sigma and its threshold.
    """
    boxes, counts = _grouped(boxes, counts)
    if scores.shape != boxes.shape[:1]:
        raise ValueError(f"scores must have the shape {tuple(boxes.shape[:1])}, got {tuple(scores.shape)}")
    scores = _memory_of(scores, boxes.dtype)  # the library uses them up
    order = boxes.new_empty(len(boxes), dtype=torch.int64)
    picked = torch.empty_like(scores)
    picks = ctypes.c_int64(0)
    groups = (len(counts), counts.data_ptr(), boxes.data_ptr())
    results = (scores.data_ptr(), order.data_ptr(), picked.data_ptr(), ctypes.addressof(picks))
    kernel(SOFT_SUPPRESS.pack(*groups, *results, native.FORMAT_CODES[fmt], *fading, least))
    return order[: picks.value], picked[: picks.value]


def _grouped(boxes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as the library reads them; it trusts the counts."""
    counts = _memory_of(counts, torch.int64)
    if counts.dim() != 1 or bool((counts < 0).any()) or boxes.shape != (int(counts.sum()), 4):
        raise ValueError(f"counts must be the sizes of groups of boxes {tuple(boxes.shape)}, got {counts.tolist()}")
    return native.readable(boxes), counts


def _memory_of(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Copy to memory of our own: nobody has checked that these are plain CPU tensors, as boxes are."""
    return torch.empty(values.shape, dtype=dtype, device="cpu").copy_(values)
