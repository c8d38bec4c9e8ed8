"""torchvision's detectors with another box loss: nothing else may change."""

import copy
import functools
import io

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import iou_losses

detection = pytest.importorskip("torchvision.models.detection")

from torchvision.models import resnet18  # noqa: E402
from torchvision.models.detection.anchor_utils import AnchorGenerator  # noqa: E402
from torchvision.models.detection.fcos import FCOSHead  # noqa: E402
from torchvision.models.detection.roi_heads import RoIHeads  # noqa: E402
from torchvision.ops import complete_box_iou_loss, generalized_box_iou_loss  # noqa: E402

from iou_losses.integrations.changed import Changed  # noqa: E402
from iou_losses.integrations.torchvision import restore_box_loss, use_box_loss  # noqa: E402

SIDE = 96
RCNNS = ("fasterrcnn_mobilenet_v3_large_320_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn")
SINGLE_STAGE = (
    "retinanet_resnet50_fpn_v2",
    "retinanet_resnet50_fpn",
    "fcos_resnet50_fpn",
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)
# One of each kind of change, the fastest.
KINDS = (
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "retinanet_resnet50_fpn",
    "fcos_resnet50_fpn",
    "ssdlite320_mobilenet_v3_large",
)
BOX_TERMS = {"bbox_regression", "loss_box_reg"}


@functools.cache
def built(name):
    torch.manual_seed(0)
    options = {} if name.startswith("ssd") else {"min_size": SIDE, "max_size": SIDE}
    if "rcnn" in name:
        options |= {"box_batch_size_per_image": 16, "box_detections_per_img": 2}
    classes = 2 if name.startswith("keypoint") else 3
    return getattr(detection, name)(weights=None, weights_backbone=None, num_classes=classes, **options).train()


def model_of(name):
    return copy.deepcopy(built(name))


def batch(empty=()):
    """Two images with two boxes each; those named have none."""
    generator = torch.Generator().manual_seed(1)
    images = [torch.rand(3, SIDE, SIDE, generator=generator) for _ in range(2)]
    targets = []
    for index in range(2):
        boxes = torch.tensor([[10.0, 12, 52, 71], [41, 30, 90, 80]]) + index
        boxes = boxes[: 0 if index in empty else 2]
        targets.append(
            {
                "boxes": boxes,
                "labels": torch.ones(len(boxes), dtype=torch.int64),
                "masks": torch.ones(len(boxes), SIDE, SIDE, dtype=torch.uint8),
                "keypoints": torch.cat([boxes[:, None, :2].expand(-1, 17, 2) + 5, torch.ones(len(boxes), 17, 1)], -1),
            }
        )
    return images, targets


