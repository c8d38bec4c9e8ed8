"""The DIoU paper's simulation: which loss brings 1,715,000 boxes to their targets by plain gradient descent.

    python examples/regression_simulation.py                        # the paper's four losses, all cases
    python examples/regression_simulation.py --loss siou eiou ciou  # any loss of the family
    python examples/regression_simulation.py --fmt cxcywh           # descend on centre and size, not on corners
    python examples/regression_simulation.py --points 50            # a hundredth of the cases, in a second or two

The experiment of Zheng et al., "Distance-IoU Loss", AAAI 2020, arXiv:1911.08287, as its authors' code for MATLAB has it
(github.com/Zzh-tju/DIoU, "simulation experiment"): seven targets of area 1 around (10, 10) with aspect ratios 1:4 to
4:1; anchor boxes at 5,000 points, uniform in the disc of radius 3, each of 7 areas and 7 aspect ratios; 200 steps of
gradient descent at the rate 0.1, 0.01 after 80 % and 0.001 after 90 % of them, each multiplied by 2 - IoU; the error
is |x| + |y| + |w| + |h| of centre and size, summed over all cases after each step.

Chosen here: the seed; the gradients, which are the exact ones of each loss (the authors' code doubles the slope of the
IoU by the size, and leaves 1 / (w^2 + h^2) out of CIoU's); the coordinates that descend. Theirs are centre and size.
Here they are the corners unless `--fmt` says otherwise, and the order is the paper's: IoU ends last, then GIoU, DIoU a
little ahead of it, CIoU first. On centre and size (`--fmt cxcywh`) IoU is last and CIoU first all the same, but GIoU
ends before DIoU. The authors' code does not clamp the intersection of boxes that are apart, so that negative extents
count as an area; that slip alone, `giou_unclamped` here, puts GIoU far behind DIoU.
MPDIoU's image is the square of side 20 around the targets, NWD's constant is 1, a target's side.

`--out` receives the curves and the final error over the plane as pictures. Beside each time stands that of the same
loop with torchvision's loss, measured on a sample and scaled; torchvision has no IoU loss for pairs.
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from picture_style import draw_in_themes, label
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from simulation_pictures import draw_curves, draw_surfaces
from torch import Tensor

import iou_losses

Loss = Callable[..., Tensor]  # (n, 4) and (n, 4) and fmt to n losses

CENTRE, RADIUS = 10.0, 3.0
RATIOS = torch.tensor([1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4])
AREAS = torch.tensor([0.5, 0.67, 0.75, 1, 1.33, 1.5, 2])
PER_POINT = len(RATIOS) * len(AREAS) * len(RATIOS)
POINTS, STEPS = 5_000, 200
NAMES = {"xyxy": "descending on corners", "cxcywh": "descending on centre and size"}
BLOCK = 48  # points, 16,464 cases: boxes, targets and gradients stay in a core's second-level cache
SAMPLE_STEPS = 20  # that torchvision is timed on, one block for each thread

# Hyper-parameters that are lengths: in the units of this plane.
LENGTHS = {"mpdiou_loss": {"image_size": (2 * CENTRE, 2 * CENTRE)}, "nwd_loss": {"constant": 1.0}}
TORCHVISION = {
    "giou": "generalized_box_iou_loss",
    "diou": "distance_box_iou_loss",
    "ciou": "complete_box_iou_loss",
}


class Outcome(NamedTuple):
    """What one loss did: the error over all cases after each step, and over each point's cases after the last."""

    curve: Tensor
    surface: Tensor


class Cost(NamedTuple):
    """What a computation took, by the clock and by the processor: the latter holds on a busy machine, too."""

    seconds: float
    cpu_seconds: float

    def times(self, factor: float) -> Cost:
        """Return what so many of the computation take."""
        return Cost(factor * self.seconds, factor * self.cpu_seconds)

    def __str__(self) -> str:
        """Show both."""
        return f"{self.seconds:,.1f} s, CPU {self.cpu_seconds:,.1f} s"


class Run(NamedTuple):
    """The outcome of a loss, what it took, and what torchvision's would take, where it has the loss."""

    outcome: Outcome
    cost: Cost
    torchvision: Cost | None


