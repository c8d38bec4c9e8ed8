"""The native engine: as right as the formula, and nothing else than faster."""

import math
import os
import subprocess
import sys

import awkward
import pytest
import torch
from awkward import awkward_pairs
from cases import CASES, every_case, every_matrix, iou, ordinary_pairs
from checks import assert_gradients, assert_rows, rounding_floor
from torch.profiler import ProfilerActivity, profile

import iou_losses

MANY = 140_000 if iou_losses.native_isa() else 20_000  # enough for the engine to use several threads
built = pytest.mark.skipif(iou_losses.native_isa() is None, reason="the engine is not built or turned off")


@built
@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_engine_is_as_right_as_the_formula(case, dtype):
    # |engine - truth| <= |formula - truth| + 5e-7 in value, + 1e-5 of the row's largest in gradient.
    pairs = awkward_pairs(15_000, 1)
    pred, target = (boxes.to(dtype) for boxes in pairs[:2])
    truth = case.truth(pred, target)
    value, gradient = case.value_and_gradient(pred, target)
    formula_value, formula_gradient, _ = case.value_and_gradients(pred, target)
    assert_rows((value - truth.value).abs() <= (formula_value - truth.value).abs() + 5e-7, value, truth.value, pairs)
    floor = (formula_gradient - truth.by_pred).abs() + rounding_floor(truth.terms[0], dtype)
    assert_gradients(gradient, truth.by_pred, pairs, 1e-5, floor, truth.two.held(dtype), case.rounding(dtype))


@built
def test_the_engine_serves_plain_tensors_in_one_step_of_the_graph():
    pred, target = ordinary_pairs(20, 2, torch.float32)
    for reduction in ("none", "mean", "sum"):
        value = iou.loss(pred.requires_grad_(), target, reduction)
        before = [function.name() for function, _ in value.grad_fn.next_functions if function]
        assert before == ["torch::autograd::AccumulateGrad"]


@built
@every_matrix
def test_a_matrix_allocates_its_result_and_nothing_else_of_its_size(case):
    pred, target = ordinary_pairs(600, 3, torch.float32)
    case.matrix(pred, target)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        matrix = case.matrix(pred, target)
    size = matrix.numel() * matrix.element_size()
    allocated = [event.self_cpu_memory_usage for event in prof.events() if event.self_cpu_memory_usage > 0]
    assert size <= sum(allocated) <= 1.1 * size


@built
@every_case
def test_the_number_of_boxes_changes_no_bit_of_a_loss(case):
    many = MANY if case.matrix else 5000
    pred, target, _ = awkward_pairs(many, 4, (awkward.near,))
    value, gradient = case.value_and_gradient(pred, target)
    for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 1000, many - 1):
        found, found_gradient = case.value_and_gradient(pred[:n], target[:n])
        assert torch.equal(found, value[:n])
        assert torch.equal(found_gradient, gradient[:n])


@every_matrix
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("n", [1, 17, 1000, MANY])
def test_a_reduction_loses_no_digits_in_large_sets(case, reduction, n):
    pred, target, _ = awkward_pairs(n, 5, (awkward.near,))
    value = case.loss(pred, target)
    found, gradient = case.value_and_gradient(pred, target, reduction=reduction)
    share = 1 / n if reduction == "mean" else 1
    assert found.item() == pytest.approx(value.double().sum().item() * share, rel=1e-6)
    expected = case.value_and_gradient(pred, target)[1] * share
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-12)


@every_matrix
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_largest_numbers_are_compared_as_others_are(case, dtype):
    # A power of two brings the largest coordinate within a factor of four of the largest number.
    pred, target = ordinary_pairs(500, 6, dtype)
    exponents = [math.frexp(number)[1] for number in (torch.finfo(dtype).max, torch.stack([pred, target]).abs().max())]
    power = exponents[0] - exponents[1] - 1
    assert torch.equal(case.loss(pred * 2.0**power, target * 2.0**power), case.loss(pred, target))
    assert torch.equal(case.matrix(pred * 2.0**power, target * 2.0**power), case.matrix(pred, target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_box_far_worse_than_the_mean_gets_no_weight_from_wiou(dtype):
    pred, target = ordinary_pairs(20, 7, dtype)
    leaf = pred.clone().requires_grad_()
    value = iou_losses.wiou_loss(leaf, target, "none", version=3, mean=1e-4)  # 1.9 to the power of thousands
    assert value.max() < 1e-30
    assert torch.autograd.grad(value.sum(), leaf)[0].abs().max() < 1e-30


PROGRAM = """
import torch, iou_losses
generator = torch.Generator().manual_seed(1)
corner, size = torch.rand(2, 2, 333, 2, generator=generator)
pred, target = torch.cat([corner, corner + size], -1)
print(iou_losses.native_isa())
for name in {names}:
    function = getattr(iou_losses, name)
    leaf = pred.clone().requires_grad_()
    value = function(leaf, target)
    value.sum().backward()
    whole = pred.clone().requires_grad_(), target.clone().requires_grad_()
    formula = function(*whole)
    formula.sum().backward()
    torch.testing.assert_close(value, formula, rtol=0, atol=5e-7)
    torch.testing.assert_close(leaf.grad, whole[0].grad, rtol=1e-4, atol=1e-5)
"""


def run(**environment):
    names = sorted({case.function.__name__ for case in CASES if not case.hyper})
    command = [sys.executable, "-c", PROGRAM.format(names=names)]
    result = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()[0]


@pytest.mark.slow
def test_an_environment_variable_turns_the_engine_off():
    assert run(IOU_LOSSES_NATIVE="0") == "None"


@pytest.mark.slow
def test_importing_the_package_does_not_import_the_compiler():
    code = "import torch, sys, iou_losses; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.slow
def test_the_package_can_be_imported_again_as_a_notebook_does():
    code = """
import importlib, sys, torch, iou_losses.native.compiled
importlib.reload(iou_losses.native.compiled)
for name in [name for name in sys.modules if name.startswith("iou_losses")]:
    del sys.modules[name]
import iou_losses
boxes = torch.tensor([[0.0, 0, 10, 10]])
compiled = torch.compile(iou_losses.ciou_loss, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(boxes, boxes + 1), iou_losses.ciou_loss(boxes, boxes + 1))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@built
@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_each_processor_gets_an_engine_that_it_runs(capability):
    assert run(ATEN_CPU_CAPABILITY=capability, IOU_LOSSES_NATIVE="1") in ("generic", "avx2", "avx512")