def losses_of(model, empty=()):
    torch.manual_seed(2)  # of the sampling
    return model(*batch(empty))


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(losses, others, but=frozenset()):
    assert losses.keys() == others.keys()
    for name in losses.keys() - but:
        assert torch.equal(losses[name], others[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("name", RCNNS + SINGLE_STAGE)
def test_every_builder_takes_a_step_with_ciou(name):
    model = model_of(name)
    before = losses_of(model)
    assert use_box_loss(model, iou_losses.CIoULoss()) is model
    losses = losses_of(model)
    assert_same(losses, before, but=BOX_TERMS)
    (term,) = BOX_TERMS & losses.keys()
    assert 0 < losses[term] < 3
    assert losses[term] != before[term]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    sum(losses.values()).backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())
    old = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert any(not torch.equal(value, old[key]) for key, value in model.state_dict().items())
    assert all(torch.isfinite(loss) for loss in losses_of(model).values())
    with torch.inference_mode():
        assert set(model.eval()(batch()[0])[0]) >= {"boxes", "scores", "labels"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcos_resnet50_fpn", "retinanet_resnet50_fpn_v2"])
def test_with_torchvisions_giou_nothing_changes(name):
    """Both of them train with GIoU: losses and all gradients are the untouched model's, bit for bit."""
    untouched, model = model_of(name), use_box_loss(model_of(name), generalized_box_iou_loss)
    before, losses = losses_of(untouched), losses_of(model)
    assert_same(losses, before)
    sum(before.values()).backward()
    sum(losses.values()).backward()
    expected, found = gradients(untouched), gradients(model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcos_resnet50_fpn", "retinanet_resnet50_fpn_v2"])
def test_our_giou_is_theirs_to_rounding(name):
    before, losses = losses_of(model_of(name)), losses_of(use_box_loss(model_of(name), iou_losses.giou_loss))
    assert_same(losses, before, but=BOX_TERMS)
    torch.testing.assert_close(losses["bbox_regression"], before["bbox_regression"], rtol=1e-6, atol=0)


def test_rpn_gets_a_loss_when_asked_and_only_then():
    model = model_of(KINDS[0])
    before = losses_of(model)
    with_box = losses_of(use_box_loss(model, iou_losses.ciou_loss))
    assert_same(with_box, before, but={"loss_box_reg"})
    with_both = losses_of(use_box_loss(model, iou_losses.ciou_loss, rpn=iou_losses.CIoULoss()))
    assert_same(with_both, with_box, but={"loss_rpn_box_reg"})
    assert with_both["loss_rpn_box_reg"] != before["loss_rpn_box_reg"]
    assert_same(losses_of(use_box_loss(model, iou_losses.ciou_loss)), with_box)  # the last call counts
    with pytest.raises(ValueError, match="FCOS has none"):
        use_box_loss(model_of("fcos_resnet50_fpn"), iou_losses.ciou_loss, rpn=iou_losses.ciou_loss)


class Recorder:
    """A loss that keeps what it was given."""

    def __call__(self, pred, target, reduction):
        self.pred, self.target = pred.detach(), target
        return iou_losses.ciou_loss(pred, target, reduction)


def decoded(deltas, places, weights):
    """Decode in the standard parametrisation (Girshick et al., 2014), in float64."""
    deltas, places = deltas.double() / torch.tensor(weights, dtype=torch.float64), places.double()
    size = places[:, 2:] - places[:, :2]
    centre = places[:, :2] + size / 2 + deltas[:, :2] * size
    half = size * deltas[:, 2:].exp() / 2
    return torch.cat([centre - half, centre + half], 1)


def test_the_box_head_decodes_the_sampled_proposals():
    """Against the untouched model's own samples and predictions, seen from outside."""
    untouched, recorder, rpn_recorder = model_of(KINDS[0]), Recorder(), Recorder()
    heads, seen = untouched.roi_heads, {}
    sample = heads.select_training_samples
    heads.select_training_samples = lambda *args: seen.setdefault("samples", sample(*args))
    heads.box_predictor.register_forward_hook(lambda module, args, output: seen.update(deltas=output[1]))
    losses_of(untouched)
    losses = losses_of(use_box_loss(model_of(KINDS[0]), recorder, rpn=rpn_recorder))

    proposals, matched, labels, _ = seen["samples"]
    positive = [label > 0 for label in labels]
    proposals = torch.cat([p[chosen] for p, chosen in zip(proposals, positive, strict=True)])
    deltas = seen["deltas"].reshape(-1, 3, 4)[torch.cat(positive), 1]  # all boxes are of class 1
    expected = decoded(deltas, proposals, (10, 10, 5, 5))
    torch.testing.assert_close(recorder.pred, expected.float(), rtol=1e-5, atol=1e-4)
    true = [t["boxes"][m[c]] for t, m, c in zip(batch()[1], matched, positive, strict=True)]
    torch.testing.assert_close(recorder.target, torch.cat(true), rtol=1e-5, atol=1e-4)
    per_box = iou_losses.ciou_loss(expected, recorder.target.double())
    torch.testing.assert_close(losses["loss_box_reg"].double(), per_box.sum() / 32, rtol=1e-4, atol=0)


def test_the_rpn_decodes_its_anchors():
    model = use_box_loss(model_of(KINDS[0]), iou_losses.ciou_loss, rpn=(recorder := Recorder()))
    rpn, anchors = model.rpn, torch.tensor([[0.0, 0, 10, 20], [5, 5, 40, 30], [8, 9, 30, 31]])
    boxes = torch.tensor([[1.0, 0, 11, 19]])
    labels, true = rpn.assign_targets_to_anchors([anchors], [{"boxes": boxes}])
    deltas = torch.tensor([[0.1, -0.2, 0.3, 0.4], [0.0, 0, 0, 0], [0.0, 0, 0, 0]])
    objectness = torch.tensor([[0.3], [0.2], [-0.1]])
    own, loss = rpn.compute_loss(objectness, deltas, labels, rpn.box_coder.encode(true, [anchors]))
    assert [label.tolist() for label in labels] == [[1, 0, 0]]
    torch.testing.assert_close(recorder.pred, decoded(deltas[:1], anchors[:1], (1, 1, 1, 1)).float())
    assert torch.equal(recorder.target, boxes)
    torch.testing.assert_close(loss, iou_losses.ciou_loss(recorder.pred, boxes, "sum") / 3)
    expected = nn.functional.binary_cross_entropy_with_logits(objectness[:, 0], torch.tensor([1.0, 0, 0]))
    torch.testing.assert_close(own, expected)


@pytest.mark.parametrize(("name", "weights"), [("retinanet_resnet50_fpn", (1, 1, 1, 1)), (KINDS[3], (10, 10, 5, 5))])
def test_single_stage_heads_decode_their_anchors(name, weights):
    recorder = Recorder()
    model = use_box_loss(model_of(name), recorder)
    head = model if name.startswith("ssd") else model.head.regression_head
    anchors = torch.tensor([[0.0, 0, 10, 20], [5, 5, 40, 30], [8, 9, 30, 31]])
    deltas = torch.tensor([[0.1, -0.2, 0.3, 0.4], [1, 1, 1, 1], [0.2, 0.1, -0.3, 0.2]])
    target = {"boxes": torch.tensor([[1.0, 0, 11, 19], [9, 9, 33, 30]]), "labels": torch.tensor([1, 2])}
    outputs = {"bbox_regression": deltas[None], "cls_logits": torch.zeros(1, 3, 3)}
    result = head.compute_loss([target], outputs, [anchors], [torch.tensor([0, -1, 1])])
    loss = result["bbox_regression"] if isinstance(result, dict) else result
    torch.testing.assert_close(recorder.pred, decoded(deltas[[0, 2]], anchors[[0, 2]], weights).float())
    assert torch.equal(recorder.target, target["boxes"])
    torch.testing.assert_close(loss, iou_losses.ciou_loss(recorder.pred, target["boxes"], "sum") / 2)


def test_retinanet_averages_over_images_and_ssd_over_boxes():
    anchors = torch.tensor([[0.0, 0, 10, 20], [5, 5, 40, 30]])
    target = {"boxes": torch.tensor([[1.0, 0, 11, 19], [9, 9, 33, 30]]), "labels": torch.tensor([1, 2])}
    outputs = {"bbox_regression": torch.zeros(2, 2, 4), "cls_logits": torch.zeros(2, 2, 3)}
    matched = [torch.tensor([0, 1]), torch.tensor([-1, 0])]
    each = iou_losses.ciou_loss(anchors[[0, 1, 1]], target["boxes"][[0, 1, 0]])

    def box_term(head):
        return head.compute_loss([target, target], outputs, [anchors, anchors], matched)

    retinanet = use_box_loss(model_of("retinanet_resnet50_fpn"), iou_losses.CIoULoss()).head.regression_head
    torch.testing.assert_close(box_term(retinanet), (each[:2].sum() / 2 + each[2]) / 2)
    ssd = use_box_loss(model_of(KINDS[3]), iou_losses.CIoULoss())
    torch.testing.assert_close(box_term(ssd)["bbox_regression"], each.sum() / 3)


@pytest.mark.parametrize("name", KINDS)
def test_loss_weight_counts_and_the_reduction_of_a_module_does_not(name):
    model = model_of(name)
    once = losses_of(use_box_loss(model, iou_losses.CIoULoss(reduction="none")))
    twice = losses_of(use_box_loss(model, iou_losses.CIoULoss(loss_weight=2.0)))
    (term,) = BOX_TERMS & once.keys()
    assert torch.equal(twice[term], 2 * once[term])
    assert_same(twice, once, but={term})


@pytest.mark.slow
@pytest.mark.parametrize("empty", [(0,), (0, 1)], ids=["one of two", "all"])
@pytest.mark.parametrize("name", [*KINDS, "maskrcnn_resnet50_fpn"])
def test_images_without_objects_keep_the_graph(name, empty):
    model = model_of(name)
    rpn = iou_losses.CIoULoss() if "rcnn" in name else None
    losses = losses_of(use_box_loss(model, iou_losses.CIoULoss(), rpn=rpn), empty)
    for term, loss in losses.items():
        assert torch.isfinite(loss), term
        assert loss.requires_grad, term
        if len(empty) == 2 and term in BOX_TERMS | {"loss_rpn_box_reg"}:
            assert loss == 0
    sum(losses.values()).backward()
    without = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@pytest.mark.parametrize("name", KINDS)
def test_a_function_then_a_module_then_the_original(name):
    model = model_of(name)
    types = [type(module) for module in model.modules()]
    keys = list(model.state_dict())
    before = losses_of(model)
    (term,) = BOX_TERMS & before.keys()
    first = losses_of(use_box_loss(model, iou_losses.ciou_loss))
    second = losses_of(use_box_loss(model, iou_losses.DIoULoss()))
    third = losses_of(use_box_loss(model, iou_losses.CIoULoss(loss_weight=3.0)))
    assert len({before[term].item(), first[term].item(), second[term].item(), third[term].item()}) == 4
    assert list(model.state_dict()) == keys
    assert restore_box_loss(model) is model
    assert restore_box_loss(model) is model  # nothing left to do
    assert [type(module) for module in model.modules()] == types
    assert_same(losses_of(model), before)


@pytest.mark.parametrize("name", KINDS)
def test_the_model_is_copied_saved_and_loaded(name):
    model = use_box_loss(model_of(name), iou_losses.CIoULoss())
    losses = losses_of(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twin, loaded = copy.deepcopy(model), torch.load(file, weights_only=False)
    assert_same(losses_of(loaded), losses)
    use_box_loss(model, iou_losses.giou_loss)  # the copy has its own
    assert_same(losses_of(twin), losses)
    restore_box_loss(loaded)
    assert not any(isinstance(module, Changed) for module in loaded.modules())
    restore_box_loss(model)
    assert_same(losses_of(model), losses_of(loaded))


def test_a_state_dict_fits_the_changed_and_the_untouched_model():
    untouched, changed = (
        model_of("fcos_resnet50_fpn"),
        use_box_loss(model_of("fcos_resnet50_fpn"), iou_losses.ciou_loss),
    )
    with torch.no_grad():
        changed.head.regression_head.bbox_reg.bias += 1
    untouched.load_state_dict(changed.state_dict(), strict=True)
    assert torch.equal(untouched.head.regression_head.bbox_reg.bias, changed.head.regression_head.bbox_reg.bias)
    changed.load_state_dict(built("fcos_resnet50_fpn").state_dict(), strict=True)


def test_the_state_of_a_loss_goes_with_the_model():
    loss = iou_losses.WIoULoss(version=3, momentum=0.5)
    model = use_box_loss(model_of("fcos_resnet50_fpn"), loss)
    losses_of(model)
    mean = loss.mean.clone()
    assert mean != 1
    (key,) = model.state_dict().keys() - built("fcos_resnet50_fpn").state_dict().keys()
    assert key.endswith("mean")
    assert not model.eval().head.chosen_box_loss.loss.training
    assert model.double().state_dict()[key].dtype == torch.float64


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*create_unbacked_symint")  # torchvision's nms for symbolic shapes
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile's own look at it
@pytest.mark.parametrize("name", KINDS)
def test_a_compiled_model_has_the_chosen_loss(name):
    torch.compiler.reset()
    rpn = iou_losses.CIoULoss() if "rcnn" in name else None
    before = losses_of(model_of(name))
    if rpn is not None:  # what torch compiles of the untouched model must not serve the changed one
        assert_same(losses_of(torch.compile(model_of(name), backend="eager")), before)
    model = use_box_loss(model_of(name), iou_losses.CIoULoss(), rpn=rpn)
    eager = losses_of(model)
    losses = losses_of(torch.compile(model, backend="eager"))
    torch.testing.assert_close(losses, eager)
    (term,) = BOX_TERMS & losses.keys()
    assert not torch.isclose(losses[term], before[term], rtol=1e-3)
    sum(losses.values()).backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@pytest.mark.parametrize("name", KINDS)
def test_autocast_decodes_in_float32(name):
    recorder = Recorder()
    model = use_box_loss(model_of(name), recorder)
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(model)
    assert recorder.pred.dtype == torch.float32
    (term,) = BOX_TERMS & losses.keys()
    assert losses[term].dtype == torch.float32
    assert torch.isfinite(losses[term])


class ScaledHead(FCOSHead):
    """A head of a user's own: its classification loss is doubled."""

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        losses = super().compute_loss(targets, head_outputs, anchors, matched_idxs)
        return {**losses, "classification": 2 * losses["classification"]}


class SmallFCOS(detection.FCOS):
    """A model of a user's own, small enough for float64."""

    def __init__(self):
        backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 4, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
        backbone.out_channels = 32
        super().__init__(
            backbone,
            3,
            min_size=SIDE,
            max_size=SIDE,
            anchor_generator=AnchorGenerator(sizes=((8,),), aspect_ratios=((1.0,),)),
            head=ScaledHead(32, 1, 3, 1),
        )


def test_subclasses_keep_their_own_methods():
    model = SmallFCOS()
    before = losses_of(model)
    losses = losses_of(use_box_loss(model, generalized_box_iou_loss))
    assert_same(losses, before)
    assert isinstance(model.head, ScaledHead)
    twin = copy.deepcopy(model)
    assert_same(losses_of(twin), before)


def test_float64_stays_float64():
    recorder = Recorder()
    model = use_box_loss(SmallFCOS().double(), recorder)
    images, targets = batch()
    losses = model([i.double() for i in images], [{**t, "boxes": t["boxes"].double()} for t in targets])
    assert recorder.pred.dtype == losses["bbox_regression"].dtype == torch.float64


class OtherHeads(RoIHeads):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


def test_what_is_not_supported_is_named():
    with pytest.raises(TypeError, match=r"FasterRCNN.*RetinaNet, FCOS and SSD.*got ResNet"):
        use_box_loss(resnet18(), iou_losses.ciou_loss)
    with pytest.raises(TypeError, match="got ResNet"):
        restore_box_loss(resnet18())
    model = SmallFCOS()
    with pytest.raises(TypeError, match=r"not wrapped.*got DataParallel"):
        use_box_loss(nn.DataParallel(model), iou_losses.ciou_loss)
    with pytest.raises(TypeError, match=r"CIoULoss\(\), not the class"):
        use_box_loss(model, iou_losses.CIoULoss)
    with pytest.raises(ValueError, match="the loss expects 'cxcywh'"):
        use_box_loss(model, iou_losses.CIoULoss(fmt="cxcywh"))
    assert not any(isinstance(module, Changed) for module in model.modules())
    model.head = nn.Identity()
    with pytest.raises(TypeError, match=r"SmallFCOS\.head must be a FCOSHead or of a subclass, got Identity"):
        use_box_loss(model, iou_losses.ciou_loss)
    rcnn = model_of(KINDS[0])
    own_rpn, rcnn.rpn = rcnn.rpn, nn.Identity()
    with pytest.raises(TypeError, match=r"FasterRCNN\.rpn must be a RegionProposalNetwork"):
        use_box_loss(rcnn, iou_losses.ciou_loss, rpn=iou_losses.ciou_loss)
    rcnn.rpn = own_rpn
    rcnn.roi_heads.__class__ = OtherHeads
    with pytest.raises(TypeError, match=r"OtherHeads overrides RoIHeads\.forward"):
        use_box_loss(rcnn, iou_losses.ciou_loss)


def test_other_models_are_not_touched():
    model, other = model_of(KINDS[0]), model_of(KINDS[0])
    before = losses_of(other)
    use_box_loss(model, iou_losses.ciou_loss, rpn=iou_losses.ciou_loss)
    assert_same(losses_of(other), before)
    logits, labels = torch.randn(4, 3), [torch.tensor([1, 0, 2, 0])]
    own = detection.roi_heads.fastrcnn_loss(logits, torch.zeros(4, 12), labels, [torch.zeros(4, 4)])
    torch.testing.assert_close(own[0], cross_entropy(logits, labels[0]))
    assert own[1] == 0


def first_boxes(model):
    """What a model predicts for its positives before any training, and the share that are points."""
    recorder = Recorder()
    losses_of(use_box_loss(model, recorder))
    points = (recorder.pred[:, 2:] == recorder.pred[:, :2]).all(1)
    return recorder.pred, points.float().mean().item()


@pytest.mark.slow
def test_fcos_trains_where_torchvisions_ciou_is_nan(capsys):
    """FCOS's ReLU collapses first predictions to points, and 0/0 has no angle."""
    lines, nans = [], 0
    for seed in range(8):
        torch.manual_seed(seed)
        model = detection.fcos_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=3, min_size=SIDE, max_size=SIDE
        ).train()
        boxes, points = first_boxes(model)
        theirs = losses_of(use_box_loss(model, complete_box_iou_loss))["bbox_regression"]
        ours = losses_of(use_box_loss(model, iou_losses.ciou_loss))["bbox_regression"]
        assert theirs.isnan() == (points > 0)
        assert ours.isfinite()
        nans += int(theirs.isnan())
        lines.append(f"  seed {seed}: {points:4.0%} of {len(boxes)} boxes are points, {theirs:.4f} and {ours:.4f}")
    assert nans > 4

    model = use_box_loss(model_of("fcos_resnet50_fpn"), iou_losses.ciou_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    steps = []
    for _ in range(5):
        losses = losses_of(model)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        steps.append(losses["bbox_regression"].item())
    assert steps[-1] < steps[0]
    with capsys.disabled():
        print(f"\nFCOS at random initialisation: torchvision's CIoU is NaN for {nans} of 8 seeds, ours for none")
        print(*lines, "  first steps with ours: " + " ".join(f"{value:.4f}" for value in steps), sep="\n")


def test_without_torchvision_the_error_says_what_to_install(import_without):
    with pytest.raises(ModuleNotFoundError, match=r"needs torchvision, tested with 0\.29\.1: pip install torchvision"):
        import_without("torchvision", "torchvision")