def giou_unclamped(pred: Tensor, target: Tensor, *, fmt: str) -> Tensor:
    """GIoU where boxes that are apart "intersect" in the product of two negative extents: not a loss to train with."""
    (p1, p2), (t1, t2) = corners(pred, fmt), corners(target, fmt)
    overlap = torch.minimum(p2, t2) - torch.maximum(p1, t1)
    hull = (torch.maximum(p2, t2) - torch.minimum(p1, t1)).prod(-1)
    union = (p2 - p1).prod(-1) + (t2 - t1).prod(-1) - overlap.prod(-1)
    iou = torch.where((overlap > 0).all(-1), overlap.prod(-1) / union, 0)
    return 2 - iou - union / hull


def corners(boxes: Tensor, fmt: str) -> tuple[Tensor, Tensor]:
    """Return the two corners of boxes."""
    first, second = boxes[..., :2], boxes[..., 2:]
    return (first, second) if fmt == "xyxy" else (first - second / 2, first + second / 2)


def family() -> dict[str, Loss]:
    """Return every loss of the package that is a function, by its short name."""
    functions = {name: loss for name, loss in inspect.getmembers(iou_losses) if name.endswith("_loss")}
    named = {name.removesuffix("_loss"): partial(loss, **LENGTHS.get(name, {})) for name, loss in functions.items()}
    return {name: named[name] for name in ("iou", "giou", "diou", "ciou")} | named


LOSSES: dict[str, Loss] = family() | {"giou_unclamped": giou_unclamped}


def torchvision_loss(name: str) -> Loss:
    """Return torchvision's loss, for boxes of any format."""
    from torchvision import ops  # heavy, and not needed without the comparison

    loss = getattr(ops, TORCHVISION[name])
    return lambda pred, target, fmt: loss(ops.box_convert(pred, fmt, "xyxy"), ops.box_convert(target, fmt, "xyxy"))


def anchor_points(count: int, seed: int) -> Tensor:
    """Return points (count, 2), uniform in the disc."""
    radius, angle = torch.rand(2, count, generator=torch.Generator().manual_seed(seed))
    radius, angle = RADIUS * radius.sqrt(), 2 * math.pi * angle
    return CENTRE + torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1)


def cases(points: Tensor, fmt: str) -> tuple[Tensor, Tensor]:
    """Return anchor boxes and targets (343 points, 4): at each point every anchor with every target."""
    shapes = torch.stack((RATIOS.sqrt(), 1 / RATIOS.sqrt()), dim=-1)
    sizes = (AREAS.sqrt()[:, None, None] * shapes).flatten(0, 1)
    grid = (len(points), len(shapes), len(sizes), 2)
    anchors = torch.cat((points[:, None, None].expand(grid), sizes.expand(grid)), dim=-1)
    targets = torch.cat((torch.full(grid, CENTRE), shapes[:, None].expand(grid)), dim=-1)
    return formatted(anchors, fmt).view(-1, 4), formatted(targets, fmt).view(-1, 4)


def formatted(boxes: Tensor, fmt: str) -> Tensor:
    """Return boxes of centre and size in the format."""
    return boxes if fmt == "cxcywh" else torch.cat(corners(boxes, "cxcywh"), dim=-1)


def errors(boxes: Tensor, targets: Tensor, fmt: str) -> Tensor:
    """Return the L1 distances (n, 2) of centre and size, x and y apart."""
    first, second = (boxes - targets).split(2, dim=-1)
    if fmt == "xyxy":  # to centre and size
        first, second = (first + second) / 2, second - first
    return first.abs_() + second.abs_()


def rates(steps: int) -> list[float]:
    """Return the paper's learning rates."""
    return [0.1 if 10 * step < 8 * steps else 0.01 if 10 * step < 9 * steps else 0.001 for step in range(steps)]


def descend(loss: Loss, boxes: Tensor, targets: Tensor, rate: float, fmt: str) -> Tensor:
    """Return the boxes after one step of the paper's rule."""
    boxes = boxes.detach().requires_grad_()
    pace = rate * (1 + iou_losses.iou_loss(boxes.detach(), targets, fmt=fmt))  # 1 + loss is 2 - IoU
    (step,) = torch.autograd.grad(loss(boxes, targets, fmt=fmt), boxes, pace)
    return boxes.detach() - step


def simulate_block(loss: Loss, fmt: str, steps: int, points: Tensor) -> Outcome:
    """Let the boxes at some points descend."""
    boxes, targets = cases(points, fmt)
    curve = torch.empty(steps, dtype=torch.float64)
    for step, rate in enumerate(rates(steps)):
        boxes = descend(loss, boxes, targets, rate, fmt)
        left = errors(boxes, targets, fmt)
        curve[step] = left.sum()
    return Outcome(curve, left.view(len(points), -1).sum(1))


