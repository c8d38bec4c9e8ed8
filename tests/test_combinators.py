"""The modules that change another loss: Inner, Focaler, Unified, and WIoU's focus on any base."""

import copy
import inspect
import math
import pickle

import awkward
import pytest
import torch
from awkward import awkward_pairs
from cases import GOLDEN_PAIRS, ordinary_pairs
from torch import nn

import iou_losses
from iou_losses import (
    BoxLoss,
    CIoULoss,
    EIoULoss,
    FocalEIoULoss,
    FocalerIoULoss,
    GIoULoss,
    InnerIoULoss,
    IoULoss,
    NWDLoss,
    UnifiedIoULoss,
    WIoULoss,
    ciou_loss,
    iou_loss,
    native,
)

# Each around a base.
COMBINATORS = {
    "inner 0.7": lambda base: InnerIoULoss(base, 0.7),
    "inner 1.25": lambda base: InnerIoULoss(base, ratio=1.25),
    "focaler": FocalerIoULoss,
    "focaler 0.3 to 0.6": lambda base: FocalerIoULoss(base, d=0.3, u=0.6),
    "unified": UnifiedIoULoss,
    "unified focal": lambda base: UnifiedIoULoss(base, "cosine", quality="focal"),
    "unified inverse": lambda base: UnifiedIoULoss(base, quality="focal_inv", gamma=2.0),
    "wise 2": lambda base: WIoULoss(version=2, base=base),
    "wise 3": lambda base: WIoULoss(version=3, momentum=0.5, base=base),
    "nested": lambda base: InnerIoULoss(FocalerIoULoss(base), 0.7),
    "three deep": lambda base: WIoULoss(version=3, base=UnifiedIoULoss(InnerIoULoss(base, 1.25), "fraction")),
}
every_combinator = pytest.mark.parametrize("combine", COMBINATORS.values(), ids=COMBINATORS)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def resized(boxes, ratio):
    """The boxes scaled about their own centres."""
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    return torch.cat([centre - ratio * size / 2, centre + ratio * size / 2], -1)


def value_and_gradient(module, pred, target, **options):
    pred = pred.clone().requires_grad_()
    value = module(pred, target, **options)
    return value.detach(), torch.autograd.grad(value.sum(), pred)[0]


def at_progress(module, progress):
    module.progress = progress
    return module


# Values


@pytest.mark.parametrize(
    ("module", "golden"),
    [
        (InnerIoULoss(IoULoss("none"), 0.7), (0.619469027, 0.75, 1.0)),
        (InnerIoULoss(CIoULoss("none"), 0.7), (0.638705726, 0.7625, 1.365256669)),
        (InnerIoULoss(IoULoss("none"), 1.25), (0.502879079, 0.75, 0.954918033)),
        (FocalerIoULoss(IoULoss("none")), (0.517953763, 0.736842105, 1.0)),
        (UnifiedIoULoss(CIoULoss("none")), (0.445319801, 0.753125, 1.111055719)),
        (at_progress(UnifiedIoULoss(CIoULoss("none")), 1.0), (0.773945354, 0.8, 1.576929821)),
    ],
    ids=["inner 0.7 iou", "inner 0.7 ciou", "inner 1.25 iou", "focaler iou", "unified ciou begin", "unified ciou end"],
)
def test_golden_values(module, golden):
    close(module(*GOLDEN_PAIRS), torch.tensor(golden, dtype=torch.float64), 1e-9)


def test_the_focus_of_wiou_on_its_own_first_version_is_wiou():
    for version, golden in [(2, (0.406834843, 0.657688997, 1.235743918)), (3, (0.483592675, 0.80468435, 1.487011848))]:
        module = WIoULoss(version=version, base=WIoULoss("none")).eval()
        close(module(*GOLDEN_PAIRS), torch.tensor(golden, dtype=torch.float64), 1e-9)


@pytest.mark.parametrize("base", [IoULoss, GIoULoss, CIoULoss, EIoULoss, NWDLoss], ids=lambda base: base.__name__)
def test_each_is_its_definition_on_any_base(base):
    pred, target = ordinary_pairs(500, 1)
    loss, overlap = base("none"), 1 - iou_loss(pred, target)
    inner = 1 - iou_loss(resized(pred, 0.7), resized(target, 0.7))
    close(InnerIoULoss(loss, 0.7)(pred, target), loss(pred, target) + overlap - inner)
    mapped = ((overlap - 0.2) / 0.5).clamp(0, 1)
    close(FocalerIoULoss(loss, 0.2, 0.7)(pred, target), loss(pred, target) + overlap - mapped)
    scaled = loss(resized(pred, 1.25), resized(target, 1.25))
    close(at_progress(UnifiedIoULoss(loss), 0.5)(pred, target), scaled)
    close(WIoULoss(version=2, base=loss).eval()(pred, target), loss(pred, target) * (1 - overlap).sqrt())
    focus = (1 - overlap) / (3 * 1.9 ** (1 - overlap - 3))
    close(WIoULoss(version=3, base=loss).eval()(pred, target), loss(pred, target) * focus)


