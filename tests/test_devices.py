"""Accelerators, where there is one."""

import pytest
import torch
from awkward import awkward_pairs
from cases import every_case, every_matrix
from checks import assert_gradients

import iou_losses

AVAILABLE = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
every_device = pytest.mark.parametrize(
    "device",
    [pytest.param(name, marks=pytest.mark.skipif(not there, reason=f"no {name}")) for name, there in AVAILABLE.items()],
)


@every_case
@every_device
def test_values_and_gradients_are_those_of_the_cpu(case, device):
    pred, target, kinds = awkward_pairs(3000, 1)
    value, by_pred, by_target = case.value_and_gradients(pred, target)
    found = case.value_and_gradients(pred.to(device), target.to(device))
    torch.testing.assert_close(found[0].cpu(), value, rtol=0, atol=1e-6)
    for gradient, expected in zip(found[1:], (by_pred, by_target), strict=True):
        assert_gradients(gradient.cpu(), expected, (pred, target, kinds), floor=1e-6)


@every_matrix
@every_device
def test_matrices_are_those_of_the_cpu(case, device):
    pred, target, _ = awkward_pairs(300, 2)
    matrix = case.matrix(pred.to(device), target[:200].to(device))
    torch.testing.assert_close(matrix.cpu(), case.matrix(pred, target[:200]), rtol=0, atol=1e-6)


@every_case
@pytest.mark.skipif(not AVAILABLE["cuda"], reason="no cuda")
def test_no_call_waits_for_the_device(case):
    pred, target, _ = (boxes.cuda() if isinstance(boxes, torch.Tensor) else boxes for boxes in awkward_pairs(300, 3))
    weight, factor, pred = torch.rand(300, device="cuda"), torch.tensor(7.0, device="cuda"), pred.requires_grad_()
    case.loss(pred, target, "sum").backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        case.loss(pred, target, "mean", weight=weight, avg_factor=factor).backward()
        case.build()(pred, target).backward()
        iou_losses.detection_accuracy(pred, target)
    finally:
        torch.cuda.set_sync_debug_mode("default")
