"""The numbers of the explorer: the losses it shows, the pairs it starts from, and its answers. No server here."""

# ruff: noqa: RUF001 - the page writes a real minus, times and alpha

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import iou_losses as il
from iou_losses.boxes import Pair
from iou_losses.elementary import area

Query = dict[str, list[str]]  # as `urllib.parse.parse_qs` gives it
Box = list[float]

FARTHEST = 1e6  # of a coordinate from the origin
COMPARED = 4  # losses side by side
STEPS = 120


class Shown(NamedTuple):
    """A loss as the page shows it."""

    label: str
    note: str  # what it adds to the overlap, or with which arguments
    module: il.BoxLoss


LOSSES = {
    "iou": Shown("IoU", "1 − IoU, the overlap alone", il.IoULoss()),
    "giou": Shown("GIoU", "and the empty part of the hull", il.GIoULoss()),
    "diou": Shown("DIoU", "and the distance of the centres", il.DIoULoss()),
    "ciou": Shown("CIoU", "and distance and aspect ratio", il.CIoULoss()),
    "ciou-journal": Shown("CIoU, journal", "aspect ratio from IoU 0.5 on", il.CIoULoss(iou_threshold=0.5)),
    "log": Shown("Log IoU", "−ln IoU, as in UnitBox", il.IoULoss(mode="log")),
    "square": Shown("Square IoU", "1 − IoU²", il.IoULoss(mode="square")),
    "eiou": Shown("EIoU", "Efficient IoU: distance, width, height", il.EIoULoss()),
    "focal-eiou": Shown("Focal-EIoU", "EIoU times √IoU", il.FocalEIoULoss()),
    "extended": Shown("Extended IoU", "signed intersection", il.ExtendedIoULoss()),
    "siou": Shown("SIoU", "angle, distance and shape", il.SIoULoss()),
    "alpha-iou": Shown("α-IoU", "1 − IoU³", il.AlphaIoULoss()),
    "alpha-ciou": Shown("α-CIoU", "CIoU with every term cubed", il.AlphaIoULoss(base="ciou")),
    "wiou-1": Shown("WIoU v1", "times a factor of the distance", il.WIoULoss()),
    "wiou-2": Shown("WIoU v2", "v1, focused on poor boxes; mean 1", il.WIoULoss(version=2)),
    "wiou-3": Shown("WIoU v3", "v1, focused on middling boxes; mean 1", il.WIoULoss(version=3)),
    "mpdiou": Shown("MPDIoU", "corner distances in an image of 640 × 480", il.MPDIoULoss(image_size=(640, 480))),
    "shape-iou": Shown("Shape-IoU", "distance and shape, seen from the target", il.ShapeIoULoss()),
    "piou-1": Shown("PIoU v1", "Powerful IoU: distances of the edges", il.PIoULoss()),
    "piou-2": Shown("PIoU v2", "v1, focused on middling boxes", il.PIoULoss(version=2)),
    "nwd": Shown("NWD", "Wasserstein distance, K = 12.8 px; no overlap", il.NWDLoss()),
    "sca": Shown("SCA", "side overlaps and corner distances", il.SCALoss()),
    "bounded": Shown("Bounded IoU", "a bound for each coordinate", il.BoundedIoULoss()),
    "interp": Shown("InterpIoU", "and the IoU of a box nearer the target", il.InterpIoULoss()),
    "interp-dynamic": Shown("Dynamic InterpIoU", "as near as the IoU is low", il.InterpIoULoss(coefficient="dynamic")),
    "gcd": Shown("GCD", "Gaussian distance in box sizes; no overlap", il.GCDLoss()),
    "inner": Shown("Inner-CIoU", "CIoU, overlap of boxes at 0.7", il.InnerIoULoss(il.CIoULoss(), 0.7)),
    "focaler": Shown("Focaler-IoU", "IoU from 0 to 0.95 stretched", il.FocalerIoULoss(il.IoULoss())),
    "unified": Shown("Unified-CIoU", "CIoU of boxes twice as large", il.UnifiedIoULoss(il.CIoULoss())),
}
for _shown in LOSSES.values():
    _shown.module.eval()  # WIoU would keep a running mean of what the user drags


class Preset(NamedTuple):
    """A pair to start from."""

    label: str
    says: str
    pred: Box
    target: Box