@pytest.mark.parametrize("base", [IoULoss, CIoULoss], ids=lambda base: base.__name__)
def test_gradients_are_those_of_the_definition_with_the_focus_frozen(base):
    pred, target = ordinary_pairs(200, 2)
    loss, leaf = base("none"), pred.clone().requires_grad_()
    share = 1 - iou_loss(pred, target)
    scaled_share = 1 - iou_loss(resized(pred, 2.0), resized(target, 2.0))
    plain, overlap = loss(leaf, target), 1 - iou_loss(leaf, target)
    inner = 1 - iou_loss(resized(leaf, 0.7), resized(target, 0.7))
    scaled = loss(resized(leaf, 2.0), resized(target, 2.0))
    definitions = [
        (InnerIoULoss(loss, 0.7), plain + overlap - inner),
        (FocalerIoULoss(loss), plain + overlap - (overlap / 0.95).clamp(0, 1)),
        (UnifiedIoULoss(loss), scaled),
        (UnifiedIoULoss(loss, quality="focal", gamma=0.5), (1 - scaled_share.sqrt()) * scaled),
        (UnifiedIoULoss(loss, quality="focal_inv", gamma=0.5), scaled_share.sqrt() * scaled),
        (WIoULoss(version=2, base=loss).eval(), (1 - share).sqrt() * plain),
        (WIoULoss(version=3, base=loss).eval(), (1 - share) / (3 * 1.9 ** (1 - share - 3)) * plain),
    ]
    for module, definition in definitions:
        (expected,) = torch.autograd.grad(definition.sum(), leaf, retain_graph=True)
        value, gradient = value_and_gradient(module, pred, target)
        close(value, definition.detach())
        close(gradient, expected)


def test_outside_of_its_interval_focaler_leaves_the_iou_without_gradient():
    pred, target = GOLDEN_PAIRS[0][:1], GOLDEN_PAIRS[1][:1]  # IoU 0.458
    for d, u, value in [(0.5, 0.9, 1.0), (0.1, 0.4, 0.0)]:
        found, gradient = value_and_gradient(FocalerIoULoss(IoULoss("none"), d, u), pred, target)
        assert found.item() == pytest.approx(value, abs=1e-15)
        close(gradient, torch.zeros_like(gradient))


def test_an_inner_ratio_above_1_gives_boxes_with_a_gap_a_gradient_of_the_iou():
    pred, target = torch.tensor([[0.0, 0, 4, 4]]), torch.tensor([[5.0, 0, 9, 4]])
    for ratio, pulls in [(0.7, False), (1.0, False), (1.5, True)]:
        _, gradient = value_and_gradient(InnerIoULoss(IoULoss(), ratio), pred, target)
        assert gradient.any() == pulls


def test_a_ratio_of_1_changes_nothing():
    pred, target = ordinary_pairs(200, 3)
    close(InnerIoULoss(CIoULoss(), 1.0)(pred, target), CIoULoss()(pred, target))
    close(at_progress(UnifiedIoULoss(CIoULoss()), 2 / 3)(pred, target), CIoULoss()(pred, target))


# The ratio of Unified-IoU


@pytest.mark.parametrize(
    ("schedule", "middle"),
    [("linear", 1.25), ("cosine", 1.25), ("fraction", 0.8)],
    ids=["linear", "cosine", "fraction"],
)
def test_the_ratio_falls_from_2_to_a_half(schedule, middle):
    module = UnifiedIoULoss(CIoULoss(), schedule)
    ratios = [at_progress(module, step / 100).ratio for step in range(101)]
    assert (ratios[0], ratios[50], ratios[100]) == pytest.approx((2, middle, 0.5))
    assert ratios == sorted(ratios, reverse=True)


