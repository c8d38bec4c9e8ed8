"""The example that trains a detector: with every loss, state and progress included."""

import sys
from pathlib import Path

import pytest
import torch
from rich.progress import Progress

import iou_losses
from iou_losses import BoxLoss

fcos = pytest.importorskip("torchvision.models.detection.fcos", reason="the detector is torchvision's")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import train_detector  # noqa: E402
from train_detector import LOSSES, build_model, train, write_markdown  # noqa: E402


def trained(name, steps):
    torch.manual_seed(0)
    model = build_model(LOSSES[name]())
    return model, train(model, steps, 0, Progress(disable=True), name)


def test_every_public_loss_can_be_chosen():
    public = {kind for kind in vars(iou_losses).values() if isinstance(kind, type) and issubclass(kind, BoxLoss)}
    losses = [build() for build in LOSSES.values()]
    assert {type(loss) for loss in losses if loss is not None} == public - {BoxLoss}
    assert len({repr(loss) for loss in losses}) == len(LOSSES)


def test_the_baseline_is_torchvisions_own_head():
    assert type(build_model(LOSSES["torchvision"]()).head) is fcos.FCOSHead


@pytest.mark.slow
def test_ours_trains_what_torchvision_has_built_in():
    (_, theirs), (_, ours) = trained("torchvision", 3), trained("giou", 3)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_a_running_mean_is_a_part_of_the_model_and_moves():
    model, _ = trained("wiou-3", 1)
    (mean,) = (value for name, value in model.state_dict().items() if name.endswith("mean") and not value.dim())
    assert 0.9 < mean < 1


@pytest.mark.slow
def test_the_progress_follows_the_steps():
    model, _ = trained("unified", 2)
    (loss,) = (part for part in model.modules() if isinstance(part, iou_losses.UnifiedIoULoss))
    assert loss.progress == 0.5


def test_the_comparison_is_written_between_the_markers(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- compare:begin -->\nold\n<!-- compare:end -->\nafter\n")
    result = {"loss": "ciou", "seed": 3, "steps": 1000, "map": 0.5, "map_50": 0.75, "map_75": 0.25}
    for _ in range(2):
        write_markdown([result], path)
    assert path.read_text() == (
        "before\n<!-- compare:begin -->\n\n1,000 steps of 8 scenes, seed 3:\n\n| loss | mAP | mAP@.5 | mAP@.75 |\n"
        "| --- | ---: | ---: | ---: |\n| ciou | 0.500 | 0.750 | 0.250 |\n\n<!-- compare:end -->\nafter\n"
    )


def test_a_page_without_markers_is_an_error_before_the_training(tmp_path, monkeypatch, capsys):
    (tmp_path / "page.md").write_text("no place for a table")
    monkeypatch.setattr(sys, "argv", ["train_detector.py", "--markdown", str(tmp_path / "page.md")])
    with pytest.raises(SystemExit):
        train_detector.main()
    assert "must have the lines" in capsys.readouterr().err
