"""ultralytics' YOLO with another box loss: real trainings of models built from shipped YAMLs, on digit scenes."""

import copy
import csv
import io
import pickle

import pytest
import torch

import iou_losses

ultralytics = pytest.importorskip("ultralytics")
pytest.importorskip("sklearn")  # the digits

from ultralytics import YOLO  # noqa: E402
from ultralytics.cfg import get_cfg  # noqa: E402
from ultralytics.models.yolo.detect import DetectionTrainer  # noqa: E402
from ultralytics.nn.tasks import DetectionModel, PoseModel, SegmentationModel, load_checkpoint  # noqa: E402
from ultralytics.utils.loss import BboxLoss, E2ELoss, v8DetectionLoss  # noqa: E402
from ultralytics.utils.metrics import bbox_iou  # noqa: E402
from ultralytics.utils.tal import TaskAlignedAssigner  # noqa: E402
from yolo_train import write_scenes  # noqa: E402

from iou_losses.integrations.changed import Changed  # noqa: E402
from iou_losses.integrations.ultralytics import EVENT, ChosenBoxLoss, use_box_loss  # noqa: E402

QUIET = {"device": "cpu", "workers": 0, "amp": False, "plots": False, "verbose": False, "exist_ok": True}
PLAIN = {  # no augmentation, no mosaic, no warm-up
    **dict.fromkeys(("hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "erasing", "mosaic"), 0.0),
    **{"auto_augment": None, "warmup_epochs": 0, "optimizer": "AdamW", "lr0": 2e-3, "batch": 8},
}
END_TO_END = ("yolo26n.yaml", "yolov10n.yaml")


def own_ciou(pred, target, reduction):
    """Ultralytics' own, as a loss."""
    assert reduction == "none"
    return 1.0 - bbox_iou(pred, target, xywh=False, CIoU=True).squeeze(-1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("digits"), 64)


def train(model, data, folder, **options):
    model.train(data=str(data), imgsz=96, project=str(folder), name="run", **QUIET, **options)
    with model.trainer.csv.open() as file:
        return [{k: float(v) for k, v in row.items() if k != "time"} for row in csv.DictReader(file)]


def detection_model(name="yolov8n.yaml", kind=DetectionModel):
    torch.manual_seed(0)
    model = kind(name, nc=10, verbose=False)
    model.args = get_cfg()
    return model.train()


def loss_batch(empty=()):
    """Two images with two boxes and one, in cxcywh of the image; those named have none."""
    index, boxes = (
        torch.tensor([0.0, 0, 1]),
        torch.tensor([[0.3, 0.4, 0.2, 0.3], [0.6, 0.5, 0.3, 0.4], [0.5, 0.5, 0.4, 0.4]]),
    )
    kept = torch.tensor([int(i) not in empty for i in index])
    images = torch.rand(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    return {
        "img": images,
        "batch_idx": index[kept],
        "cls": torch.tensor([[1.0], [2], [0]])[kept],
        "bboxes": boxes[kept],
    }


def criteria(model):
    return (
        [model.criterion.one2many, model.criterion.one2one]
        if isinstance(model.criterion, E2ELoss)
        else [model.criterion]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n.yaml", "yolo26n.yaml"])
def test_with_its_own_ciou_a_training_is_the_same(name, digits, tmp_path):
    """Every value of results.csv but the time, with ultralytics' own augmentation."""
    untouched = train(YOLO(name), digits, tmp_path / "untouched", epochs=2)
    model = YOLO(name)
    assert use_box_loss(model, own_ciou) is model
    changed = train(model, digits, tmp_path / "changed", epochs=2)
    assert len(changed) == 2
    assert changed == untouched


@pytest.mark.slow
def test_ours_trains(digits, tmp_path, capsys):
    model = use_box_loss(YOLO("yolov8n.yaml"), iou_losses.CIoULoss())
    losses = [row["train/box_loss"] for row in train(model, digits, tmp_path, epochs=6, **PLAIN)]
    with capsys.disabled():
        print("\nyolov8n with CIoU, mean box loss of each epoch:", *(f"{loss:.4f}" for loss in losses))
    assert losses[-1] < losses[1]
    for which in (model.trainer.model, model.trainer.ema.ema):
        assert isinstance(which.criterion.bbox_loss, Changed)
    # The checkpoint has no part of this package: it loads where iou_losses is not installed.
    assert b"iou_losses" not in model.trainer.best.read_bytes()
    saved, _ = load_checkpoint(model.trainer.best)
    assert not any(isinstance(module, Changed) for module in saved.modules())


@pytest.mark.slow
@pytest.mark.parametrize("name", END_TO_END)
def test_an_end_to_end_model_trains(name, digits, tmp_path):
    """Both heads, scored by the same similarity."""
    model = use_box_loss(YOLO(name), iou_losses.CIoULoss(), assigner=True)
    rows = train(model, digits, tmp_path, epochs=1, **PLAIN)
    assert 0 < rows[0]["train/box_loss"] < float("inf")
    for which in (model.trainer.model, model.trainer.ema.ema):
        for part in criteria(which):
            assert isinstance(part.bbox_loss, Changed)
            assert isinstance(part.assigner, Changed)


@pytest.mark.parametrize("name", ["yolov8n.yaml", "yolo11n.yaml", *END_TO_END])
def test_the_box_term_alone_is_another_one(name):
    model, other = detection_model(name), detection_model(name)
    before, items = other.loss(loss_batch())
    same, same_items = use_box_loss(model, own_ciou).loss(loss_batch())
    assert torch.equal(same, before)
    assert items.keys() == same_items.keys()
    assert all(torch.equal(items[key], same_items[key]) for key in items)
    before.sum().backward()
    same.sum().backward()
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        assert (parameter.grad is None) is (expected.grad is None)
        assert parameter.grad is None or torch.equal(parameter.grad, expected.grad)
    after, _ = use_box_loss(model, iou_losses.GIoULoss()).loss(loss_batch())
    assert after[0] != before[0]
    assert torch.equal(after[1:], before[1:])  # classes, and DFL or L1
    twice, _ = use_box_loss(model, iou_losses.GIoULoss(loss_weight=2.0)).loss(loss_batch())
    torch.testing.assert_close(twice[0], 2 * after[0])


@pytest.mark.parametrize(("name", "kind"), [("yolov8n-seg.yaml", SegmentationModel), ("yolov8n-pose.yaml", PoseModel)])
def test_models_with_masks_and_keypoints_have_the_same_criterion(name, kind):
    model = use_box_loss(detection_model(name, kind), iou_losses.CIoULoss())
    assert isinstance(model.criterion, v8DetectionLoss)
    assert isinstance(model.criterion.bbox_loss, Changed)


@pytest.mark.parametrize(
    "loss",
    [lambda p, t, reduction: iou_losses.ciou_loss(p, t), lambda p, t, reduction: iou_losses.ciou_loss(p, t)[:, None]],
)
def test_a_column_and_a_row_of_losses_are_the_same(loss):
    """A loss of shape (N,) beside weights of shape (N, 1) would broadcast to (N, N)."""
    model = detection_model()
    expected, _ = use_box_loss(model, iou_losses.ciou_loss).loss(loss_batch())
    found, _ = use_box_loss(model, loss).loss(loss_batch())
    assert torch.equal(found, expected)


@pytest.mark.parametrize("empty", [(0,), (0, 1)], ids=["one of two", "all"])
@pytest.mark.parametrize("name", ["yolov8n.yaml", "yolo26n.yaml"])
def test_images_without_objects_keep_the_graph(name, empty):
    model = use_box_loss(detection_model(name), iou_losses.CIoULoss(), assigner=True)
    loss, _ = model.loss(loss_batch(empty))
    assert torch.isfinite(loss).all()
    assert loss.requires_grad
    if len(empty) == 2:
        assert loss[0] == 0
    loss.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_assigner_is_left_alone_unless_asked():
    model = use_box_loss(detection_model(), iou_losses.GIoULoss())
    assert type(model.criterion.assigner) is TaskAlignedAssigner
    use_box_loss(model, iou_losses.GIoULoss(loss_weight=3.0), assigner=True)
    assigner = model.criterion.assigner
    assert isinstance(assigner, TaskAlignedAssigner)
    true, pred = torch.tensor([[0.0, 0, 1, 1], [0, 0, 2, 1]]), torch.tensor([[3.0, 0, 4, 1], [0, 0, 2, 2]])
    torch.testing.assert_close(assigner.iou_calculation(true, pred), torch.tensor([0.0, 0.5]))
    use_box_loss(model, iou_losses.GIoULoss())  # the last call counts
    assert type(model.criterion.assigner) is TaskAlignedAssigner


def test_the_assigner_with_ciou_scores_as_before():
    model = detection_model()
    before, _ = use_box_loss(model, iou_losses.CIoULoss()).loss(loss_batch())
    after, _ = use_box_loss(model, iou_losses.CIoULoss(), assigner=True).loss(loss_batch())
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_a_second_call_replaces_the_first_everywhere():
    yolo = YOLO("yolov8n.yaml")
    others = list(yolo.callbacks[EVENT])
    use_box_loss(yolo, iou_losses.ciou_loss)
    use_box_loss(yolo, iou_losses.CIoULoss(), assigner=True)
    (chosen,) = (callback for callback in yolo.callbacks[EVENT] if callback not in others)
    assert isinstance(chosen.term.loss, iou_losses.CIoULoss)
    assert chosen.assigner
    model = use_box_loss(use_box_loss(detection_model(), iou_losses.ciou_loss), iou_losses.CIoULoss())
    assert type(model.criterion.bbox_loss).original is BboxLoss


def test_a_trainer_is_changed_before_and_in_a_training(digits, tmp_path):
    options = {
        "model": "yolov8n.yaml",
        "data": str(digits),
        "imgsz": 96,
        "epochs": 1,
        "project": str(tmp_path),
        **QUIET,
    }
    trainer = DetectionTrainer(overrides=options)
    assert use_box_loss(trainer, iou_losses.CIoULoss()) is trainer
    trainer._setup_train()
    use_box_loss(trainer, iou_losses.GIoULoss())
    for model in (trainer.model, trainer.ema.ema):
        assert isinstance(model.criterion.bbox_loss.chosen_box_loss.loss, iou_losses.GIoULoss)


def test_the_callback_goes_to_the_processes_of_ddp():
    """Ultralytics writes its callbacks to a file that each process reads."""
    cloudpickle = pytest.importorskip("cloudpickle")
    yolo = use_box_loss(YOLO("yolov8n.yaml"), iou_losses.CIoULoss(loss_weight=2.0), assigner=True)
    file = io.BytesIO()
    torch.save({"callbacks": yolo.callbacks}, file, pickle_module=cloudpickle)
    file.seek(0)
    callbacks = torch.load(file, weights_only=False)["callbacks"]
    (chosen,) = (callback for callback in callbacks[EVENT] if isinstance(callback, ChosenBoxLoss))
    assert chosen.assigner
    assert chosen.term.loss.loss_weight == 2


def test_a_changed_model_is_copied_and_pickled():
    model = use_box_loss(detection_model(), iou_losses.CIoULoss(), assigner=True)
    keys = list(detection_model().state_dict())
    assert list(model.state_dict()) == keys
    expected, _ = model.loss(loss_batch())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        found, _ = twin.loss(loss_batch())
        torch.testing.assert_close(found, expected)


def test_a_loss_with_a_state_learns_in_training_only():
    loss = iou_losses.WIoULoss(version=3, momentum=0.5)
    model = use_box_loss(detection_model(), loss, assigner=True)
    model.criterion.assigner.iou_calculation(torch.rand(3, 4), torch.rand(3, 4))
    use_box_loss(model, loss)
    with torch.no_grad():  # a validation
        model.loss(loss_batch())
    assert loss.mean == 1
    model.loss(loss_batch())
    assert loss.mean != 1


def test_what_is_not_supported_is_named():
    supported = r"a YOLO object, a trainer or a model of ultralytics: .*detection, segmentation and pose.*got "
    for model, name in ((YOLO("yolov8n-cls.yaml"), "ClassificationModel"), (YOLO("yolov8n-obb.yaml"), "OBBModel")):
        with pytest.raises(TypeError, match=supported + name):
            use_box_loss(model, iou_losses.ciou_loss)
    for other in (torch.nn.Identity(), None):
        with pytest.raises(TypeError, match=supported + type(other).__name__):
            use_box_loss(other, iou_losses.ciou_loss)
    with pytest.raises(TypeError, match=r"CIoULoss\(\), not the class"):
        use_box_loss(detection_model(), iou_losses.CIoULoss)
    with pytest.raises(ValueError, match="the loss expects 'cxcywh'"):
        use_box_loss(detection_model(), iou_losses.CIoULoss(fmt="cxcywh"))
    with pytest.raises(ValueError, match="loss_weight other than 0"):
        use_box_loss(detection_model(), iou_losses.CIoULoss(loss_weight=0.0), assigner=True)
    with pytest.raises(ValueError, match="no `args`"):
        use_box_loss(DetectionModel("yolov8n.yaml", verbose=False), iou_losses.ciou_loss)


def test_without_ultralytics_the_error_says_what_to_install(import_without):
    with pytest.raises(ModuleNotFoundError, match=r"needs ultralytics, tested with 8\.4\.190: pip install ultralytics"):
        import_without("ultralytics", "ultralytics")
