"""Matching and suppression beside torchvision: more parts of the benchmark, and a command of their own.

python benchmarks/four_jobs.py            # about a minute
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from contenders import boxes, engine_off, has_engine
from jobs import Plan, Record, Table, records_of
from measure import Call, Contender, Stopwatch, peak_resident
from torch import Tensor
from torchvision import ops

import iou_losses

METRICS = {
    "box_iou": ops.box_iou,
    "generalized_box_iou": ops.generalized_box_iou,
    "distance_box_iou": ops.distance_box_iou,
    "complete_box_iou": ops.complete_box_iou,
}
MATCHED = ((100_000, 100), (8_400, 50), (8_400, 5))  # candidates and objects
MATCHED_ALONE = (1_000_000, 1_000)  # torchvision would need 20 GB
SUPPRESSED = (1_000, 10_000)
CLASSES = 80
THRESHOLD = 0.5


def side_by_side(record: Record, contenders: Sequence[Contender], plan: Plan) -> Record:
    """Time who computes one thing, in one line."""
    seconds = plan.watch.fastest(contenders)
    record |= {f"{name}, microseconds": taken * 1e6 for name, taken in seconds.items()}
    if "torchvision" in seconds:
        record["times torchvision"] = seconds["torchvision"] / min(
            taken for n, taken in seconds.items() if n != "torchvision"
        )
    return record


def ways(call: Call, theirs: Call | None, plan: Plan) -> list[Contender]:
    """Return our ways of a call, and torchvision's."""
    contenders = [Contender("ours, native", call)] if has_engine(plan.device) else []
    contenders.append(Contender("ours, formula", call, engine_off))
    return contenders if theirs is None else [*contenders, Contender("torchvision", theirs)]


def matching_job(plan: Plan) -> Table:
    """The best object of each candidate."""
    records = []
    for name, theirs in METRICS.items():
        ours = getattr(iou_losses, name)
        for rows, columns in MATCHED:
            candidates, objects = boxes(rows, plan.device), boxes(columns, plan.device)
            call = partial(iou_losses.best_match, candidates, objects, ours)
            whole = partial(best_of_matrix, theirs, objects, candidates)
            record: Record = {"metric": name, "boxes": f"{rows:,} x {columns:,}"}
            records.append(side_by_side(record, ways(call, whole, plan), plan))
    if has_engine(plan.device):
        candidates, objects = (boxes(count, plan.device) for count in MATCHED_ALONE)
        alone = [Contender("ours, native", partial(iou_losses.best_match, candidates, objects))]
        record = {"metric": "box_iou", "boxes": f"{MATCHED_ALONE[0]:,} x {MATCHED_ALONE[1]:,}"}
        records.append(side_by_side(record, alone, plan))
    note = "best_match(candidates, objects), against torchvision's matrix(objects, candidates).max(0)."
    return Table("Best match", records, note)


def best_of_matrix(metric: Callable[[Tensor, Tensor], Tensor], objects: Tensor, candidates: Tensor) -> object:
    """Return each candidate's best as torchvision's users find it."""
    return metric(objects, candidates).max(0)


def scattered(count: int, spread: float, device: str) -> Tensor:
    """Return boxes in an image, their places so many times as far apart."""
    together = boxes(count, device)
    return together + (spread - 1) * together[:, :2].repeat(1, 2)


def suppression_job(plan: Plan) -> Table:
    """Non-maximum suppression of crowds and of boxes that hardly meet."""
    records = []
    for count in SUPPRESSED:
        scores = torch.rand(count, generator=torch.Generator().manual_seed(2)).to(plan.device)
        labels = torch.randint(CLASSES, (count,), generator=torch.Generator().manual_seed(3)).to(plan.device)
        for scene, spread in (("crowded", 1.0), ("scattered", 10.0)):
            some = scattered(count, spread, plan.device)
            calls: dict[str, tuple[Call, Call | None]] = {
                "nms": (
                    partial(iou_losses.nms, some, scores, THRESHOLD),
                    partial(ops.nms, some, scores, THRESHOLD),
                ),
                f"nms of {CLASSES} classes": (
                    partial(iou_losses.nms, some, scores, THRESHOLD, labels=labels),
                    partial(ops.batched_nms, some, scores, labels, THRESHOLD),
                ),
                "nms, DIoU": (
                    partial(iou_losses.nms, some, scores, THRESHOLD, metric=iou_losses.distance_box_iou),
                    None,
                ),
                "soft_nms": (partial(iou_losses.soft_nms, some, scores), None),
            }
            for name, (ours, theirs) in calls.items():
                contenders = ways(ours, theirs, plan)
                if name == "soft_nms":  # one step of Python for each box
                    contenders = [contender for contender in contenders if contender.name != "ours, formula"]
                record: Record = {"call": name, "boxes": f"{count:,} {scene}", "kept": kept(ours)}
                records.append(side_by_side(record, contenders, plan))
    return Table("Suppression", records, f"At a threshold of {THRESHOLD:g}; soft_nms as its defaults are.")


def kept(call: Callable[[], object]) -> int:
    """Return how many boxes are left."""
    result = call()
    return len(result[0] if isinstance(result, tuple) else result)


def matching_memory_job(plan: Plan) -> Table | None:
    """Peak memory of the best match, in a process of its own, whose memory nothing else has touched."""
    if plan.device == "cuda" or sys.platform != "linux":
        return None
    records = records_of(__file__, "--memory", "--threads", str(plan.threads))
    note = "Rise of the peak while it is computed, its results included."
    rows, columns = MATCHED[0]
    return Table(f"Peak memory of the best match, {rows:,} x {columns:,}", records, note)


def memory_records() -> list[Record]:
    """Measure each peak once, after a small call that loads what is loaded once."""
    records = []
    for name, theirs in METRICS.items():
        ours = getattr(iou_losses, name)
        record: Record = {"metric": name}
        for by in ("ours, native", "torchvision"):
            peaks = []
            for rows, columns in (MATCHED[1], MATCHED[0]):
                candidates, objects = boxes(rows, "cpu"), boxes(columns, "cpu")
                call = partial(iou_losses.best_match, candidates, objects, ours)
                whole = partial(best_of_matrix, theirs, objects, candidates)
                peaks.append(peak_resident(call if by == "ours, native" else whole))
            record[f"{by}, bytes"] = peaks[-1]
        record["torchvision's times ours"] = record["torchvision, bytes"] / record["ours, native, bytes"]
        records.append(record)
    return records


FOUR_JOBS: dict[str, Callable[[Plan], Table | None]] = {
    "matching": matching_job,
    "matching-memory": matching_memory_job,
    "suppression": suppression_job,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of torch and of the engine")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the boxes are")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each measurement (default: 0.3)")
    parser.add_argument("--jobs", default=",".join(FOUR_JOBS), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        json.dump(memory_records(), sys.stdout)
        return
    from report import Console, described, machine, show  # matplotlib is not for the process that memory is measured in

    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(described(machine(options.device)))
    plan = Plan(Stopwatch(options.seconds, options.device), options.threads, (), (), compile=False)
    for job in options.jobs.split(","):
        if (table := FOUR_JOBS[job](plan)) is not None:
            show(table, console)


if __name__ == "__main__":
    main()
