"""mmdetection's contract, through the registry that its configs use."""

import inspect

import pytest
import torch

import iou_losses

registry = pytest.importorskip("mmengine.registry")

from iou_losses.integrations.mmdet import register  # noqa: E402

PRED = torch.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [9, 9, 8, 8]])  # the last with its corners in the wrong order
TARGET = torch.tensor([[0.0, 0, 4, 2], [0, 0, 4, 4], [0, 0, 4, 4]])
MODULES = sorted(
    name
    for name, value in vars(iou_losses).items()
    if isinstance(value, type) and issubclass(value, iou_losses.BoxLoss) and value is not iou_losses.BoxLoss
)
BASE = {"type": "CIoULoss"}
ARGUMENTS = {"base": BASE, "ratio": 0.8, "image_size": (100, 100)}  # those without a default
NEEDED = {
    name: {
        argument: ARGUMENTS[argument]
        for argument, parameter in inspect.signature(getattr(iou_losses, name)).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    for name in MODULES
}
DEFAULTS = [name for name in MODULES if name in ("IoULoss", "GIoULoss", "DIoULoss", "CIoULoss")]


@pytest.fixture(autouse=True)
def _registered():
    register()
    register()  # twice is fine


def build(name, **options):
    return registry.MODELS.build({"type": name, **options})


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_built_under_its_name(name):
    module = build(name, **NEEDED[name])
    assert type(module) is getattr(iou_losses, name)
    assert torch.isfinite(module(PRED, TARGET))


@pytest.mark.parametrize("name", [name for name in MODULES if "base" in NEEDED[name]])
def test_a_base_is_built_from_its_config(name):
    module = build(name, **{**NEEDED[name], "base": {"type": "CIoULoss", "iou_threshold": 0.5}})
    assert module.base.iou_threshold == 0.5
    again = build(name, **{**NEEDED[name], "base": module.base})  # a module is taken as it is
    assert again.base is module.base


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_config_builds_a_module(name):
    module = build(name, loss_weight=2.0, reduction="sum", eps=1e-6)
    assert type(module) is getattr(iou_losses, name)
    assert (module.loss_weight, module.reduction, module.eps) == (2.0, "sum", 1e-6)


def test_hyper_parameters_come_from_the_config():
    assert build("CIoULoss", iou_threshold=0.5).iou_threshold == 0.5


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_scope_tells_the_names_that_mmdetection_has_too():
    child = registry.Registry("model", parent=registry.MODELS, scope="mmdet_stand_in")

    @child.register_module(name="CIoULoss")
    class TheirCIoULoss(torch.nn.Module):
        pass

    assert type(child.build({"type": "CIoULoss"})) is TheirCIoULoss
    assert type(child.build({"type": "mmengine.CIoULoss"})) is iou_losses.CIoULoss
    assert type(child.build({"type": "mmengine.CIoULoss", "loss_weight": 2.0})) is iou_losses.CIoULoss


def test_another_owner_of_a_name_is_an_error():
    registry.MODELS.module_dict["CIoULoss"] = object
    try:
        with pytest.raises(KeyError, match="CIoULoss is already registered"):
            register()
    finally:
        registry.MODELS.module_dict["CIoULoss"] = iou_losses.CIoULoss


@pytest.fixture(params=DEFAULTS)
def loss(request):
    return build(request.param)


def per_box(loss):
    return loss(PRED, TARGET, reduction_override="none")


def test_the_call_is_mmdetections(loss):
    weight = torch.tensor([1.0, 0.5, 0.0])
    expected = (per_box(loss) * weight).sum() / 7
    torch.testing.assert_close(loss(PRED, TARGET, weight, 7), expected)
    torch.testing.assert_close(loss(PRED, TARGET, weight=weight, avg_factor=7, reduction_override="mean"), expected)
    torch.testing.assert_close(loss(PRED, TARGET), per_box(loss).mean())


def test_avg_factor_contradicts_a_sum_and_is_ignored_by_none(loss):
    with pytest.raises(ValueError, match="avg_factor"):
        loss(PRED, TARGET, avg_factor=7, reduction_override="sum")
    assert torch.equal(loss(PRED, TARGET, avg_factor=7, reduction_override="none"), per_box(loss))


def test_a_weight_per_coordinate_is_averaged(loss):
    weight = torch.tensor([[1.0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]])
    by_box = loss(PRED, TARGET, weight.mean(-1), reduction_override="none")
    assert torch.equal(loss(PRED, TARGET, weight, reduction_override="none"), by_box)


def test_zero_weights_give_exactly_zero(loss):
    pred = PRED.clone().requires_grad_()
    result = loss(pred, TARGET, torch.zeros(3, 4), avg_factor=3)
    result.backward()
    assert result.item() == 0
    assert torch.equal(pred.grad, torch.zeros(3, 4))


def test_no_boxes_give_a_scalar_on_the_graph(loss):
    pred = torch.zeros(0, 4, requires_grad=True)
    result = loss(pred, torch.zeros(0, 4), torch.zeros(0, 4), avg_factor=1)
    assert result.shape == ()
    result.backward()
    assert pred.grad.shape == (0, 4)


def test_corners_in_the_wrong_order_do_not_raise(loss):
    assert torch.isfinite(per_box(loss)).all()


def test_loss_weight_multiplies(loss):
    twice = build(type(loss).__name__, loss_weight=2.0)
    assert torch.equal(twice(PRED, TARGET), 2 * loss(PRED, TARGET))


def test_without_mmengine_the_error_says_what_to_install(import_without):
    with pytest.raises(ModuleNotFoundError, match=r"needs mmengine, tested with 0\.10\.7: pip install mmengine"):
        import_without("mmdet", "mmengine")
