"""Clocks and counters: the fastest of many alternating blocks, operators, launches, waits, peak memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Call = Callable[[], object]

BLOCK = 0.005  # seconds
MIN_ROUNDS = 5


class Contender(NamedTuple):
    """A call to be timed, the name of its result, and the context that its blocks run in."""

    name: Hashable
    call: Call
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext


class Stopwatch(NamedTuple):
    """How calls are timed.

    Args:
        seconds: time to spend on each contender, in at least `MIN_ROUNDS` blocks.
        device: `"cpu"` or `"cuda"`, whose work is waited for.
        clock: `perf_counter`, or `thread_time` on a machine that is busy with other things, too.
    """

    seconds: float
    device: str = "cpu"
    clock: Callable[[], float] = perf_counter

    def fastest(self, contenders: Sequence[Contender]) -> dict[Hashable, float]:
        """Return the seconds that a call of each takes: the minimum over blocks of about 5 ms that alternate.

        Whatever disturbs the machine then disturbs all of them alike, and the minimum hardly at all.
        """
        calls = {contender.name: self.calls_per_block(contender) for contender in contenders}
        best = dict.fromkeys(calls, float("inf"))
        gc.collect()
        gc.disable()
        try:
            rounds, end = 0, perf_counter() + self.seconds * len(contenders)
            while rounds < MIN_ROUNDS or perf_counter() < end:
                for contender in contenders:
                    best[contender.name] = min(best[contender.name], self.block(contender, calls[contender.name]))
                rounds += 1
        finally:
            gc.enable()
        return best

    def block(self, contender: Contender, calls: int) -> float:
        """Return the seconds per call of so many calls in a row."""
        wait = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        with contender.setting():
            wait()
            start = self.clock()
            for _ in repeat(None, calls):
                contender.call()
            wait()
            return (self.clock() - start) / calls

    def calls_per_block(self, contender: Contender) -> int:
        """Return how many calls fill a block, after the first ones, which compile and allocate."""
        self.block(contender, 3)
        calls = 1
        while (taken := self.block(contender, calls) * calls) < BLOCK / 2:
            calls *= 2
        return max(1, round(calls * BLOCK / taken))


class OperatorCounter(TorchDispatchMode):
    """Counts the operators that are launched while it is entered, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the operator and run it."""
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operators(call: Call) -> int:
    """Return how many operators a call launches, views aside. The native engine leaves such a call to torch."""
    call()
    with OperatorCounter() as counter:
        call()
    return counter.count


def launches(call: Call) -> int:
    """Return how many kernels a call launches on the GPU."""
    call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    return sum(event.count for event in profile.key_averages() if "LaunchKernel" in event.key)


def waits_for_device(call: Call) -> bool:
    """Tell whether a call makes the host wait for the GPU, by torch's own detector."""
    call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def peak_on_cuda(call: Call) -> int:
    """Return by how many bytes a call raises the memory allocated on the GPU while it runs, its result included."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    peak = torch.cuda.max_memory_allocated()
    del result
    return peak - before


def peak_resident(call: Call) -> int:
    """Return by how many bytes a call raises the process's resident memory, its result included. Linux.

    The kernel's own high-water mark sees every allocator. Run it where freed memory goes back to
    the system at once (`MALLOC_MMAP_THRESHOLD_`), lest the call find memory that is resident already.
    """
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the mark starts again from the present size
    before = status("VmRSS")
    result = call()
    peak = status("VmHWM")
    del result
    return peak - before


def status(field: str) -> int:
    """Return a size in bytes from the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
