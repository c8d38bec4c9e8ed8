"""Gradients: the true ones; what disjoint boxes get."""

import itertools

import awkward
import reference
import torch
from awkward import awkward_pairs
from cases import every_case, ordinary_pairs, over
from checks import assert_gradients, rounding_floor


def disjoint_pairs(n, seed, dtype=torch.float64, kinds=(awkward.ordinary, awkward.far_apart, awkward.thin)):
    """Boxes of many shapes and sizes with a gap between them, in x, in y or in both."""
    pred, target, _ = awkward_pairs(n, seed, kinds)
    gap = torch.maximum(pred[:, :2] - target[:, 2:], target[:, :2] - pred[:, 2:]).amax(-1)
    side = torch.minimum(pred[:, 2:] - pred[:, :2], target[:, 2:] - target[:, :2]).amin(-1)
    chosen = (gap > 0) & (side > 0)
    return pred[chosen].to(dtype), target[chosen].to(dtype)


def frozen(case, pred, target):
    """The definition as a function of the prediction, with the gradient's constants taken at this place."""
    constants = []
    two = lambda pred: reference.Two(*pred.unbind(-1), *target.unbind(-1))  # noqa: E731
    case.formula(two(pred.detach()), lambda factor: constants.append(factor) or factor, **case.hyper)

    def loss(pred):
        known = iter(constants)
        return case.formula(two(pred), lambda factor: next(known), **case.hyper)

    return loss


def gradient_and_curvature(loss, pred, direction):
    pred = pred.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(pred).sum(), pred, create_graph=True)
    (curvature,) = torch.autograd.grad((gradient * direction).sum(), pred)
    return gradient.detach(), curvature


@every_case
def test_the_gradient_is_that_of_exact_differences(case):
    pred, target = ordinary_pairs(30, 1)
    _, gradient = case.value_and_gradient(pred, target)
    pairs = zip(pred.tolist(), target.tolist(), strict=True)
    exact = torch.tensor([reference.slopes(case.formula, *pair, **case.hyper) for pair in pairs], dtype=torch.float64)
    torch.testing.assert_close(gradient, exact, rtol=1e-9, atol=1e-15)