TEXTBOOK = (
    Preset("9/23", "Two squares of side 4, 1 apart in both directions: 9 shared of 23.", [0, 0, 4, 4], [1, 1, 5, 5]),
    Preset("1/7", "The same squares, 2 apart in both directions: 4 shared of 28.", [0, 0, 4, 4], [2, 2, 6, 6]),
    Preset("4/7", "Areas of 12000 and 10000 share 8000.", [0, 0, 120, 100], [40, 0, 140, 100]),
    Preset("9/11", "A square of side 100, moved by 10.", [10, 0, 110, 100], [0, 0, 100, 100]),
    Preset("3/5", "Moved by 25: a hit at 0.5, a miss at 0.75.", [25, 0, 125, 100], [0, 0, 100, 100]),
    Preset("1/3", "Moved by 50: half of each box is shared, a third of both.", [50, 0, 150, 100], [0, 0, 100, 100]),
    Preset("0", "Moved by 100, its whole width.", [100, 0, 200, 100], [0, 0, 100, 100]),
    Preset(
        "529/721", "Two squares of side 100, 8 apart both ways: GIoU 0.7227.", [50, 50, 150, 150], [58, 58, 158, 158]
    ),
    Preset("81/119", "Two squares of side 10, 1 apart: a hit at 0.5.", [0, 0, 10, 10], [1, 1, 11, 11]),
    Preset("1/49", "The same squares, 8 apart: a miss.", [0, 0, 10, 10], [8, 8, 18, 18]),
)
SITUATIONS = (
    Preset("Overlap", "Drag the boxes apart and watch the arrows of IoU.", [30, 62, 110, 132], [76, 26, 166, 100]),
    Preset("Clean miss", "Drag the prediction back until the boxes meet.", [10, 80, 70, 130], [120, 20, 190, 80]),
    Preset("Contained", "A small box in a large one.", [60, 50, 100, 80], [20, 20, 160, 120]),
    Preset("Thin", "Two lines of a text: a few pixels of height decide.", [12, 44, 172, 54], [4, 38, 164, 48]),
    Preset(
        "Tiny",
        "The first textbook pair in thousandths: only MPDIoU and NWD notice.",
        [0, 0, 0.004, 0.004],
        [0.001, 0.001, 0.005, 0.005],
    ),
    Preset(
        "Identical",
        "A perfect prediction.",
        [40, 30, 140, 110],
        [40, 30, 140, 110],
    ),
)


def evaluate(modules: Sequence[il.BoxLoss], pred: Tensor, target: Tensor) -> tuple[list[float], Tensor]:
    """The losses, and the gradient of each by the four edges of the prediction, in one backward pass."""
    leaves = [pred.detach().requires_grad_() for _ in modules]
    losses = [module(leaf, target) for module, leaf in zip(modules, leaves, strict=True)]
    return [loss.item() for loss in losses], torch.stack(torch.autograd.grad(losses, leaves))


def sides(box: Tensor) -> Tensor:
    """Width, height, width, height: the unit of each edge's movement."""
    return (box[2:] - box[:2]).repeat(2)


def relation(pred: Tensor, target: Tensor) -> str:
    """How the two boxes lie to each other, in a word or two."""
    low, high = torch.maximum(pred[:2], target[:2]), torch.minimum(pred[2:], target[2:])
    if torch.equal(pred, target):
        return "identical"
    if (low > high).any():
        return "apart"
    if (low == high).any():
        return "touching"
    inner = torch.cat([low, high])
    return "nested" if torch.equal(inner, pred) or torch.equal(inner, target) else "overlapping"


def geometry(pred: Tensor, target: Tensor) -> dict[str, Any]:
    """Intersection, union and hull of a pair: their areas, and the boxes of the first and last."""
    pair = Pair((pred[:2], pred[2:]), (target[:2], target[2:]))
    overlap, hull, size1, size2 = (s / pair.scale for s in (pair.overlap, pair.hull, pair.size1, pair.size2))
    low, bottom = torch.maximum(pred[:2], target[:2]), torch.minimum(pred[:2], target[:2])
    shared = area(overlap).item()
    return {
        "relation": relation(pred, target),
        "intersection": {"area": shared, "box": torch.cat([low, low + overlap]).tolist() if shared else None},
        "union": {"area": (area(size1) + area(size2)).item() - shared},
        "hull": {"area": area(hull).item(), "box": torch.cat([bottom, bottom + hull]).tolist()},
    }


