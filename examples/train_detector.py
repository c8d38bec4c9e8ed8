"""Train a real detector, torchvision's FCOS, on real images with any box loss of this package.

    python examples/train_detector.py --loss ciou                  # about two minutes on two CPU cores
    python examples/train_detector.py --compare torchvision giou   # same weights and scenes for each loss, one table
    python examples/train_detector.py --compare                    # every loss of the family: an hour or two
    python examples/train_detector.py --steps 30 --test-scenes 40  # a quick look

Nothing is downloaded. `--out` receives metrics.json and one picture of test scenes per loss. The last lines printed,
one per loss, are `name=value` pairs for a script to read. The exit status is 1 if the loss stops being finite.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from digit_scenes import CANVAS, CLASSES, scene_loader
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from scene_plots import draw_scenes
from torch import nn
from torchmetrics.detection import MeanAveragePrecision
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOSHead

import iou_losses as il
from iou_losses.integrations.torchvision import use_box_loss

WIOU_MOMENTUM = 1e-2  # of the authors' later code; the paper's is for trainings ten times as long
MEAN_SIDE = 24.0  # pixels: the mean square root of a box's area in these scenes

LOSSES: dict[str, Callable[[], il.BoxLoss | None]] = {
    "torchvision": lambda: None,  # what FCOS has built in, its own GIoU: the baseline
    "iou": il.IoULoss,
    "giou": il.GIoULoss,
    "diou": il.DIoULoss,
    "ciou": il.CIoULoss,
    "ciou-journal": lambda: il.CIoULoss(iou_threshold=0.5),
    "log": lambda: il.IoULoss(mode="log"),
    "square": lambda: il.IoULoss(mode="square"),
    "eiou": il.EIoULoss,
    "focal-eiou": il.FocalEIoULoss,
    "extended": il.ExtendedIoULoss,
    "siou": il.SIoULoss,
    "alpha-iou": il.AlphaIoULoss,
    "alpha-ciou": lambda: il.AlphaIoULoss(base="ciou"),
    "wiou-1": il.WIoULoss,
    "wiou-2": lambda: il.WIoULoss(version=2, momentum=WIOU_MOMENTUM),
    "wiou-3": lambda: il.WIoULoss(version=3, momentum=WIOU_MOMENTUM),
    "mpdiou": lambda: il.MPDIoULoss(image_size=(CANVAS, CANVAS)),
    "shape-iou": il.ShapeIoULoss,
    "piou-1": il.PIoULoss,
    "piou-2": lambda: il.PIoULoss(version=2),
    "nwd": lambda: il.NWDLoss(constant=MEAN_SIDE),
    "sca": il.SCALoss,
    "bounded": il.BoundedIoULoss,
    "interp": il.InterpIoULoss,
    "interp-dynamic": lambda: il.InterpIoULoss(coefficient="dynamic"),
    "gcd": il.GCDLoss,
    "inner": lambda: il.InnerIoULoss(il.CIoULoss(), ratio=0.7),
    "focaler": lambda: il.FocalerIoULoss(il.CIoULoss()),
    "unified": lambda: il.UnifiedIoULoss(il.CIoULoss()),
    "wise-ciou": lambda: il.WIoULoss(version=3, momentum=WIOU_MOMENTUM, base=il.CIoULoss()),
}
BATCH = 8
LEARNING_RATE = 2e-3
TEST_SEED = 1_000_000  # the test scenes are the same for every --seed
SHOWN = 12  # scenes of the picture
METRICS = {"map": "mAP", "map_50": "mAP@.5", "map_75": "mAP@.75"}
BEGIN, END = "<!-- compare:begin -->", "<!-- compare:end -->"
TERMS = {"classification": "class", "bbox_regression": "box", "bbox_ctrness": "centre"}


def build_backbone() -> nn.Sequential:
    """Five convolutions, to 64 channels at stride 8."""
    layers: list[nn.Module] = []
    for before, after, stride in [(1, 32, 2), (32, 64, 2), (64, 64, 1), (64, 64, 2), (64, 64, 1)]:
        layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 64  # FCOS asks for it
    return backbone


def build_model(box_loss: il.BoxLoss | None) -> FCOS:
    """A small FCOS from scratch, with one level of stride 8 and so anchors of size 8; None leaves its own box loss."""
    backbone = build_backbone()
    model = FCOS(
        backbone,
        CLASSES,
        min_size=CANVAS,
        max_size=CANVAS,
        image_mean=[0.1],
        image_std=[0.25],
        anchor_generator=AnchorGenerator(sizes=((8,),), aspect_ratios=((1.0,),)),
        head=FCOSHead(backbone.out_channels, num_anchors=1, num_classes=CLASSES, num_convs=2),
        score_thresh=0.05,
        topk_candidates=100,
        detections_per_img=20,
    )
    return model if box_loss is None else use_box_loss(model, box_loss)  # a part of the model, its state included


def train(model: FCOS, steps: int, seed: int, progress: Progress, name: str) -> list[float]:
    """Train on a new batch of scenes at each step; returns the total loss of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    task = progress.add_task(name, total=steps, losses="")
    totals: list[float] = []
    running: dict[str, float] = {}
    annealed = [part for part in model.modules() if isinstance(part, il.UnifiedIoULoss)]
    model.train()
    for images, targets in scene_loader("train", steps * BATCH, seed, BATCH):
        for part in annealed:
            part.progress = len(totals) / steps
        losses = model(images, targets)
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        schedule.step()
        values = {TERMS[term]: loss.item() for term, loss in losses.items()}
        if not math.isfinite(sum(values.values())):
            raise SystemExit(f"the loss is not finite at step {len(totals) + 1}: {values}")
        totals.append(sum(values.values()))
        running = {term: 0.95 * running.get(term, value) + 0.05 * value for term, value in values.items()}
        progress.update(task, advance=1, losses="  ".join(f"{term} {value:.3f}" for term, value in running.items()))
    return totals


