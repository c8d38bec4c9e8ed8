"""Memory and time of DETR's box term: the N x N matrix of transformers against the N matched pairs.

python tests/integrations/matched_pairs.py                # 800, 1,600 and 6,400 pairs; Linux; the matrix takes 3 GB
python tests/integrations/matched_pairs.py 100 1000
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ["HF_HUB_OFFLINE"] = "true"

import torch
from torch import Tensor
from transformers.loss.loss_for_object_detection import ImageLoss

from iou_losses import GIoULoss
from iou_losses.integrations.box_term import BoxTerm
from iou_losses.integrations.changed import change
from iou_losses.integrations.transformers import DetrBoxLoss

PAIRS = (800, 1600, 6400)


class Cost(NamedTuple):
    """What loss and gradient take: the rise of the peak memory of a process of its own, and the fastest run."""

    megabytes: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.megabytes:8.1f} MB {self.seconds * 1e3:10.2f} ms"


def box_term(pairs: int, with_pairs: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Give a call of transformers' criterion for one batch of matched pairs, with its own matrix or with pairs."""
    criterion = ImageLoss(matcher=None, num_classes=3, eos_coef=0.1, losses=["boxes"])
    if with_pairs:
        change(criterion, DetrBoxLoss, BoxTerm(GIoULoss(fmt="cxcywh"), ("cxcywh",)))
    boxes = torch.rand(2, pairs, 4, generator=torch.Generator().manual_seed(0)) * 0.3 + 0.2
    indices = [(torch.arange(pairs), torch.arange(pairs))]

    def loss_and_gradient(pred: Tensor = boxes[0], true: Tensor = boxes[1]) -> tuple[Tensor, Tensor]:
        pred = pred.clone().requires_grad_()
        losses = criterion.loss_boxes({"pred_boxes": pred[None]}, [{"boxes": true}], indices, float(pairs))
        losses["loss_giou"].backward()
        return losses["loss_giou"].detach(), pred.grad

    return loss_and_gradient


def peak() -> float:
    """The largest memory that this process ever had, in megabytes."""
    status = Path("/proc/self/status").read_text()  # getrusage counts the memory of a parent that was larger
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure_here(pairs: int, with_pairs: bool) -> Cost:
    """Measure in this process, which must be a new one."""
    torch.set_num_threads(1)
    box_term(2, with_pairs)()
    call = box_term(pairs, with_pairs)
    before, times = peak(), []
    for _ in range(50 if with_pairs else max(1, 3200 // pairs)):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return Cost(peak() - before, min(times))


def measure(pairs: int, with_pairs: bool) -> Cost:
    """Measure in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure_here, (pairs, with_pairs))


def main() -> None:
    """Print one line for each number of pairs."""
    print("matched pairs   N x N matrix                 pairs alone")
    for pairs in map(int, sys.argv[1:] or PAIRS):
        print(f"{pairs:13,}   {measure(pairs, False)}   {measure(pairs, True)}", flush=True)


if __name__ == "__main__":
    main()
