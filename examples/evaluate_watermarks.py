"""Decide whether a watermark detector is good enough: share of marks found, by threshold and size, and an exit code.

    python examples/evaluate_watermarks.py                                # half a minute on two CPU cores
    python examples/evaluate_watermarks.py --accept 0.9 --threshold 0.75  # a stricter gate
    python examples/evaluate_watermarks.py --steps 100                    # too little training: the gate stays shut

Handwritten digits stand for watermarks; the detector of train_detector.py is trained first and then finds digits that
it has not seen. A mark is found where a predicted box reaches the threshold with it, each mark once. Nothing is
downloaded. The exit status is 0 if the share of marks found at `--threshold` is `--accept` or more, else 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch
from digit_scenes import scene_loader
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor
from torchvision.models.detection import FCOS
from train_detector import LOSSES, TEST_SEED, build_model, train

import iou_losses

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
# By area: marks of less than 20 x 20 pixels, of less than 30 x 30, and others. Bounds belong to the range.
SIZES = {"small": (0, 20**2 - 1), "medium": (20**2, 30**2 - 1), "large": (30**2, math.inf), "all": (0, math.inf)}
OFF = 2.0  # pixels by which a box is moved, to see what that costs


class Scene(NamedTuple):
    """The predicted boxes of a scene with their scores, and the true boxes."""

    boxes: Tensor
    scores: Tensor
    truth: Tensor


@torch.inference_mode()
def detect(model: FCOS, scenes: int, min_score: float) -> list[Scene]:
    """Find marks, of whatever digit, in held-out scenes."""
    model.eval()
    found = []
    for images, targets in scene_loader("test", scenes, TEST_SEED):
        for prediction, target in zip(model(images), targets, strict=True):
            sure = prediction["scores"] >= min_score
            boxes, scores = prediction["boxes"][sure], prediction["scores"][sure]
            keep = iou_losses.nms(boxes, scores, 0.5)  # the detector suppresses within a class only
            found.append(Scene(boxes[keep], scores[keep], target["boxes"]))
    return found


def shares_found(scenes: Sequence[Scene], thresholds: Sequence[float], area: tuple[float, float]) -> tuple[Tensor, int]:
    """The share of marks of a size that were found, for each threshold, and how many marks there are."""
    labels = [iou_losses.label_detections(*scene, thresholds, area_range=area) for scene in scenes]
    found_by = torch.cat([label.found_by for label in labels], -1)  # -1 missed, -2 of another size
    marks = int((found_by[0] != -2).sum())
    return (found_by >= 0).sum(-1) / marks, marks


def cost_of_moving(scenes: Sequence[Scene], area: tuple[float, float]) -> float:
    """The mean IoU of true boxes of a size with themselves, moved by `OFF` pixels to the right."""
    truth = torch.cat([scene.truth for scene in scenes])
    areas = (truth[:, 2:] - truth[:, :2]).prod(-1)
    truth = truth[(areas >= area[0]) & (areas <= area[1])]
    return iou_losses.paired_iou(truth + torch.tensor([OFF, 0, OFF, 0]), truth).mean().item()


def by_size(scenes: Sequence[Scene]) -> Table:
    """The table: marks found by threshold and size."""
    heads = ("marks", "number", *(f"{t:g}" for t in THRESHOLDS), f"a box {OFF:g} px off has")
    table = Table(*heads, title="share of marks found at an IoU of")
    for name, area in SIZES.items():
        shares, marks = shares_found(scenes, THRESHOLDS, area)
        table.add_row(
            name, str(marks), *(f"{s:.3f}" for s in shares.tolist()), f"IoU {cost_of_moving(scenes, area):.3f}"
        )
    return table


def failures(scenes: Sequence[Scene], threshold: float) -> list[str]:
    """Which marks were missed, and by how much."""
    lines = []
    for number, scene in enumerate(scenes):
        missed = iou_losses.label_detections(*scene, threshold).found_by == -1
        best = iou_losses.best_match(scene.truth, scene.boxes)
        for box, iou in zip(scene.truth[missed].tolist(), best.values[missed].tolist(), strict=True):
            nearest = "no box near it" if iou <= 0 else f"the nearest box has IoU {iou:.2f}"
            lines.append(f"scene {number}: missed the mark at {[round(x) for x in box]}, {nearest}")
    return lines


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", type=float, default=0.9, help="share of marks to be found (default: %(default)s)")
    parser.add_argument("--threshold", type=float, default=0.5, help="IoU that counts as found (default: %(default)s)")
    parser.add_argument("--loss", choices=LOSSES, default="ciou", help="box loss to train with (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=900, help="training steps of 8 scenes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and training scenes (default: %(default)s)")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes (default: %(default)s)")
    parser.add_argument("--min-score", type=float, default=0.2, help="of a box that counts (default: %(default)s)")
    parser.add_argument("--failures", type=int, default=5, help="missed marks to list (default: %(default)s)")
    options = parser.parse_args()
    if not 0 < options.threshold <= 1 or not 0 <= options.accept <= 1:
        parser.error("--threshold must be in (0, 1] and --accept in [0, 1]")
    if min(options.steps, options.scenes) < 1:
        parser.error("--steps and --scenes must be at least 1")
    return options


def main() -> int:
    """Train, find, report, decide."""
    options = parse_options()
    console = Console()
    torch.manual_seed(options.seed)
    model = build_model(LOSSES[options.loss]())
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[losses]}"), console=console) as progress:
        train(model, options.steps, options.seed, progress, options.loss)
    scenes = detect(model, options.scenes, options.min_score)
    console.print(by_size(scenes))
    missed = failures(scenes, options.threshold)
    for line in missed[: options.failures]:
        print(line)
    wrong = sum(int((iou_losses.label_detections(*s, options.threshold).matches == -1).sum()) for s in scenes)
    print(f"{wrong} of {sum(len(scene.boxes) for scene in scenes)} predicted boxes are no marks, or found ones again")
    (share,), marks = shares_found(scenes, [options.threshold], SIZES["all"])
    accuracy = share.item()
    accepted = accuracy >= options.accept
    print(
        f"{'accepted' if accepted else 'rejected'}: {marks - len(missed)} of {marks} marks found at IoU "
        f"{options.threshold:g}, accuracy={accuracy:.4f}, asked for {options.accept:g}"
    )
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main())
