"""Averages over all processes of a training, for losses that are divided by a number of boxes."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def global_average(count: float | Tensor) -> Tensor:
    """Give the average number of boxes per process, at least 1: what a DETR-style loss is divided by.

    DDP averages gradients over the processes. A loss that each process sums over its own boxes and
    divides by this average therefore has the gradient of one process that has all boxes and divides
    by their number, also where some processes have none.

    Args:
        count: the number of boxes of this process, a number or a tensor with one element. A number
            is brought to the current GPU where the process group is NCCL's.

    Returns:
        The average as a float32 tensor of shape (), on the device of `count`, without a gradient; a
        new tensor. Nothing waits for the device. It can be a loss's `avg_factor`. Without a process
        group it is the number of this process.

    Raises:
        ValueError: for a tensor with more than one element, or none.

    Limits:
        Where all processes together have fewer boxes than there are processes, the average is
        raised to 1, as in DETR, and the gradient is smaller than that of one process.

    Example:
        >>> import torch
        >>> from iou_losses import GIoULoss
        >>> from iou_losses.distributed import global_average
        >>> global_average(0)
        tensor(1.)
        >>> pred, target = torch.tensor([[3.0, 0, 4, 1]] * 2), torch.tensor([[0.0, 0, 1, 1]] * 2)
        >>> GIoULoss()(pred, target, avg_factor=global_average(len(pred)))
        tensor(1.5000)
    """
    together = distributed.is_available() and distributed.is_initialized()
    if isinstance(count, Tensor):
        if count.numel() != 1:
            raise ValueError(f"count must be a number or a tensor with one element, got shape {tuple(count.shape)}")
        average = count.detach().reshape(()).to(torch.float32, copy=True)
    else:
        on_gpu = together and distributed.get_backend() == "nccl"
        average = torch.tensor(float(count), dtype=torch.float32, device="cuda" if on_gpu else "cpu")
    if together:
        distributed.all_reduce(average)
        average /= distributed.get_world_size()
    return average.clamp_(min=1)
