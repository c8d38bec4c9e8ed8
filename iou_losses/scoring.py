"""Scoring: which boxes count as correct."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from iou_losses.pairwise import paired_iou

# The ten thresholds that COCO's mAP is averaged over.
COCO_THRESHOLDS = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)


def is_correct(iou: Tensor, threshold: float | Sequence[float] | Tensor = 0.5) -> Tensor:
    """Tell which IoUs reach the threshold; an IoU of exactly the threshold does.

    Args:
        iou: similarities of any shape, floating.
        threshold: a number, or numbers that broadcast against `iou`.

    Returns:
        bool, of the broadcast shape. NaN is not correct.

    Raises:
        TypeError: for similarities that are not a floating tensor.

    Example:
        >>> import torch
        >>> from iou_losses import is_correct
        >>> is_correct(torch.tensor([0.5, 0.6, 0.25]))
        tensor([ True,  True, False])
    """
    if not isinstance(iou, Tensor) or not iou.is_floating_point():
        raise TypeError(f"iou must be a floating tensor, got {getattr(iou, 'dtype', type(iou).__name__)}")
    # In the dtype of the IoU: float32's 0.7 lies below float64's and would miss its own threshold.
    return iou >= torch.as_tensor(threshold, dtype=iou.dtype, device=iou.device)


def detection_accuracy(
    pred: Tensor, target: Tensor, thresholds: float | Sequence[float] | Tensor = 0.5, fmt: str = "xyxy"
) -> Tensor:
    """Give the share of paired boxes that are correct, for each threshold.

    Args:
        pred, target: boxes of the same shape (..., 4).
        thresholds: a number, or a sequence such as `COCO_THRESHOLDS`.
        fmt: format of both, see `iou_loss`.

    Returns:
        Shares in [0, 1], of the shape of `thresholds`: () for a number. Without boxes NaN, since
        nothing was right or wrong; `torch.nanmean` averages over images and leaves such out.

    Raises:
        TypeError, ValueError: as `paired_iou`.

    Example:
        >>> import torch
        >>> from iou_losses import detection_accuracy
        >>> truth = torch.tensor([[0.0, 0, 100, 100]]).expand(5, 4)
        >>> pred = truth + torch.tensor([0.0, 10, 25, 50, 100])[:, None] * torch.tensor([1.0, 0, 1, 0])
        >>> detection_accuracy(pred, truth, (0.5, 0.75))
        tensor([0.6000, 0.4000])
    """
    iou = paired_iou(pred, target, fmt)
    thresholds = torch.as_tensor(thresholds, dtype=iou.dtype, device=iou.device)
    correct = is_correct(iou.reshape(-1, *[1] * thresholds.dim()), thresholds)
    return correct.to(iou.dtype).mean(0)
