"""The simulation is the paper's: its cases, its step rule, its order of the losses."""

import math
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import iou_losses

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import regression_simulation as simulation  # noqa: E402

PROGRAM = EXAMPLES / "regression_simulation.py"
FOUR = ("iou", "giou", "diou", "ciou")
both_formats = pytest.mark.parametrize("fmt", simulation.NAMES)


def final_errors(losses, fmt, points=15):
    centres = simulation.anchor_points(points, seed=0)
    return {name: simulation.simulate(simulation.LOSSES[name], centres, fmt).curve[-1].item() for name in losses}


def test_there_are_as_many_cases_as_in_the_paper():
    assert simulation.POINTS * simulation.PER_POINT == 1_715_000


def test_points_fill_the_disc_evenly():
    points = simulation.anchor_points(20_000, seed=0) - 10
    squares = points.square().sum(-1)
    assert squares.max() <= 9
    assert squares.mean().item() == pytest.approx(4.5, abs=0.05)  # uniform by area
    assert points.mean(0).abs().max() < 0.05


def test_anchors_have_every_area_and_ratio_and_targets_area_one():
    anchors, targets = simulation.cases(torch.tensor([[9.0, 11.0]]), "cxcywh")
    assert (anchors[:, :2] == torch.tensor([9.0, 11.0])).all()
    assert (targets[:, :2] == 10).all()
    torch.testing.assert_close(targets[:, 2] * targets[:, 3], torch.ones(343))
    shape = torch.stack((anchors[:, 2] * anchors[:, 3], anchors[:, 2] / anchors[:, 3], targets[:, 2] / targets[:, 3]))
    assert len({tuple(round(number, 4) for number in case) for case in shape.T.tolist()}) == 343
    for row, known in zip(shape, (simulation.AREAS, simulation.RATIOS, simulation.RATIOS), strict=True):
        torch.testing.assert_close(row.sort().values, known.repeat_interleave(49), rtol=1e-5, atol=0)


def test_rates_fall_after_160_and_180_steps():
    assert simulation.rates(200) == [0.1] * 160 + [0.01] * 20 + [0.001] * 20


@both_formats
def test_a_step_is_the_gradient_times_rate_and_two_minus_iou(fmt):
    boxes, targets = simulation.cases(simulation.anchor_points(3, seed=1), fmt)
    moved = simulation.descend(iou_losses.ciou_loss, boxes, targets, 0.1, fmt)
    leaf = boxes.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(iou_losses.ciou_loss(leaf, targets, "sum", fmt=fmt), leaf)
    pace = 0.1 * (2 - iou_losses.paired_iou(boxes, targets, fmt))
    torch.testing.assert_close(moved, boxes - pace[:, None] * gradient)
    assert not moved.requires_grad


def test_the_error_is_that_of_centre_and_size_in_both_formats():
    boxes, targets = simulation.cases(simulation.anchor_points(3, seed=1), "cxcywh")
    expected = (boxes - targets).abs().sum(-1)
    for fmt in simulation.NAMES:
        pair = simulation.formatted(boxes, fmt), simulation.formatted(targets, fmt)
        torch.testing.assert_close(simulation.errors(*pair, fmt).sum(-1), expected)


@pytest.mark.slow
def test_on_corners_the_order_is_the_papers():
    errors = final_errors(FOUR, "xyxy", points=100)
    assert errors["iou"] > errors["giou"] > errors["diou"] > errors["ciou"]


@pytest.mark.slow
def test_on_centre_and_size_it_takes_the_slip_to_put_giou_behind_diou():
    errors = final_errors((*FOUR, "giou_unclamped"), "cxcywh")
    assert errors["iou"] > errors["giou_unclamped"] > errors["diou"] > errors["giou"] > errors["ciou"]
    assert errors["giou_unclamped"] > 10 * errors["diou"]


@both_formats
def test_the_slip_shows_only_where_boxes_are_apart(fmt):
    boxes, targets = simulation.cases(simulation.anchor_points(20, seed=0), fmt)
    slipped, right = simulation.giou_unclamped(boxes, targets, fmt=fmt), iou_losses.giou_loss(boxes, targets, fmt=fmt)
    overlap = iou_losses.paired_iou(boxes, targets, fmt) > 0
    torch.testing.assert_close(slipped[overlap], right[overlap], rtol=0, atol=2e-6)
    assert ((slipped - right).abs()[~overlap] > 1e-3).float().mean() > 0.9


@pytest.mark.parametrize("name", simulation.LOSSES)
def test_every_loss_of_the_family_brings_the_boxes_closer(name):
    outcome = simulation.simulate(simulation.LOSSES[name], simulation.anchor_points(3, seed=0), "cxcywh", 20)
    assert outcome.curve.isfinite().all()
    assert outcome.curve[-1] < outcome.curve[0]


def test_blocks_and_threads_change_nothing(monkeypatch):
    points = simulation.anchor_points(7, seed=0)
    whole = simulation.simulate(iou_losses.giou_loss, points, "xyxy", 3)
    monkeypatch.setattr(simulation, "BLOCK", 2)
    heard = []
    split = simulation.simulate(iou_losses.giou_loss, points, "xyxy", 3, threads=2, done=heard.append)
    torch.testing.assert_close(split.curve, whole.curve, rtol=1e-5, atol=0)
    torch.testing.assert_close(split.surface, whole.surface, rtol=1e-5, atol=0)
    assert heard == [2, 2, 2, 1]
    assert whole.surface.sum().item() == pytest.approx(whole.curve[-1].item(), rel=1e-5)


@both_formats
@pytest.mark.parametrize("name", simulation.TORCHVISION)
def test_torchvisions_losses_take_the_same_way(name, fmt):
    pytest.importorskip("torchvision")
    points = simulation.anchor_points(5, seed=0)
    ours = simulation.simulate(simulation.LOSSES[name], points, fmt, 10)
    theirs = simulation.simulate(simulation.torchvision_loss(name), points, fmt, 10)
    torch.testing.assert_close(theirs.curve, ours.curve, rtol=1e-4, atol=0)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the simulation as a program; returns what it printed."""

    def run_simulation(*options):
        monkeypatch.setattr(sys, "argv", [PROGRAM.name, *map(str, options)])
        runpy.run_path(str(PROGRAM), run_name="__main__")
        return capsys.readouterr().out

    return run_simulation


@pytest.mark.slow
def test_the_program_reports_and_draws(run, tmp_path):
    pytest.importorskip("torchvision")  # which it is compared with
    shown = run("--points", 4, "--steps", 3, "--threads", 2, "--out", tmp_path, "--loss", "giou", "nwd")
    found = dict(re.findall(r"^loss=(\w+) final_error=([\d.]+) seconds=[\d.]+ cpu_seconds=[\d.]+$", shown, re.M))
    assert found.keys() == {"giou", "nwd"}
    assert all(math.isfinite(float(error)) and float(error) > 0 for error in found.values())
    assert "1,372 cases" in shown
    names = sorted(path.stem for path in tmp_path.iterdir())
    assert names == ["curves-dark", "curves-light", "surfaces-dark", "surfaces-light"]


@pytest.mark.parametrize(("option", "value"), [("--points", 2), ("--steps", 0), ("--loss", "l2"), ("--fmt", "xywh")])
def test_the_program_refuses(option, value, run, capsys):
    with pytest.raises(SystemExit) as stop:
        run(option, value)
    assert stop.value.code == 2
    assert option in capsys.readouterr().err


def test_the_program_shows_its_help(run, capsys):
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0
    assert simulation.__doc__.split("\n")[0] in capsys.readouterr().out