@torch.inference_mode()
def evaluate(model: FCOS, scenes: int, picture: Path, title: str) -> dict[str, float]:
    """COCO's mean average precisions on scenes of held-out digits, and a picture of the first ones."""
    metric = MeanAveragePrecision()
    model.eval()
    for batch, (images, targets) in enumerate(scene_loader("test", scenes, TEST_SEED, SHOWN)):
        predictions = model(images)
        metric.update(predictions, targets)
        if batch == 0:
            draw_scenes(images, targets, predictions, picture, title)
    scores = metric.compute()
    return {name: scores[name].item() for name in METRICS}


def run(loss: str, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Train and evaluate with one loss. Weights, scenes and their order depend on the seed alone."""
    torch.manual_seed(options.seed)
    model = build_model(LOSSES[loss]())
    start = time.perf_counter()
    totals = train(model, options.steps, options.seed, progress, loss)
    seconds = time.perf_counter() - start
    title = f"FCOS trained with {loss}: {options.steps} steps, seed {options.seed}, digits it has not seen"
    scores = evaluate(model, options.test_scenes, options.out / f"scenes_{loss}.png", title)
    window = max(1, min(100, options.steps // 10))
    ends = {"first_loss": sum(totals[:window]) / window, "last_loss": sum(totals[-window:]) / window}
    return {"loss": loss, "seed": options.seed, "steps": options.steps, **ends, **scores, "seconds": seconds}


def report(results: list[dict[str, Any]], out: Path, console: Console) -> None:
    """A table for the reader, and a plain line per loss for scripts."""
    table = Table("loss", *METRICS.values(), "training", title="held-out digits")
    for result in results:
        table.add_row(result["loss"], *(f"{result[name]:.3f}" for name in METRICS), f"{result['seconds']:.0f} s")
    console.print(table)
    console.print(f"pictures and metrics.json are in {out}")
    for result in results:
        print(*(f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in result.items()))


def write_markdown(results: list[dict[str, Any]], path: Path) -> None:
    """The table, between the two markers of a file."""
    steps, seed = results[0]["steps"], results[0]["seed"]
    rows = [["loss", *METRICS.values()], ["---", *["---:"] * len(METRICS)]]
    rows += [[result["loss"], *(f"{result[name]:.3f}" for name in METRICS)] for result in results]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{steps:,} steps of {BATCH} scenes, seed {seed}:\n\n{table}\n\n{END}{after}")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=LOSSES, default="giou", help="box loss to train with (default: %(default)s)")
    parser.add_argument(
        "--compare", choices=LOSSES, nargs="*", metavar="LOSS", help="train each of these losses (none named: all)"
    )
    parser.add_argument("--steps", type=int, default=3000, help="training steps of 8 scenes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and training scenes (default: %(default)s)")
    parser.add_argument("--test-scenes", type=int, default=400, help="scenes to evaluate on (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/train_detector"), help="folder (default: %(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table between this file's markers")
    options = parser.parse_args()
    if options.markdown and END not in options.markdown.read_text().partition(BEGIN)[2]:
        parser.error(f"{options.markdown} must have the lines {BEGIN} and {END}")
    if min(options.steps, options.test_scenes) < 1:
        parser.error("--steps and --test-scenes must be at least 1")
    return options


def main() -> None:
    """Train, evaluate, report."""
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    losses = [options.loss] if options.compare is None else options.compare or list(LOSSES)
    console, results = Console(), []
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[losses]}"), console=console) as progress:
        for loss in losses:
            results.append(run(loss, options, progress))
            (options.out / "metrics.json").write_text(json.dumps(results, indent=2) + "\n")
    report(results, options.out, console)
    if options.markdown:
        write_markdown(results, options.markdown)


if __name__ == "__main__":
    main()
