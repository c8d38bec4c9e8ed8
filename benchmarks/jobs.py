"""The parts of the benchmark: each gives a table, or None on a device that it is not for.

A new part is one more function in `JOBS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from contenders import (
    PAIRED,
    PAIRWISE,
    bare_copy,
    boxes,
    engine_off,
    has_engine,
    kernel,
    our_loss,
    paired,
    pairwise,
    predictions,
    step,
)
from measure import Contender, Stopwatch, launches, operators, peak_on_cuda, peak_resident, waits_for_device

Record = dict[str, Any]

SHAPES = ((300, 20), (8_400, 50))
MEMORY_SHAPE = (8_400, 250)  # a result of 8.4 MB: pages and small buffers hardly count
FAMILY_COUNT = 1_024
KERNEL_COUNT = 16_384


class Plan(NamedTuple):
    """What the command line asks for."""

    watch: Stopwatch
    threads: int
    sizes: tuple[int, ...]
    losses: tuple[str, ...]
    compile: bool

    @property
    def device(self) -> str:
        """Where the boxes are."""
        return self.watch.device


class Table(NamedTuple):
    """The records of a job, and what to know about them."""

    title: str
    records: list[Record]
    note: str


def timings(
    call: str, size: str, count: int, unit: str, moved: int, contenders: Sequence[Contender], plan: Plan
) -> list[Record]:
    """Time who computes one thing against each other, and against a bare copy of as many bytes."""
    seconds = plan.watch.fastest([*contenders, bare_copy(moved, plan.device)])
    limit = seconds.pop("bare copy")
    return [
        {
            "call": call,
            "boxes": size,
            "by": name,
            "microseconds": taken * 1e6,
            f"ns per {unit}": taken / count * 1e9,
            "bytes moved": moved,
            "GB/s": moved / taken / 1e9,
            "times torchvision": seconds["torchvision"] / taken,
            "copy microseconds": limit * 1e6,
        }
        for name, taken in seconds.items()
    ]


def paired_job(plan: Plan) -> Table:
    """Forward and backward of the losses that torchvision has too."""
    records = []
    for name in (name for name in PAIRED if name in plan.losses):
        for count in plan.sizes:
            contenders = paired(name, count, plan.device, plan.compile)
            moved = 3 * 16 * count  # two boxes are read and a gradient is written, four floats each
            records += timings(name, f"{count:,}", count, "box", moved, contenders, plan)
    note = "Sum over N float32 boxes and its gradient. Bytes moved: both boxes are read, the gradient is written."
    return Table("Forward and backward", records, note)


def pairwise_job(plan: Plan) -> Table:
    """The matrices."""
    records = []
    for name in PAIRWISE:
        for rows, columns in SHAPES:
            contenders = pairwise(name, rows, columns, plan.device, plan.compile)
            moved = 16 * (rows + columns) + 4 * rows * columns
            size = f"{rows:,} x {columns:,}"
            records += timings(name, size, rows * columns, "pair", moved, contenders, plan)
    return Table("Matrices", records, "Without gradients. Bytes moved: the boxes are read, the matrix is written.")


def memory_job(plan: Plan) -> Table | None:
    """Peak memory of the matrices: on a CPU in a process of its own, whose memory nothing else has touched."""
    if plan.device == "cuda":
        records = memory_records(plan.device)
    elif sys.platform == "linux":
        records = records_of(__file__, str(plan.threads))
    else:
        return None
    note = "Rise of the peak while the matrix is computed, the matrix included, per byte of the matrix."
    return Table(f"Peak memory, {MEMORY_SHAPE[0]:,} x {MEMORY_SHAPE[1]:,}", records, note)


def records_of(script: str, *arguments: str) -> list[Record]:
    """Let a new process measure its memory, and read what it prints."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed is gone at once
    command = [sys.executable, script, *arguments]
    records: list[Record] = json.loads(
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    )
    return records


