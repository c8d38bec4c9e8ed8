"""The acceptance gate of examples/evaluate_watermarks.py: what it counts, what it prints, how it exits."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn")
pytest.importorskip("torchvision", reason="the detector is torchvision's")
pytest.importorskip("rich")
EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

import evaluate_watermarks  # noqa: E402
from evaluate_watermarks import SIZES, Scene, cost_of_moving, failures, shares_found  # noqa: E402

SMALL, LARGE = [10.0, 10, 20, 20], [40.0, 40, 80, 80]


def scene(found, truth):
    found, truth = (torch.tensor(boxes).reshape(-1, 4) for boxes in (found, truth))
    return Scene(found, torch.linspace(0.9, 0.5, len(found)), truth)


# Of six marks five are found at an IoU of 0.5 and four at 0.75.
SCENES = [
    scene([SMALL, LARGE], [SMALL, LARGE]),
    scene([[40.0, 40, 80, 64]], [LARGE, SMALL]),  # IoU 0.6 with the first, nothing near the second
    scene([SMALL, LARGE, SMALL], [SMALL, LARGE]),  # a mark found again
]


@pytest.fixture
def gate(monkeypatch):
    """Run the command on these scenes, without training."""
    monkeypatch.setattr(evaluate_watermarks, "train", lambda *arguments: None)
    monkeypatch.setattr(evaluate_watermarks, "build_model", lambda loss: None)
    monkeypatch.setattr(evaluate_watermarks, "detect", lambda *arguments: SCENES)

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["evaluate_watermarks.py", *options])
        return evaluate_watermarks.main()

    return run


@pytest.mark.parametrize(
    ("accept", "threshold", "status"),
    [(0.9, 0.5, 1), (0.83, 0.5, 0), (0.83, 0.75, 1), (0.66, 0.75, 0), (0, 0.5, 0), (1, 0.5, 1)],
)
def test_the_exit_status_is_the_decision(accept, threshold, status, gate, capsys):
    assert gate("--accept", str(accept), "--threshold", str(threshold)) == status
    last = capsys.readouterr().out.splitlines()[-1]
    count = 5 if threshold == 0.5 else 4
    assert last.startswith("rejected" if status else "accepted")
    assert f"{count} of 6 marks found at IoU {threshold:g}, accuracy={count / 6:.4f}" in last


def test_the_table_and_the_failures_are_printed(gate, capsys):
    gate("--threshold", "0.75", "--failures", "1")
    printed = capsys.readouterr().out
    for size in SIZES:
        assert f"│ {size}" in printed
    assert "scene 1: missed the mark at [40, 40, 80, 80], the nearest box has IoU 0.60" in printed
    assert "scene 1: missed the mark at [10, 10, 20, 20]" not in printed  # one was asked for
    assert "2 of 6 predicted boxes are no marks, or found ones again" in printed


def test_shares_are_those_of_marks_of_a_size():
    for size, marks, shares in (("small", 3, [2 / 3, 2 / 3]), ("large", 3, [1, 2 / 3]), ("all", 6, [5 / 6, 4 / 6])):
        found, count = shares_found(SCENES, (0.5, 0.75), SIZES[size])
        assert count == marks
        assert found.tolist() == pytest.approx(shares)


def test_what_was_missed_is_told():
    assert failures(SCENES, 0.5) == ["scene 1: missed the mark at [10, 10, 20, 20], no box near it"]


def test_small_marks_lose_more_for_the_same_pixels():
    assert cost_of_moving(SCENES, SIZES["small"]) == pytest.approx(8 / 12)
    assert cost_of_moving(SCENES, SIZES["large"]) == pytest.approx(38 / 42)


@pytest.mark.parametrize("options", [["--accept", "2"], ["--threshold", "0"], ["--steps", "0"], ["--scenes", "0"]])
def test_options_out_of_range_are_no_decision(options, gate):
    with pytest.raises(SystemExit) as exit_:
        gate(*options)
    assert exit_.value.code == 2


@pytest.mark.slow
def test_the_command_rejects_a_detector_that_learned_nothing():
    command = [sys.executable, str(EXAMPLES / "evaluate_watermarks.py"), "--steps", "1", "--scenes", "8"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    assert result.stdout.splitlines()[-1].startswith("rejected: 0 of ")