def test_progress_starts_at_0_and_is_set_by_the_training_loop():
    module = UnifiedIoULoss(CIoULoss("none"))
    assert module.progress == 0
    before = module(*GOLDEN_PAIRS)
    module.progress = 7 / 10
    assert not torch.equal(module(*GOLDEN_PAIRS), before)
    assert copy.deepcopy(module).progress == pickle.loads(pickle.dumps(module)).progress == 0.7


@pytest.mark.parametrize("progress", [-0.1, 1.1, math.nan, math.inf])
def test_progress_is_a_share(progress):
    module = UnifiedIoULoss(CIoULoss())
    with pytest.raises(ValueError, match="progress must be"):
        module.progress = progress
    assert module.progress == 0


def test_progress_reaches_a_unified_loss_inside_another():
    outer = InnerIoULoss(UnifiedIoULoss(CIoULoss("none")), 0.7)
    before = outer(*GOLDEN_PAIRS)
    outer.base.progress = 1.0
    assert (outer(*GOLDEN_PAIRS) > before).all()


# Called like any loss


@every_combinator
def test_reduction_eps_format_and_weight_are_those_of_the_base(combine):
    pred, target = (boxes.float() for boxes in GOLDEN_PAIRS)
    per_box = combine(CIoULoss("none")).eval()(pred, target)
    close(combine(CIoULoss()).eval()(pred, target), per_box.mean(), 1e-6)
    close(combine(CIoULoss("sum", loss_weight=2.5)).eval()(pred, target), 2.5 * per_box.sum(), 1e-5)
    sized = [torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], -1) for boxes in (pred, target)]
    close(combine(CIoULoss("none", fmt="xywh")).eval()(*sized), per_box, 1e-6)
    with_eps = combine(CIoULoss("none", 10.0)).eval()(pred, target)
    assert ((with_eps - per_box).abs() > 1e-4).all()
    assert combine(CIoULoss("sum", 1e-3, fmt="xywh", loss_weight=2.0)).reduction == "sum"


def test_eps_joins_every_denominator():
    pred, target = GOLDEN_PAIRS
    loss, eps = CIoULoss("none", 10.0), {"eps": 10.0}
    inner = iou_loss(resized(pred, 0.7), resized(target, 0.7), **eps)
    close(InnerIoULoss(loss, 0.7)(pred, target), ciou_loss(pred, target, **eps) + inner - iou_loss(pred, target, **eps))
    close(UnifiedIoULoss(loss)(pred, target), ciou_loss(resized(pred, 2.0), resized(target, 2.0), **eps))
    focus = iou_loss(pred, target, **eps).sqrt()
    close(WIoULoss(version=2, base=loss).eval()(pred, target), ciou_loss(pred, target, **eps) * focus)


@every_combinator
def test_it_is_called_like_any_loss(combine):
    pred, target, weight = *GOLDEN_PAIRS, torch.tensor([2.0, 0, 0.5])
    module = combine(CIoULoss(loss_weight=2.0)).eval()
    assert isinstance(module, BoxLoss)
    names = ["pred", "target", "weight", "avg_factor", "reduction_override"]
    assert list(inspect.signature(module.forward).parameters) == names
    per_box = module(pred, target, None, None, "none")
    assert per_box.shape == (3,)
    close(module(pred, target), per_box.mean())
    close(module(pred, target, weight), (per_box * weight).sum() / 3)
    close(module(pred, target, weight, 4.0), (per_box * weight).sum() / 4)
    close(module(pred, target, weight, torch.tensor(4.0)), (per_box * weight).sum() / 4)
    close(module(pred, target, weight, 0), torch.zeros((), dtype=torch.float64))
    close(module(pred, target, weight[:, None].repeat(1, 4), None, "sum"), (per_box * weight).sum())
    assert module(pred.view(1, 3, 4), target.view(1, 3, 4), None, None, "none").shape == (1, 3)
    assert module(pred.bfloat16(), target.bfloat16()).dtype == torch.float32
    empty = torch.zeros(0, 4, requires_grad=True)
    module(empty, torch.zeros(0, 4)).backward()
    assert empty.grad.shape == (0, 4)