def memory_records(device: str) -> list[Record]:
    """Measure the peak of each matrix once, after a small one that loads what is loaded once."""
    peak_of = peak_on_cuda if device == "cuda" else peak_resident
    result = 4 * MEMORY_SHAPE[0] * MEMORY_SHAPE[1]
    records = []
    for name in PAIRWISE:
        record: Record = {"call": name, "result, bytes": result}
        small, large = (pairwise(name, *shape, device, compile=False) for shape in ((64, 64), MEMORY_SHAPE))
        for warm_up, contender in zip(small, large, strict=True):
            with contender.setting():
                warm_up.call()
                peak = peak_of(contender.call)
            if peak < 0.95 * result:
                raise RuntimeError(f"{name} found room for its result in memory that was freed before: {peak} bytes")
            record[contender.name] = peak / result
        records.append(record)
    return records


def operators_job(plan: Plan) -> Table:
    """Operators that a loss and its backward launch."""
    target = boxes(64, plan.device)
    pred = predictions(target)
    records = []
    for name in plan.losses:
        record: Record = {"loss": name, "ours, formula": operators(step(our_loss(name), pred, target))}
        if name in PAIRED:
            theirs = {c.name: c for c in paired(name, 64, plan.device, compile=False)}["torchvision"]
            record["torchvision"] = operators(theirs.call)
        records.append(record)
    note = "Forward and backward with the engine off, views aside: each is a launch on a GPU in eager mode."
    return Table("Operators launched", records, note)


def launches_job(plan: Plan) -> Table | None:
    """Kernels that a loss and its backward launch on the GPU, and whether the host waits for it."""
    if plan.device != "cuda":
        return None
    records = [
        {
            "call": name,
            "by": contender.name,
            "launches": launches(contender.call),
            "host waits": waits_for_device(contender.call),
        }
        for name in (name for name in PAIRED if name in plan.losses)
        for contender in paired(name, 1_024, plan.device, plan.compile)
    ]
    note = "Forward and backward, counted by torch's profiler; waits are found by its sync debug mode."
    return Table("Launches", records, note)


def kernel_job(plan: Plan) -> Table | None:
    """The kernels of the engine alone, without what torch adds."""
    if not has_engine(plan.device):
        return None
    calls = {(name, key): call for name in plan.losses for key, call in kernel(name, KERNEL_COUNT).items()}
    seconds = plan.watch.fastest([Contender(key, call) for key, call in calls.items()])
    records: dict[str, Record] = {}
    for (name, key), taken in seconds.items():
        records.setdefault(name, {"loss": name})[f"{key}, ns per box"] = taken / KERNEL_COUNT * 1e9
    return Table("Kernel alone", list(records.values()), f"{KERNEL_COUNT:,} boxes, between buffers that are there.")


def family_job(plan: Plan) -> Table:
    """Forward and backward of every loss, beside those of IoU and CIoU."""
    target = boxes(FAMILY_COUNT, plan.device)
    arrange = partial(step, pred=predictions(target), target=target)
    engines = {"ours, native": nullcontext} if has_engine(plan.device) else {}
    engines["ours, formula"] = engine_off
    names = dict.fromkeys((*plan.losses, "iou_loss", "ciou_loss"))
    calls = [Contender((n, by), arrange(our_loss(n)), setting) for by, setting in engines.items() for n in names]
    seconds = plan.watch.fastest(calls)
    records = []
    for name in plan.losses:
        record: Record = {"loss": name}
        for by in engines:
            taken = seconds[name, by]
            record[f"{by}, microseconds"] = taken * 1e6
            record[f"{by}, times IoU"] = taken / seconds["iou_loss", by]
            record[f"{by}, times CIoU"] = taken / seconds["ciou_loss", by]
        records.append(record)
    return Table("Every loss", records, f"Forward and backward of {FAMILY_COUNT:,} boxes.")


JOBS: dict[str, Callable[[Plan], Table | None]] = {
    "paired": paired_job,
    "pairwise": pairwise_job,
    "memory": memory_job,
    "kernel": kernel_job,
    "operators": operators_job,
    "launches": launches_job,
    "family": family_job,
}

if __name__ == "__main__":  # the process of memory_job
    torch.set_num_threads(int(sys.argv[1]))
    json.dump(memory_records("cpu"), sys.stdout)
