"""Modules: hyper-parameters and a call of the function."""

import copy
import inspect
import pickle

import pytest
import torch
from cases import GOLDEN_PAIRS, every_case, over
from torch import nn

import iou_losses

PRED, TARGET = (boxes.float() for boxes in GOLDEN_PAIRS)
WEIGHT = torch.tensor([2.0, 0, 0.5])


@every_case
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_module_is_its_function(case, reduction):
    module = case.build(reduction, 1e-3, fmt="cxcywh").eval()
    expected = case.loss(PRED, TARGET, reduction, 1e-3, fmt="cxcywh")
    assert torch.equal(module(PRED, TARGET), expected)


@every_case
def test_its_reduction_is_the_mean_unless_another_is_given(case):
    assert torch.equal(case.build().eval()(PRED, TARGET), case.loss(PRED, TARGET, "mean"))


@every_case
def test_forward_is_the_contract_of_mmdetection(case):
    module = case.build(loss_weight=2.0).eval()
    names = ["self", "pred", "target", "weight", "avg_factor", "reduction_override"]
    assert list(inspect.signature(case.module.forward).parameters) == names
    expected = 2 * case.loss(PRED, TARGET, "mean", weight=WEIGHT, avg_factor=4.0)
    assert torch.equal(module(PRED, TARGET, WEIGHT, 4.0), expected)
    assert torch.equal(module(PRED, TARGET, weight=WEIGHT, avg_factor=torch.tensor(4.0)), expected)
    for reduction in ("none", "sum"):
        expected = 2 * case.loss(PRED, TARGET, reduction, weight=WEIGHT)
        assert torch.equal(module(PRED, TARGET, WEIGHT, None, reduction), expected)
    assert module.reduction == "mean"


@every_case
def test_loss_weight_multiplies_value_and_gradient(case):
    pred = PRED.clone().requires_grad_()
    case.build("sum", loss_weight=0.25).eval()(pred, TARGET).backward()
    torch.testing.assert_close(pred.grad, case.value_and_gradient(PRED, TARGET)[1] / 4)


@every_case
def test_repr_is_the_call_that_builds_an_equal_module(case):
    for module in (case.build().eval(), case.build("sum", 1e-6, fmt="ltrb", loss_weight=2.5).eval()):
        rebuilt = eval(repr(module), vars(iou_losses)).eval()
        assert type(rebuilt) is case.module
        assert repr(rebuilt) == repr(module)
        assert torch.equal(rebuilt(PRED, TARGET), module(PRED, TARGET))
        for name, value in case.hyper.items():
            assert getattr(rebuilt, name) == value


@every_case
def test_a_module_survives_pickle_and_copies(case):
    module = case.build("sum", loss_weight=2.0).eval()
    for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), copy.copy(module)):
        assert repr(twin) == repr(module)
        assert torch.equal(twin(PRED, TARGET), module(PRED, TARGET))


@over(lambda case: not case.stateful)
def test_its_state_dict_is_empty(case):
    module = case.build()
    assert not module.state_dict()
    assert not list(module.parameters())
    module.load_state_dict({})


@every_case
def test_a_hyper_parameter_may_be_changed_later(case):
    module = case.build().eval()
    module.reduction, module.loss_weight = "sum", 3.0
    assert torch.equal(module(PRED, TARGET), 3 * case.loss(PRED, TARGET, "sum"))
    assert "reduction='sum'" in repr(module)


@every_case
def test_a_module_fits_among_other_modules(case):
    model = nn.ModuleDict({"box": case.build()}).to("cpu", torch.float64).eval()
    assert torch.equal(model["box"](PRED, TARGET), case.loss(PRED, TARGET, "mean"))
    assert isinstance(case.build(), iou_losses.BoxLoss)


@every_case
def test_functions_and_modules_take_the_same_arguments(case):
    function, module = (inspect.signature(what).parameters for what in (case.function, case.module))
    assert list(function)[:7] == ["pred", "target", "reduction", "eps", "weight", "avg_factor", "fmt"]
    if not case.stateful:
        own = [name for name, parameter in module.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        assert own == ["reduction", "eps", "fmt", "loss_weight", *list(function)[7:]]
        assert all(module[name].default == function[name].default for name in list(function)[7:])
    keywords = [p.kind for p in function.values()]
    assert keywords == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 4 + [inspect.Parameter.KEYWORD_ONLY] * (
        len(keywords) - 4
    )
    assert function["reduction"].default == "none"
    assert function["eps"].default == 0.0


@every_case
def test_a_loss_documents_itself(case):
    text = inspect.getdoc(case.function)
    for section in ("Args:", "Returns:", "Raises:", "Properties:", "Reference:", "Deviations:", "Example:"):
        assert f"\n{section}\n" in text
    assert case.paper in text
    assert ">>> " in inspect.getdoc(case.module)
    for kind in (case.function, case.module):
        assert getattr(iou_losses, kind.__name__) is kind