@every_combinator
def test_what_no_loss_takes_is_an_error_here_too(combine):
    module, (pred, target) = combine(CIoULoss()), GOLDEN_PAIRS
    with pytest.raises(ValueError, match="same shape"):
        module(pred, target[:2])
    with pytest.raises(ValueError, match="reduction must be"):
        module(pred, target, reduction_override="average")
    with pytest.raises(ValueError, match="avg_factor"):
        module(pred, target, None, 3.0, "sum")
    with pytest.raises(ValueError, match="weight must have the shape"):
        module(pred, target, torch.ones(2))
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor"):
        module(pred.tolist(), target)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: InnerIoULoss(ciou_loss, 0.7), TypeError, "base must be a BoxLoss module"),
        (lambda: FocalerIoULoss(CIoULoss), TypeError, "base must be a BoxLoss module"),
        (lambda: UnifiedIoULoss("ciou"), TypeError, "base must be a BoxLoss module"),
        (lambda: WIoULoss(version=3, base=nn.L1Loss()), TypeError, "base must be a BoxLoss module"),
        (lambda: InnerIoULoss(FocalEIoULoss(normalize=True), 0.7), ValueError, "weights of a whole batch"),
        (lambda: WIoULoss(version=3, base=FocalEIoULoss(normalize=True)), ValueError, "weights of a whole batch"),
        (lambda: InnerIoULoss(CIoULoss(), 0), ValueError, "ratio must be a finite number above 0, got 0"),
        (lambda: InnerIoULoss(CIoULoss(), math.nan), ValueError, "ratio must be"),
        (lambda: FocalerIoULoss(CIoULoss(), -0.1), ValueError, "d must be"),
        (lambda: FocalerIoULoss(CIoULoss(), 0, 1.1), ValueError, "u must be"),
        (lambda: FocalerIoULoss(CIoULoss(), 0.5, 0.5), ValueError, "d must be below u"),
        (lambda: UnifiedIoULoss(CIoULoss(), "steps"), ValueError, "schedule must be one of 'linear', 'cosine'"),
        (lambda: UnifiedIoULoss(CIoULoss(), quality="good"), ValueError, "quality must be one of 'none', 'focal'"),
        (lambda: UnifiedIoULoss(CIoULoss(), gamma=0), ValueError, "gamma must be"),
        (lambda: WIoULoss(version=1, base=CIoULoss()), ValueError, "version 1 has no focus"),
        (lambda: WIoULoss(version=4), ValueError, "version must be 1, 2 or 3"),
        (lambda: WIoULoss("sum", version=3, base=CIoULoss()), ValueError, "are the base's"),
        (lambda: WIoULoss(version=3, base=CIoULoss(), loss_weight=2.0), ValueError, "are the base's"),
        (lambda: WIoULoss(momentum=1.5), ValueError, "momentum must be"),
    ],
)
def test_a_bad_argument_fails_when_the_module_is_built(build, error, message):
    with pytest.raises(error, match=message):
        build()


# A module like any other


@every_combinator
def test_repr_is_the_call_that_builds_an_equal_module(combine):
    for base in (CIoULoss(), CIoULoss("sum", 1e-6, fmt="cxcywh", loss_weight=2.5, iou_threshold=0.5)):
        module = combine(base).eval()
        rebuilt = eval(repr(module), vars(iou_losses)).eval()
        assert repr(rebuilt) == repr(module)
        assert repr(base) in repr(module)
        assert torch.equal(rebuilt(*GOLDEN_PAIRS), module(*GOLDEN_PAIRS))


@every_combinator
def test_it_survives_pickle_and_copies_which_share_nothing(combine):
    module = combine(CIoULoss("none"))
    module(*GOLDEN_PAIRS)  # WIoU's mean is no longer 1
    for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert repr(twin) == repr(module)
        assert twin.base is not module.base
        assert torch.equal(twin.eval()(*GOLDEN_PAIRS), copy.copy(module).eval()(*GOLDEN_PAIRS))


@every_combinator
def test_its_state_dict_holds_the_running_means_and_nothing_else(combine):
    module = combine(CIoULoss())
    stateful = [name for name, part in module.named_modules() if isinstance(part, WIoULoss)]
    assert list(module.state_dict()) == [f"{name}.mean".lstrip(".") for name in stateful]
    assert not list(module.parameters())


def test_the_state_of_an_inner_loss_is_saved_and_restored_with_the_outer_one():
    build = lambda: InnerIoULoss(WIoULoss("none", version=3, momentum=0.5), 0.7)  # noqa: E731
    trained, fresh = build(), build()
    trained(*GOLDEN_PAIRS)
    assert trained.base.mean < 1
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh.eval()(*GOLDEN_PAIRS), trained.eval()(*GOLDEN_PAIRS))


@every_combinator
def test_eval_and_train_reach_the_base(combine):
    module = combine(CIoULoss())
    assert all(not part.training for part in module.eval().modules())
    assert all(part.training for part in module.train().modules())