def simulate(
    loss: Loss, points: Tensor, fmt: str, steps: int = STEPS, threads: int = 1, done: Callable[[int], object] = id
) -> Outcome:
    """Let the boxes at all points descend, block by block; `done` hears how many points are ready."""
    outcomes = []
    with ThreadPoolExecutor(threads) as pool:  # the engine and torch let go of Python's lock while they compute
        for outcome in pool.map(partial(simulate_block, loss, fmt, steps), points.split(BLOCK)):
            outcomes.append(outcome)
            done(len(outcome.surface))
    curves, surfaces = zip(*outcomes, strict=True)
    return Outcome(torch.stack(curves).sum(0), torch.cat(surfaces))


def timed(call: Callable[[], Outcome]) -> tuple[Outcome, Cost]:
    """Return the outcome of a call and what it took."""
    start, cpu_start = time.perf_counter(), time.process_time()
    outcome = call()
    return outcome, Cost(time.perf_counter() - start, time.process_time() - cpu_start)


def torchvision_cost(name: str, points: Tensor, options: argparse.Namespace) -> Cost | None:
    """Return what torchvision's loss would take for all points and steps, from a sample of both."""
    if name not in TORCHVISION:
        return None
    sample, loss = points[: options.threads * BLOCK], torchvision_loss(name)
    simulate(loss, sample, options.fmt, 1, options.threads)  # the first call allocates
    _, cost = timed(lambda: simulate(loss, sample, options.fmt, SAMPLE_STEPS, options.threads))
    return cost.times(len(points) * options.steps / (len(sample) * SAMPLE_STEPS))


def run(name: str, points: Tensor, options: argparse.Namespace, progress: Progress) -> Run:
    """Simulate with one loss, and time torchvision's."""
    advance = partial(progress.advance, progress.add_task(name, total=len(points)))
    outcome, cost = timed(lambda: simulate(LOSSES[name], points, options.fmt, options.steps, options.threads, advance))
    return Run(outcome, cost, torchvision_cost(name, points, options) if options.compare else None)


def report(runs: dict[str, Run], count: int, console: Console) -> None:
    """Print a table for the reader and a plain line per loss for scripts."""
    title = f"{count:,} cases; torchvision's times are those of a sample, scaled"
    table = Table("loss", "final error per case", "time", "torchvision", title=title)
    for name, (outcome, cost, theirs) in runs.items():
        table.add_row(label(name), f"{outcome.curve[-1] / count:.4f}", str(cost), str(theirs or "-"))
    table.add_row("all", "", str(Cost(*map(sum, zip(*(run.cost for run in runs.values()), strict=True)))), "")
    console.print(table)
    for name, (outcome, cost, _) in runs.items():
        final = outcome.curve[-1] / count
        print(f"loss={name} final_error={final:.6f} seconds={cost.seconds:.2f} cpu_seconds={cost.cpu_seconds:.2f}")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--loss", nargs="+", choices=LOSSES, default=list(LOSSES)[:4], metavar="LOSS", help=f"of {', '.join(LOSSES)}"
    )
    parser.add_argument("--fmt", choices=NAMES, default="xyxy", help="coordinates that descend")
    parser.add_argument("--points", type=int, default=POINTS, help="of 343 cases each (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of gradient descent (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the points (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="(default: all, here %(default)s)")
    parser.add_argument("--no-compare", dest="compare", action="store_false", help="do not time torchvision")
    parser.add_argument("--out", type=Path, default=Path("out/simulation"), help="folder (default: %(default)s)")
    options = parser.parse_args()
    if min(options.steps, options.threads) < 1 or options.points < 3:
        parser.error("--steps and --threads must be at least 1, --points at least 3, which span a surface")
    return options


def main() -> None:
    """Simulate, report, draw."""
    options = parse_options()
    torch.set_num_threads(1)  # the blocks are spread over threads, not the operators
    options.out.mkdir(parents=True, exist_ok=True)
    points = anchor_points(options.points, options.seed)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        runs = {name: run(name, points, options, progress) for name in options.loss}
    report(runs, PER_POINT * options.points, console)
    curves = {name: run.outcome.curve / (PER_POINT * options.points) for name, run in runs.items()}
    surfaces = {name: run.outcome.surface / PER_POINT for name, run in runs.items()}
    draw_in_themes(partial(draw_curves, {NAMES[options.fmt]: curves}), options.out, "curves")
    draw_in_themes(partial(draw_surfaces, surfaces, points), options.out, "surfaces")
    console.print(f"curves and surfaces are in {options.out}")


if __name__ == "__main__":
    main()
