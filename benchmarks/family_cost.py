"""Measure what each loss costs beside IoU, and write it into the table of docs/losses.md.

    python benchmarks/family_cost.py                   # about two minutes; let nothing else run meanwhile
    python benchmarks/family_cost.py --cpu-time        # for a machine that is busy, too
    python benchmarks/family_cost.py --print-only      # leave the file as it is

Forward and backward of 1,024 float32 boxes, on one thread: the minimum over blocks of about 5 ms in which all losses
take turns. The first cell of a row of the table has the loss as Python builds it, so a new row needs nothing here.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from time import perf_counter, thread_time

import torch
from contenders import boxes, engine_off, has_engine, predictions
from jobs import FAMILY_COUNT, Table
from losses_table import DOCUMENT, ROW, TABLE, built
from measure import Contender, Stopwatch
from report import described, machine, show
from rich.console import Console
from torch import Tensor

Costs = dict[str, tuple[str, str]]


def step(loss: Callable[..., Tensor], pred: Tensor, target: Tensor) -> None:
    """Compute a loss and its gradient."""
    pred.grad = None
    loss(pred, target, reduction_override="sum").backward()


def measured(losses: list[str], watch: Stopwatch) -> Costs:
    """Return for each loss how many times as long as IoU it takes, by the engine and by the formula in torch."""
    target = boxes(FAMILY_COUNT, "cpu")
    calls = {loss: partial(step, built(loss), predictions(target), target) for loss in losses}
    ways = {"engine": nullcontext, "formula": engine_off} if has_engine("cpu") else {"formula": engine_off}
    seconds = watch.fastest([Contender((loss, way), call, ways[way]) for way in ways for loss, call in calls.items()])

    def cost(loss: str, way: str) -> str:
        return f"{seconds[loss, way] / seconds['IoULoss()', way]:.1f}" if way in ways else "-"

    return {loss: (cost(loss, "engine"), cost(loss, "formula")) for loss in losses}


def filled(table: str, costs: Costs, note: str) -> str:
    """Return the table with the costs in the last two cells of its rows, and the note below it."""
    rows = [line for line in table.splitlines() if line.startswith("|")]
    lines = ROW.sub(lambda row: f"{row['facts']} {' | '.join(costs[row['loss']])} |", "\n".join(rows))
    return f"\n{lines}\n\n{note}\n\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each measurement (default: %(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time")
    parser.add_argument("--print-only", action="store_true", help="do not write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    document = DOCUMENT.read_text(encoding="utf-8")
    (table,) = TABLE.findall(document)
    watch = Stopwatch(options.seconds, clock=thread_time if options.cpu_time else perf_counter)
    costs = measured([row["loss"] for row in ROW.finditer(table)], watch)
    name = described(machine("cpu"))
    records = [{"loss": loss, "engine": engine, "formula": formula} for loss, (engine, formula) in costs.items()]
    show(Table("Cost relative to IoU", records, name), Console(width=None if sys.stdout.isatty() else 150))
    if not options.print_only:
        note = f"Costs by `{shlex.join(['python', 'benchmarks/family_cost.py', *sys.argv[1:]])}` on {name}."
        DOCUMENT.write_text(TABLE.sub(lambda _: filled(table, costs, note), document), encoding="utf-8")


if __name__ == "__main__":
    main()