def pair_answer(query: Query) -> dict[str, Any]:
    """Everything that the page shows of one pair."""
    pred, target, threshold = read_box(query, "pred"), read_box(query, "target"), read_threshold(query)
    iou = il.paired_iou(pred, target)
    values, gradients = evaluate([shown.module for shown in LOSSES.values()], pred, target)
    rows = zip(LOSSES, values, gradients.tolist(), (-gradients * sides(target)).tolist(), strict=True)
    losses = {key: {"value": value, "gradient": gradient, "pull": pull} for key, value, gradient, pull in rows}
    correct = il.is_correct(iou, threshold).item()
    return {"iou": iou.item(), "correct": correct, **geometry(pred, target), "losses": losses}


def descend(module: il.BoxLoss, pred: Tensor, target: Tensor) -> dict[str, Any]:
    """Gradient descent from the prediction, by the step rule of the DIoU paper (arXiv 1911.08287).

    Its targets have sides about 1. Here the edges move in widths and heights of the target, as
    the box coders of detectors have it, so that the rule fits boxes of every size.
    """
    boxes: list[Box] = []
    losses: list[float] = []
    ious: list[float] = []
    for step in range(STEPS + 1):
        (loss,), (gradient,) = evaluate([module], pred, target)
        iou = il.paired_iou(pred, target).item()
        boxes.append(pred.tolist())
        losses.append(loss)
        ious.append(iou)
        rate = 0.1 if step < 0.8 * STEPS else 0.01 if step < 0.9 * STEPS else 0.001
        pred = pred - rate * (2 - iou) * gradient * sides(target).square()
    return {"boxes": boxes, "losses": losses, "ious": ious}


def descent_answer(query: Query) -> dict[str, Any]:
    """The path of the prediction for each of the chosen losses."""
    pred, target = read_box(query, "pred"), read_box(query, "target")
    keys = read_one(query, "losses").split(",")
    if unknown := [key for key in keys if key not in LOSSES]:
        raise ValueError(f"losses must be names out of {', '.join(LOSSES)}, got {', '.join(map(repr, unknown))}")
    if len(keys) > COMPARED:
        raise ValueError(f"losses must be {COMPARED} names at most, got {len(keys)}")
    return {key: descend(LOSSES[key].module, pred, target) for key in keys}


def setup_answer(query: Query) -> dict[str, Any]:
    """What the page is built from: the losses and the presets."""
    return {
        "losses": {key: {"label": shown.label, "note": shown.note} for key, shown in LOSSES.items()},
        "presets": {"Situations": as_dicts(SITUATIONS), "Textbook pairs, by IoU": as_dicts(TEXTBOOK)},
        "compared": COMPARED,
        "steps": STEPS,
    }


def as_dicts(presets: tuple[Preset, ...]) -> list[dict[str, Any]]:
    """The presets with their field names."""
    return [preset._asdict() for preset in presets]


def read_one(query: Query, name: str) -> str:
    """The one value of this name."""
    values = query.get(name, [])
    if len(values) != 1:
        raise ValueError(f"{name} must be given once, got {len(values)} values")
    return values[0]


def read_number(text: str, name: str) -> float:
    """A finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be made of finite numbers, got {text!r}")
    return number


def read_box(query: Query, name: str) -> Tensor:
    """A box as four numbers x1,y1,x2,y2."""
    texts = read_one(query, name).split(",")
    if len(texts) != 4:
        raise ValueError(f"{name} must be four numbers x1,y1,x2,y2, got {len(texts)}")
    box = [read_number(text, name) for text in texts]
    if max(map(abs, box)) > FARTHEST:
        raise ValueError(f"{name} must lie within {FARTHEST:g} of the origin, got {box}")
    if box[0] > box[2] or box[1] > box[3]:
        raise ValueError(f"{name} must have x1 <= x2 and y1 <= y2, got {box}")
    return torch.tensor(box, dtype=torch.float64)


def read_threshold(query: Query) -> float:
    """The IoU from which on a prediction is a hit."""
    threshold = read_number(read_one(query, "threshold"), "threshold")
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be between 0 and 1, got {threshold!r}")
    return threshold


ANSWERS = {"/api/setup": setup_answer, "/api/pair": pair_answer, "/api/descent": descent_answer}
