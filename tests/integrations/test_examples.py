"""Each example runs from one command, shows its help, and trains. `ddp_train.py` is in `test_distributed.py`."""

import math
import re
import runpy
import sys

import pytest
from conftest import EXAMPLES

pytest.importorskip("sklearn")  # the digits


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example as a program, in an empty folder; returns what it printed."""

    def run_example(example, *options):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [example, *options])
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
        return capsys.readouterr().out

    return run_example


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "library", "options", "pattern"),
    [
        ("torchvision_finetune.py", "torchvision", ["--steps", "2"], r"bbox_regression ([\d.]+)"),
        ("detr_step.py", "transformers", ["--steps", "2"], r"box ([\d.]+)"),
        ("detr_step.py", "transformers", ["--model", "detr", "--loss", "giou", "--steps", "2"], r"box ([\d.]+)"),
        ("yolo_train.py", "ultralytics", ["--epochs", "2", "--scenes", "8"], r"epoch: ([\d.]+) ([\d.]+)"),
    ],
)
def test_an_example_trains(example, library, options, pattern, run):
    pytest.importorskip(library)
    found = re.findall(pattern, run(example, *options))
    losses = [float(value) for match in found for value in ([match] if isinstance(match, str) else match)]
    assert len(losses) == 2
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)


@pytest.mark.parametrize(
    ("example", "library"),
    [
        ("torchvision_finetune.py", "torchvision"),
        ("yolo_train.py", "ultralytics"),
        ("detr_step.py", "transformers"),
        ("ddp_train.py", "torch"),
    ],
)
def test_an_example_shows_its_help(example, library, run, capsys):
    pytest.importorskip(library)
    with pytest.raises(SystemExit):
        run(example, "--help")
    shown = capsys.readouterr().out
    assert "usage:" in shown
    assert (EXAMPLES / example).read_text().split('"""')[1].split("\n")[0] in shown
