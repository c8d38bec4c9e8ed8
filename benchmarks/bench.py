"""Time the losses and matrices against torchvision and against the memory's own speed.

    python benchmarks/bench.py --quick                          # less than 20 seconds
    python benchmarks/bench.py --markdown README.md             # some minutes; renews the README's tables
    python benchmarks/bench.py --jobs paired,kernel --losses ciou_loss,giou_loss --threads 2
    python benchmarks/bench.py --device cuda --json gpu.json --plot gpu.png

Times are the minimum over blocks of about 5 ms in which all contenders take turns, in one process
and on one thread unless `--threads` says otherwise. Let nothing else run meanwhile, or take `--cpu-time`.
It needs torchvision, rich and matplotlib; fvcore and ultralytics take part where they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from time import perf_counter, thread_time

import torch
from contenders import PAIRED, all_losses
from four_jobs import FOUR_JOBS
from jobs import JOBS as LOSS_JOBS
from jobs import Plan, Table
from measure import Stopwatch
from report import between_markers, described, machine, markdown, plot, show
from rich.console import Console

JOBS = {**LOSS_JOBS, **FOUR_JOBS}
SIZES = (64, 1_024, 16_384, 1_048_576)
QUICK_SIZES = SIZES[:-1]
SECONDS, QUICK_SECONDS = 0.8, 0.02  # for each measurement
WIDTH = 150  # of the tables where there is no terminal


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no torch.compile, at most 16,384 boxes, fewer blocks")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the boxes are")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of torch and of the engine")
    parser.add_argument("--jobs", type=names, default=list(JOBS), metavar="A,B", help=f"of {', '.join(JOBS)}")
    parser.add_argument(
        "--losses", type=names, metavar="A,B", help="such as ciou_loss, or all, the default without --quick"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"time for each (default: {SECONDS})")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time: for a machine that is busy, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw ns per box against the number of boxes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="renew the tables between this file's markers")
    options = parser.parse_args()
    try:
        check(options)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return options


def names(text: str) -> list[str]:
    """Split a list of names."""
    return text.split(",")


def check(options: argparse.Namespace) -> None:
    """Complete the options; raise a `ValueError` for what would fail after minutes."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU that torch can use, and torch.cuda.is_available() is False")
    if options.cpu_time and (options.threads > 1 or options.device == "cuda"):
        raise ValueError("--cpu-time counts one thread: not with --threads or --device cuda")
    losses = all_losses()
    options.losses = options.losses or (["iou_loss", *PAIRED] if options.quick else ["all"])
    options.losses = losses if options.losses == ["all"] else options.losses
    for chosen, known in ((options.jobs, JOBS), (options.losses, losses)):
        if unknown := [name for name in chosen if name not in known]:
            raise ValueError(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    if options.plot and not ("paired" in options.jobs and PAIRED.keys() & options.losses):
        raise ValueError(f"--plot draws the job 'paired', which compares {', '.join(PAIRED)}")
    if options.markdown:
        between_markers(options.markdown)


def run(options: argparse.Namespace, console: Console) -> dict[str, Table]:
    """Do the jobs, and print each table when it is there."""
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    plan = Plan(
        watch=Stopwatch(seconds, options.device, thread_time if options.cpu_time else perf_counter),
        threads=options.threads,
        sizes=QUICK_SIZES if options.quick else SIZES,
        losses=tuple(options.losses),
        compile=not (options.quick or options.no_compile),
    )
    tables = {}
    for job in options.jobs:
        with console.status(job):
            table = JOBS[job](plan)
        if table is None or not table.records:
            console.print(f"{job}: left out, there is nothing to measure with this machine, device and losses", "")
        else:
            show(table, console)
            tables[job] = table
    return tables


def save(tables: dict[str, Table], name: dict[str, object], options: argparse.Namespace) -> None:
    """Write the files that were asked for."""
    for path in (options.json, options.plot):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/bench.py {shlex.join(sys.argv[1:])}"
    if options.json:
        results = {job: table.records for job, table in tables.items()}
        content = {"machine": name, "command": command, "results": results}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        plot(tables["paired"].records, described(name), options.plot)
    if options.markdown:
        folder = options.markdown.resolve().parent
        picture = Path(os.path.relpath(options.plot.resolve(), folder)).as_posix() if options.plot else None
        between_markers(options.markdown, markdown(tables.values(), described(name), command, picture))


def main() -> None:
    """Measure, print, save."""
    options = arguments()
    torch.set_num_threads(options.threads)
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    name = machine(options.device)
    console.print(described(name))
    save(run(options, console), name, options)


if __name__ == "__main__":
    main()