@every_case
def test_both_gradients_are_those_of_the_definition(case):
    pred, target = ordinary_pairs(2000, 2)
    value, by_pred, by_target = case.value_and_gradients(pred, target)
    truth = case.truth(pred, target)
    torch.testing.assert_close(value, truth.value, rtol=0, atol=1e-14)
    torch.testing.assert_close(by_pred, truth.by_pred, rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(by_target, truth.by_target, rtol=1e-9, atol=1e-15)


@over(lambda case: not case.stop_gradients and not case.target_is_constant)
def test_gradcheck_and_gradgradcheck(case):
    pred, target = ordinary_pairs(4, 3)
    boxes = [(boxes / 100).requires_grad_() for boxes in (pred, target)]
    assert torch.autograd.gradcheck(case.loss, boxes)
    assert torch.autograd.gradgradcheck(case.loss, boxes)
    assert torch.autograd.gradcheck(lambda pred: case.loss(pred, boxes[1].detach()), boxes[0])
    assert torch.autograd.gradgradcheck(lambda pred: case.loss(pred, boxes[1].detach()), boxes[0])


@over(lambda case: case.stop_gradients)
def test_gradcheck_and_gradgradcheck_against_the_definition_with_its_constants_frozen(case):
    pred, target = ordinary_pairs(6, 3)
    pred, target = (pred / 100).requires_grad_(), target / 100
    loss = frozen(case, pred, target)
    assert torch.autograd.gradcheck(loss, pred)
    assert torch.autograd.gradgradcheck(loss, pred)
    direction = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = gradient_and_curvature(loss, pred, direction)
    torch.testing.assert_close(
        gradient_and_curvature(lambda pred: case.loss(pred, target), pred, direction), expected, rtol=1e-9, atol=1e-12
    )


@over(lambda case: case.target_is_constant)
def test_a_constant_target_has_no_gradient_and_the_prediction_that_of_the_definition(case):
    pred, target = ordinary_pairs(6, 3)
    pred, target = (pred / 100).requires_grad_(), target / 100
    assert torch.autograd.gradcheck(lambda pred: case.loss(pred, target), pred)
    assert torch.autograd.gradgradcheck(lambda pred: case.loss(pred, target), pred)
    assert not case.loss(pred.detach(), target.requires_grad_()).requires_grad


@over(lambda case: case.stop_gradients)
def test_each_constant_of_the_gradient_matters(case):
    pred, target = ordinary_pairs(50, 7)
    _, gradient = case.value_and_gradient(pred, target)

    def with_one_free(free):
        leaf, count = pred.clone().requires_grad_(), itertools.count()
        two = reference.Two(*leaf.unbind(-1), *target.unbind(-1))
        sg = lambda factor: factor if next(count) == free else factor.detach()  # noqa: E731
        value = case.formula(two, sg, **case.hyper)
        return torch.autograd.grad(value.sum(), leaf)[0], next(count)

    frozen_alone, constants = with_one_free(None)
    torch.testing.assert_close(gradient, frozen_alone, rtol=1e-9, atol=1e-15)
    assert constants >= 1
    for free in range(constants):
        other, _ = with_one_free(free)
        assert ((other - gradient).abs() > 0.01 * gradient.abs().amax(-1, keepdim=True)).any()


@over(lambda case: case.disjoint == "flat")
def test_a_flat_loss_gives_exactly_zero_gradient_on_disjoint_boxes_wherever_they_are(case):
    for dtype in (torch.float32, torch.float64):
        pred, target = disjoint_pairs(6000, 4, dtype)
        value, gradient = case.value_and_gradient(pred, target)
        assert len(pred) > 1000
        assert (value - case.miss).abs().max() < 0.02
        assert (value == value[0]).all()
        assert not gradient.count_nonzero()


@over(lambda case: case.disjoint in ("pulls", "slopes"))
def test_disjoint_boxes_have_a_gradient_wherever_they_are(case):
    for dtype in (torch.float32, torch.float64):
        pred, target = disjoint_pairs(6000, 4, dtype)
        value, gradient = case.value_and_gradient(pred, target)
        assert (value >= case.miss).all()
        assert gradient.any(-1).all()


def comes_closer(case, pred, target):
    """Whether one small step against the gradient brings the centres closer."""
    _, gradient = case.value_and_gradient(pred, target)
    side = (pred[:, 2:] - pred[:, :2]).amax(-1, keepdim=True).clamp(min=1)
    step = 1e-4 * side * gradient / gradient.abs().amax(-1, keepdim=True)
    centre = lambda boxes: boxes[:, :2] / 2 + boxes[:, 2:] / 2  # noqa: E731
    distance = lambda boxes: (centre(boxes) - centre(target)).norm(dim=-1)  # noqa: E731
    return distance(pred - step) < distance(pred)


def pairs_beside_each_other(gap):
    """Boxes of nearly one size with a gap, in sizes of the prediction, along x."""
    pred, target, _ = awkward_pairs(2000, 6, (awkward.near,))
    pred, target = pred.double(), target.double()
    side = (pred[:, 2:] - pred[:, :2]) * torch.tensor([1.4 + gap, 0])
    return pred, target + side.repeat(1, 2)


@over(lambda case: case.disjoint == "pulls")
def test_one_small_gradient_step_brings_the_centres_of_disjoint_boxes_closer(case):
    assert comes_closer(case, *disjoint_pairs(6000, 5, kinds=(awkward.ordinary,))).all()


@over(lambda case: case.disjoint in ("fades", "strays"))
def test_a_gradient_that_fades_moves_boxes_that_are_near_and_none_that_are_far_apart(case):
    closer = comes_closer(case, *pairs_beside_each_other(0.0))
    assert closer.all() if case.disjoint == "fades" else 0 < closer.sum() < len(closer)
    _, gradient = case.value_and_gradient(*pairs_beside_each_other(1e6))
    assert not (gradient[:, 0] + gradient[:, 2]).count_nonzero()


@every_case
def test_boxes_far_apart_keep_their_digits(case):
    pred, target = torch.tensor([[100.0, 100, 104, 104]]), torch.tensor([[30000.0, 102, 30004, 110]])
    _, alone = case.value_and_gradient(pred, target)
    _, by_pred, by_target = case.value_and_gradients(pred, target)
    truth = case.truth(pred, target)
    for found, expected in ((alone, truth.by_pred), (by_pred, truth.by_pred), (by_target, truth.by_target)):
        assert_gradients(found, expected, (pred, target, ["far apart"]))


@every_case
def test_a_wide_pair_is_treated_as_well_as_the_same_pair_upright(case):
    wide = torch.tensor([[0, 0, 1e-12, 2e-18]]), torch.tensor([[1e-12, 0, 1e6, 17]])
    upright = [boxes[:, [1, 0, 3, 2]] for boxes in wide]
    for pred, target in (upright, wide):
        truth = case.truth(pred, target)
        floor = rounding_floor(truth.terms[0], torch.float32)
        for found in (case.value_and_gradient(pred, target)[1], case.value_and_gradients(pred, target)[1]):
            assert_gradients(found, truth.by_pred, (pred, target, ["slender"]), floor=floor)
