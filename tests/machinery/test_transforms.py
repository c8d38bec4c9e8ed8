"""torch.func and higher derivatives, where tests/test_torch_machinery.py has only the rows or only one direction."""

import copy

import pytest
import torch
from cases import over
from subjects import assert_same, boxes, every_combined, over_thoroughly, value_and_gradient
from torch.autograd import forward_ad

from iou_losses import CIoULoss, FocalEIoULoss, UnifiedIoULoss, WIoULoss

pytestmark = pytest.mark.filterwarnings("ignore:`?torch.jit")  # torch.func itself still scripts some decompositions
F64 = torch.float64


@every_combined
def test_transforms_of_a_module_around_another(build):
    pred, target = boxes(12, dtype=F64)
    per_box, total = build("none"), build("sum")
    value, gradient = value_and_gradient(per_box, pred, target)
    assert_same(torch.vmap(per_box)(pred, target), value, 1e-12)
    assert_same(torch.vmap(per_box, in_dims=(0, None))(pred, target[0]), per_box(pred, target[:1].expand(12, 4)), 1e-12)
    assert_same(torch.func.grad(total)(pred, target), gradient, 1e-12)
    assert_same(torch.vmap(torch.func.grad(per_box))(pred, target), gradient, 1e-12)
    assert_same(torch.func.jacrev(per_box)(pred, target)[range(12), range(12)], gradient, 1e-12)
    direction = torch.randn(12, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    _, slope = torch.func.jvp(lambda pred: total(pred, target), (pred,), (direction,))
    assert_same(slope, (gradient * direction).sum(), 1e-12)


@every_combined
def test_second_derivatives_of_a_module_around_another_are_the_same_by_every_way(build):
    pred, target = boxes(5, dtype=F64)
    total = build("sum")
    hessian = torch.func.hessian(total)(pred, target)
    assert hessian.isfinite().all()
    assert hessian.count_nonzero()
    assert_same(torch.autograd.functional.hessian(lambda pred: total(pred, target), pred), hessian, 1e-12)
    leaf = pred.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(total(leaf, target), leaf, create_graph=True)
    assert_same(torch.autograd.grad(gradient.sum(), leaf)[0], hessian.sum((0, 1)), 1e-12)


CONSTANTS = (
    FocalEIoULoss(normalize=True),
    UnifiedIoULoss(CIoULoss(), quality="focal_inv"),
    WIoULoss(version=3, momentum=0.5),
    WIoULoss(version=2, momentum=0.5, base=CIoULoss()),
)


@pytest.mark.parametrize("criterion", CONSTANTS, ids=repr)
def test_constants_of_the_gradient_that_a_batch_gives_are_constants_of_the_forward_mode(criterion):
    pred, target = boxes(12, dtype=F64)
    _, gradient = value_and_gradient(copy.deepcopy(criterion), pred, target)
    direction = torch.randn(12, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    with forward_ad.dual_level():
        value = copy.deepcopy(criterion)(forward_ad.make_dual(pred, direction), target)
        slope = forward_ad.unpack_dual(value).tangent
    assert_same(slope, (gradient * direction).sum(), 1e-12)


@over_thoroughly(lambda case: not case.stop_gradients and not case.target_is_constant)
def test_gradients_of_every_order_and_direction_are_those_of_differences(case):
    pred, target = boxes(3, 2, F64)
    pair = pred.requires_grad_(), target.requires_grad_()
    assert torch.autograd.gradcheck(case.loss, pair, check_forward_ad=True, check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(case.loss, pair, check_fwd_over_rev=True)


@over(lambda case: not case.stop_gradients)
def test_the_second_derivative_of_the_engines_own_gradient_is_that_of_differences(case):
    # The target wants no gradient, so that the engine serves the first derivative.
    pred, target = boxes(3, 2, F64)
    assert torch.autograd.gradgradcheck(lambda pred: case.loss(pred, target), pred.requires_grad_())