@pytest.mark.parametrize("combine", [COMBINATORS["inner 0.7"], FocalerIoULoss, UnifiedIoULoss])
def test_settings_are_read_from_the_base_and_set_there(combine):
    module = combine(CIoULoss("sum", 1e-3, fmt="ltrb", loss_weight=2.0))
    assert (module.reduction, module.eps, module.fmt, module.loss_weight) == ("sum", 1e-3, "ltrb", 2.0)
    before = module(*GOLDEN_PAIRS)
    module.base.loss_weight = 4.0
    assert torch.equal(module(*GOLDEN_PAIRS), 2 * before)
    with pytest.raises(AttributeError):
        module.loss_weight = 1.0


@every_combinator
def test_it_documents_itself(combine):
    text = inspect.getdoc(type(combine(CIoULoss())))
    for section in ("Args:", "Raises:", "Example:"):
        assert f"\n{section}\n" in text
    assert "base: any `BoxLoss`" in text


# Numbers


@every_combinator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_identical_pair_costs_exactly_0_with_gradient_exactly_0(combine, dtype):
    pred, target, _ = awkward_pairs(500, 4, (awkward.identical, awkward.identical_any_size))
    value, gradient = value_and_gradient(combine(CIoULoss("none")), pred.to(dtype), target.to(dtype))
    assert not value.count_nonzero()
    assert not gradient.count_nonzero()


@every_combinator
@pytest.mark.parametrize("base", [IoULoss, CIoULoss], ids=lambda base: base.__name__)
def test_value_and_gradient_are_finite_for_awkward_boxes(combine, base):
    pred, target, _ = awkward_pairs(10_000, 5)
    value, gradient = value_and_gradient(combine(base("none")), pred, target)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("combine", [c for name, c in COMBINATORS.items() if name != "nested"])
def test_no_loss_is_negative_unless_an_iou_is_taken_from_a_loss_without_it(combine):
    # Nested, Inner adds to Focaler's loss, in which the IoU may have no part left, IoU - IoU_inner, of either sign.
    pred, target, _ = awkward_pairs(10_000, 5)
    for base in (IoULoss, CIoULoss):
        assert combine(base("none"))(pred, target).min() >= 0


@every_combinator
def test_a_nan_row_stays_alone(combine):
    pred, target = ordinary_pairs(5, 6)
    module = combine(CIoULoss("none")).eval()
    expected = module(pred, target)
    pred[2, 1] = math.nan
    found = module(pred, target)
    assert found.isnan().tolist() == [False, False, True, False, False]
    assert torch.equal(found[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])


@every_combinator
def test_a_common_unit_and_a_common_shift_change_nothing(combine):
    pred, target = ordinary_pairs(200, 7)
    module = combine(CIoULoss("none")).eval()
    expected = module(pred, target)
    close(module(pred * 2.0**-40, target * 2.0**-40), expected)
    close(module(pred + 1000, target + 1000), expected, 1e-11)


@every_combinator
def test_with_and_without_the_engine_it_is_the_same(combine, monkeypatch):
    pred, target = ordinary_pairs(300, 8, torch.float32)
    module = combine(CIoULoss("none")).eval()
    found = value_and_gradient(module, pred, target)
    monkeypatch.setattr(native, "_library", None)
    for ours, expected in zip(found, value_and_gradient(module, pred, target), strict=True):
        close(ours, expected, 2e-6)


@every_combinator
def test_compile_makes_one_graph(combine):
    torch._dynamo.reset()
    module = combine(CIoULoss()).eval()
    pred, target = ordinary_pairs(20, 9)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    for found, expected in zip(
        value_and_gradient(compiled, pred, target), value_and_gradient(module, pred, target), strict=True
    ):
        close(found, expected)


def test_compiled_the_progress_still_counts():
    torch._dynamo.reset()
    module = UnifiedIoULoss(CIoULoss())
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    for progress in (0.0, 0.25, 1.0):
        module.progress = progress
        close(compiled(*GOLDEN_PAIRS), module(*GOLDEN_PAIRS))


@every_combinator
def test_no_input_is_written_to_and_each_may_want_a_gradient(combine):
    pred, target = (boxes.clone().requires_grad_() for boxes in GOLDEN_PAIRS)
    combine(CIoULoss("sum")).eval()(pred, target).backward()
    assert torch.equal(pred.detach(), GOLDEN_PAIRS[0])
    assert torch.equal(target.detach(), GOLDEN_PAIRS[1])
    assert pred.grad.isfinite().all()
    assert target.grad.isfinite().all()
