"""Put the same probes to this package, torchvision, ultralytics and mmdetection's definition, and write the table.

    python benchmarks/promises.py                              # print it
    python benchmarks/promises.py --markdown docs/promises.md  # renew the table between the page's markers

A probe is a promise of this package, with the test that holds it; what it shows is computed when it runs. torchvision
and ultralytics take part where they are installed. mmdetection is not run: its CIoU is written out here from its
definition.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import iou_losses

BEGIN, END = "<!-- promises:begin -->", "<!-- promises:end -->"

Loss = Callable[[Tensor, Tensor], Tensor]  # of each box, shape (N,) or (N, 1)


class Package(NamedTuple):
    """A package by its name in the table, and its losses of each box by the similarity."""

    name: str
    losses: dict[str, Loss]


class Finding(NamedTuple):
    """Whether a promise holds, and what shows it where it does not."""

    holds: bool
    shown: str


class Probe(NamedTuple):
    """A promise, the test that holds it, and what to find out about a loss."""

    promise: str
    test: str
    find: Callable[[Loss], Finding]
    of: str = "CIoU"


def packages() -> Iterator[Package]:
    """Give this package and those others that are installed or defined here."""
    ours = {"GIoU": iou_losses.giou_loss, "DIoU": iou_losses.diou_loss, "CIoU": iou_losses.ciou_loss}
    yield Package(f"iou_losses {iou_losses.__version__}", ours)
    if find_spec("torchvision"):
        from torchvision import ops

        theirs = (ops.generalized_box_iou_loss, ops.distance_box_iou_loss, ops.complete_box_iou_loss)
        yield Package(f"torchvision {version('torchvision')}", dict(zip(ours, theirs, strict=True)))
    if find_spec("ultralytics"):
        yield Package(f"ultralytics {version('ultralytics')}", {kind: ultralytics_loss(kind) for kind in ours})
    yield Package("mmdetection 3.3, by definition", {"CIoU": mmdetection_loss})


def ultralytics_loss(kind: str) -> Loss:
    """Return a loss of each box as ultralytics' `BboxLoss` takes it."""
    from ultralytics.utils.metrics import bbox_iou

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        return 1 - bbox_iou(pred, target, xywh=False, **{kind: True})

    return loss


