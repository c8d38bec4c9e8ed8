"""A drop-in for torchvision: the same calls, the same values and gradients where torchvision is right."""

import inspect

import pytest
import torch
from cases import ciou, diou, giou, iou, ordinary_pairs, over
from optional import ops

LOSSES = {giou: ops.generalized_box_iou_loss, diou: ops.distance_box_iou_loss, ciou: ops.complete_box_iou_loss}
MATRICES = {
    iou: ops.box_iou,
    giou: ops.generalized_box_iou,
    diou: ops.distance_box_iou,
    ciou: ops.complete_box_iou,
}


@over(list(LOSSES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_with_eps_1e_7_values_and_gradients_are_torchvisions(case, dtype, reduction):
    pred, target = ordinary_pairs(400, 1, dtype)
    theirs = pred.clone().requires_grad_()
    expected = LOSSES[case](theirs, target, reduction, 1e-7)
    expected.sum().backward()
    value, gradient = case.value_and_gradient(pred, target, reduction=reduction, eps=1e-7)
    scale = 400 if reduction == "sum" else 1
    torch.testing.assert_close(value, expected.detach(), rtol=0, atol=1e-6 * scale)
    torch.testing.assert_close(gradient, theirs.grad, rtol=0, atol=1e-6)


@over(list(LOSSES))
def test_without_eps_they_differ_by_no_more_than_eps_does(case):
    pred, target = ordinary_pairs(400, 2, torch.float32)
    torch.testing.assert_close(case.loss(pred, target), LOSSES[case](pred, target), rtol=0, atol=1e-6)


@over(list(MATRICES))
@pytest.mark.parametrize(("n", "m"), [(30, 30), (30, 7), (7, 30)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_matrices_are_torchvisions(case, n, m, dtype):
    pred, target = ordinary_pairs(60, 3, dtype)
    pred, target = pred[::2][:n], target[::2][:m]
    torch.testing.assert_close(case.matrix(pred, target), MATRICES[case](pred, target), rtol=0, atol=1e-6)


@over(list(LOSSES))
def test_torchvisions_arguments_are_the_first_and_have_the_same_order(case):
    ours, theirs = (inspect.signature(function).parameters for function in (case.function, LOSSES[case]))
    assert list(ours)[2:4] == list(theirs)[2:4] == ["reduction", "eps"]
    assert ours["reduction"].default == theirs["reduction"].default


@over(list(MATRICES))
def test_matrices_take_torchvisions_first_two_arguments_by_name(case):
    boxes = ordinary_pairs(4, 4)[0]
    theirs = list(inspect.signature(MATRICES[case]).parameters)[:2]
    assert torch.equal(case.matrix(**dict.fromkeys(theirs, boxes)), case.matrix(boxes, boxes))


@over(list(LOSSES))
def test_torchvisions_scalar_losses_without_boxes_are_0_like_ours(case):
    nothing = torch.zeros(0, 4)
    assert LOSSES[case](nothing, nothing, "mean").item() == case.loss(nothing, nothing, "mean").item() == 0


@over(list(LOSSES))
def test_a_perfect_box_of_side_1e_4_costs_0_and_0_91_with_torchvisions_epsilon(case):
    box = torch.tensor([[0.5, 0.5, 0.5001, 0.5001]])
    assert LOSSES[case](box, box).item() == pytest.approx(0.909, abs=1e-3)
    assert case.loss(box, box).item() == 0


def test_a_collapsed_prediction_that_is_a_point_has_no_gradient_with_torchvisions_ciou():
    point = torch.tensor([[3.0, 3, 3, 3]], requires_grad=True)
    target = torch.tensor([[1.0, 1, 9, 5]])
    (theirs,) = torch.autograd.grad(ops.complete_box_iou_loss(point, target).sum(), point)
    (found,) = torch.autograd.grad(ciou.loss(point, target).sum(), point)
    assert theirs.isnan().all()
    assert found.isfinite().all()
    assert found.any()


def test_half_precision_is_computed_in_float32():
    target = torch.tensor([[0.0, 0, 300, 300]], dtype=torch.float16)
    with torch.autocast("cpu", torch.bfloat16):
        loss = giou.loss(target + 10, target)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, giou.loss(target.float() + 10, target.float()))


def test_one_target_for_three_predictions_is_an_error_and_three_losses_in_torchvision():
    pred, target = ordinary_pairs(3, 5)
    assert ops.generalized_box_iou_loss(pred, target[:1]).shape == (3,)
    with pytest.raises(ValueError, match=r"must have the same shape, got \(3, 4\) and \(1, 4\)"):
        giou.loss(pred, target[:1])