def mmdetection_loss(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Give CIoU as mmdetection 3.3 defines it: the journal's rule, an eps here and there, clamped."""
    size1, size2 = (boxes[:, 2:] - boxes[:, :2] for boxes in (pred, target))
    low, high = torch.max(pred[:, :2], target[:, :2]), torch.min(pred[:, 2:], target[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    iou = shared / (size1.prod(-1) + size2.prod(-1) - shared + eps)
    hull = (torch.max(pred[:, 2:], target[:, 2:]) - torch.min(pred[:, :2], target[:, :2])).clamp(min=0)
    offset = (pred[:, :2] + pred[:, 2:] - target[:, :2] - target[:, 2:]) / 2
    angle1, angle2 = (torch.atan(size[:, 0] / (size[:, 1] + eps)) for size in (size1, size2))
    v = 4 / math.pi**2 * (angle2 - angle1) ** 2
    with torch.no_grad():
        alpha = (iou > 0.5).float() * v / (1 - iou + v)
    score = iou - offset.square().sum(-1) / (hull.square().sum(-1) + eps) - alpha * v
    return 1 - score.clamp(-1, 1)


def boxes(*rows: tuple[float, float, float, float]) -> Tensor:
    """Return the boxes in float32."""
    return torch.tensor(rows, dtype=torch.float32)


def slopes(loss: Loss, pred: Tensor, target: Tensor) -> Tensor:
    """Return the gradient of the losses by their predictions."""
    pred = pred.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(pred, target).sum(), pred)
    return gradient


def ordinary(count: int) -> tuple[Tensor, Tensor]:
    """Return boxes that overlap or not, of many sizes."""
    low, size = 300 * torch.rand(2, 2, count, 2, generator=torch.Generator().manual_seed(0))
    pred, target = torch.cat([low, low + size + 1], -1)
    return pred, target


def shown(values: Tensor) -> str:
    """Return the number that says most: NaN, then the largest."""
    worst = values[values.isnan()][0] if values.isnan().any() else values.flatten()[values.abs().argmax()]
    return f"{worst.item() + 0.0:.3g}"


def each(values: Tensor) -> str:
    """Return the numbers side by side."""
    return ", ".join(f"{value:.3g}" for value in values.tolist())


def identical(loss: Loss) -> Finding:
    """Look for a cost of identical boxes, by side."""
    costs = torch.stack([loss(box, box).flatten()[0] for box in (boxes((0, 0, s, s)) for s in (1e-4, 1e-2, 1, 1e3))])
    return Finding(not costs.any(), each(costs))


def no_push(loss: Loss) -> Finding:
    """Look for a gradient at a perfect match."""
    box = boxes((0, 0, 100, 100), (3, 5, 70, 20))
    gradient = slopes(loss, box, box)
    return Finding(not gradient.any(), f"{shown(gradient)}")


def points(loss: Loss) -> Finding:
    """Look for NaN in the value and the gradient of boxes that collapsed."""
    pred = boxes((5, 5, 5, 5), (5, 5, 9, 5), (4, 4, 4, 4))
    target = boxes((4, 4, 10, 8), (4, 4, 10, 8), (4, 4, 4, 4))
    value, gradient = loss(pred, target).flatten(), slopes(loss, pred, target)
    largest = torch.cat([value, gradient.flatten()])
    return Finding(bool((largest.abs() < 100).all()), f"value or slope {shown(largest)}")


def equal_points(loss: Loss) -> Finding:
    """Look at what two equal points cost."""
    cost = loss(boxes((4, 4, 4, 4)), boxes((4, 4, 4, 4)))
    return Finding(cost.item() == 0, f"{shown(cost)}")


def grows(loss: Loss) -> Finding:
    """Look whether a line inside its target is pulled to both sides."""
    gradient = slopes(loss, boxes((4, 0, 4, 4)), boxes((2, 0, 6, 4)))[0]
    return Finding(bool(gradient[0] > 0 > gradient[2]), "no slope" if not gradient.any() else shown(gradient))


def inverted(loss: Loss) -> Finding:
    """Look whether a box with exchanged corners passes for its target."""
    cost = loss(boxes((4, 4, 0, 0)), boxes((0, 0, 4, 4)))
    return Finding(bool(cost >= 1), f"costs {shown(cost)}")


def units(loss: Loss) -> Finding:
    """Look how much the unit of the coordinates changes a loss."""
    pred, target = boxes((0, 0, 10, 10)), boxes((2, 3, 9, 11))
    costs = torch.cat([loss(pred * unit, target * unit).flatten() for unit in (1e-10, 1e-4, 1, 1e15, 1e19)])
    return Finding(bool((costs - costs[2]).abs().max() < 1e-6), each(costs))


def map_coordinates(loss: Loss) -> Finding:
    """Look how much of a loss is left far from the origin."""
    pred, target = boxes((5e6, 0, 5e6 + 2.5, 2)), boxes((5e6 + 0.5, 0, 5e6 + 3, 2))
    error = (loss(pred, target) - loss(pred.double(), target.double())).abs()
    return Finding(bool(error < 1e-6), f"off by {shown(error)}")


def half(loss: Loss) -> Finding:
    """Look what boxes of an image cost in float16."""
    pred, target = boxes((0, 0, 600, 600)), boxes((10, 10, 610, 600))
    cost = loss(pred.half(), target.half())
    return Finding(bool((cost - loss(pred, target)).abs() < 1e-3), f"{shown(cost)} for {shown(loss(pred, target))}")


def integers(loss: Loss) -> Finding:
    """Look whether integer boxes cost what they cost in float64."""
    pred, target = torch.tensor([[0, 0, 100, 100]]), torch.tensor([[10, 10, 90, 120]])
    error = (loss(pred.to(torch.uint8), target.to(torch.uint8)) - loss(pred.double(), target.double())).abs()
    return Finding(bool(error < 1e-6), f"uint8 off by {shown(error)}")


def never_below_zero(loss: Loss) -> Finding:
    """Look for negative losses among pairs that share edges."""
    pred, target = ordinary(100_000)
    share = torch.rand(pred.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    cost = loss(pred, torch.where(share, pred, target))
    below, undefined = int((cost < 0).sum()), int(cost.isnan().sum())
    return Finding(below == undefined == 0, f"of 100,000 {below:,} below 0, {undefined:,} NaN")


def far_and_slender(loss: Loss) -> Finding:
    """Look whether slender boxes far apart have a gradient."""
    gradient = slopes(loss, boxes((0, 0, 1, 100)), boxes((2000, 2000, 2100, 2001)))
    return Finding(bool(gradient.any()) and bool(gradient.isfinite().all()), "no slope")


def bad_row(loss: Loss) -> Finding:
    """Look for rows that a NaN in another row reaches."""
    pred, target = ordinary(20)
    expected = loss(pred, target)
    pred[7, 2] = math.nan
    others = torch.arange(20) != 7
    reached = loss(pred, target)[others] != expected[others]
    return Finding(not reached.any(), f"{int(reached.sum())} other rows changed")


def one_to_one(loss: Loss) -> Finding:
    """Look whether a wrong shape is an error."""
    pred, target = ordinary(3)
    try:
        result = loss(pred, target[:1])
    except (ValueError, AssertionError):
        return Finding(True, "")
    return Finding(False, f"broadcasts to {tuple(result.shape)}")


def per_box(loss: Loss) -> Finding:
    """Look at the shape of the losses."""
    shape = tuple(loss(*ordinary(3)).shape)
    return Finding(shape == (3,), f"{shape} for 3 boxes")


def one_graph(loss: Loss) -> Finding:
    """Look whether torch.compile makes one graph."""
    torch._dynamo.reset()
    torch.compile(loss, backend="eager", fullgraph=True)(*ordinary(5))
    return Finding(True, "")


def every_box_alone(loss: Loss) -> Finding:
    """Look whether vmap over single boxes gives what the call gives."""
    pred, target = ordinary(5)
    value = torch.vmap(loss)(pred[:, None], target[:, None])
    return Finding(torch.allclose(value.flatten(), loss(pred, target).flatten()), "another value")


PROBES = (
    Probe(
        "Identical boxes cost exactly 0 (sides of 1e-4, 0.01, 1, 1000)",
        "tests/test_properties.py::test_an_identical_pair_costs_exactly_0_with_gradient_exactly_0",
        identical,
    ),
    Probe(
        "A perfect box has a gradient of exactly 0",
        "tests/test_properties.py::test_an_identical_pair_costs_exactly_0_with_gradient_exactly_0",
        no_push,
    ),
    Probe(
        "Two equal points cost 0",
        "tests/test_properties.py::test_an_identical_pair_without_area_costs_exactly_0_with_finite_gradient",
        equal_points,
    ),
    Probe(
        "Points and lines have ordinary values and slopes",
        "tests/test_kinks.py::test_degenerate_boxes_have_the_value_and_gradient_of_the_definition",
        points,
    ),
    Probe(
        "A box that collapsed can grow again",
        "tests/test_kinks.py::test_a_box_that_collapsed_inside_its_target_can_grow",
        grows,
        "DIoU",
    ),
    Probe(
        "A box with exchanged corners is no good box",
        "tests/test_kinks.py::test_an_inverted_box_counts_as_a_box_without_area",
        inverted,
        "GIoU",
    ),
    Probe(
        "The unit does not matter (1e-10, 1e-4, 1, 1e15, 1e19)",
        "tests/test_properties.py::test_any_unit_gives_the_same_value",
        units,
    ),
    Probe(
        "Map coordinates keep their digits",
        "tests/test_dtypes_and_formats.py::test_map_coordinates_keep_their_digits",
        map_coordinates,
    ),
    Probe(
        "float16 has no range of its own",
        "tests/test_dtypes_and_formats.py::test_float16_has_no_range_of_its_own",
        half,
    ),
    Probe(
        "Integers are exact",
        "tests/test_dtypes_and_formats.py::test_areas_and_differences_of_integers_do_not_overflow",
        integers,
    ),
    Probe(
        "No loss is below 0 or NaN where edges are shared",
        "tests/test_properties.py::test_no_value_is_out_of_range",
        never_below_zero,
    ),
    Probe(
        "Disjoint boxes have a gradient wherever they are",
        "tests/test_gradients.py::test_disjoint_boxes_have_a_gradient_wherever_they_are",
        far_and_slender,
    ),
    Probe(
        "NaN stays in its row",
        "tests/test_inputs.py::test_nan_gives_nan_in_its_own_row_and_nowhere_else",
        bad_row,
    ),
    Probe("No silent broadcast", "tests/test_errors.py::test_pred_and_target_never_broadcast", one_to_one),
    Probe("One loss per box, shape (N,)", "tests/test_api.py::test_reductions", per_box),
    Probe(
        "One graph under torch.compile",
        "tests/test_torch_machinery.py::test_compile_makes_one_graph_for_any_number_of_boxes",
        one_graph,
    ),
    Probe("vmap is the loss of each", "tests/test_torch_machinery.py::test_vmap_is_the_loss_of_each", every_box_alone),
)


def answer(probe: Probe, package: Package) -> str:
    """Return a cell of the table."""
    if probe.of not in package.losses:
        return "not asked"
    try:
        finding = probe.find(package.losses[probe.of])
    except Exception as error:  # an answer too, whatever it is
        return f"no: {type(error).__name__}"
    return "yes" if finding.holds else f"no: {finding.shown}"


def rows() -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table."""
    columns = list(packages())
    head = ["promise", "of", "test", *(package.name for package in columns)]
    return head, [[probe.promise, probe.of, probe.test, *(answer(probe, p) for p in columns)] for probe in PROBES]


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Return the table for a page: answers first, the long names of the tests last."""
    lines = [[*row[:2], *row[3:], row[2]] for row in (head, ["---"] * len(head), *body)]
    lines[2:] = [[*cells, f"`{test}`"] for *cells, test in lines[2:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def between_markers(path: Path, text: str) -> None:
    """Put the text between the two markers of the page."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} must have the lines {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run the probes, print the table, and write it where wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="renew the table between this file's markers")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the other packages
    head, body = rows()
    table = Table(*head[:2], *head[3:])
    for promise, of, _, *answers in body:
        table.add_row(promise, of, *answers)
    Console().print(table)
    if options.markdown:
        between_markers(options.markdown, markdown(head, body))


if __name__ == "__main__":
    main()
