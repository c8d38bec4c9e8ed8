"""Values and gradients of whatever boxes Hypothesis thinks of, against exact arithmetic."""

import torch
from awkward import awkward_pairs
from cases import every_case, every_matrix, over
from checks import assert_gradients, rounding_floor
from hypothesis import given
from hypothesis import strategies as st

import iou_losses

from .errors import assert_within
from .strategies import anything, coarse, held, held_across

BY_DEFAULT = "engine" if iou_losses.native_isa() else "formula"
LARGEST = torch.finfo(torch.float32).max / 16


def representable(exact, pred, target):
    """The pairs whose value float32 holds: one of MPDIoU grows with the boxes."""
    rows = exact < LARGEST
    return exact[rows], pred[rows], target[rows]


@every_case
@given(boxes=held)
def test_every_value_is_within_8_ulp_of_exact_arithmetic_by_engine_and_formula(case, boxes):
    exact, *boxes = representable(case.exact(*boxes), *boxes)
    for dtype in (torch.float32, torch.float64) if len(exact) else ():
        pred, target = (b.to(dtype) for b in boxes)
        assert_within(case.loss(pred, target), exact, str(case), f"{BY_DEFAULT}, value alone", (pred, target))
        assert_within(case.value_and_gradient(pred, target)[0], exact, str(case), BY_DEFAULT, (pred, target))
        assert_within(case.value_and_gradients(pred, target)[0], exact, str(case), "formula", (pred, target))


@over(lambda case: case.scale_free and not case.steep)
@given(boxes=anything)
def test_every_gradient_is_finite(case, boxes):
    pred, target = (b.float() for b in boxes)
    expected = case.truth(pred, target).value < LARGEST
    assert case.value_and_gradient(pred, target)[1][expected].isfinite().all()
    assert case.value_and_gradients(pred, target)[1][expected].isfinite().all()


@every_case
@given(data=st.data())
def test_every_gradient_of_the_engine_is_as_right_as_that_of_the_formula(case, data):
    # An absolute length beside boxes of another order of size is more than float32 holds the square of.
    pred, target = (b.float() for b in data.draw(held if case.scale_free else coarse))
    truth = case.truth(pred, target)
    asked = truth.two.held(torch.float32) & (truth.by_pred.abs() < LARGEST).all(-1) & (truth.value < LARGEST)
    _, by_engine = case.value_and_gradient(pred, target)
    _, by_formula, _ = case.value_and_gradients(pred, target)
    pairs, rounding = (pred, target, ["drawn"] * len(pred)), case.rounding(torch.float32)
    floor = rounding_floor(truth.terms[0], torch.float32)
    assert_gradients(by_formula, truth.by_pred, pairs, 1e-4, floor, asked, rounding)
    floor = floor + (by_formula - truth.by_pred).abs().nan_to_num(0)
    assert_gradients(by_engine, truth.by_pred, pairs, 1e-5, floor, asked, rounding)


@every_matrix
@given(boxes=held_across)
def test_a_matrix_holds_the_paired_values_and_they_are_on_its_diagonal(case, boxes):
    pred, target = (b.float() for b in boxes)
    n = len(pred)
    matrix = case.matrix(pred, target)
    leaf = case.matrix(pred.clone().requires_grad_(), target).detach()  # which the engine does not serve
    paired = 1 - case.loss(pred, target)
    every = 1 - case.loss(pred.repeat_interleave(n, 0), target.repeat(n, 1)).view(n, n)
    assert_within(matrix.diagonal(), case.exact(*boxes).neg().add(1), str(case), "matrix", (pred, target))
    for found, expected in ((matrix.diagonal(), paired), (matrix, every), (leaf, every)):
        torch.testing.assert_close(found, expected, rtol=0, atol=4 * torch.finfo(torch.float32).eps)


@given(seed=st.integers(0, 2**32))
def test_the_iou_of_whole_numbers_is_the_correctly_rounded_quotient(seed):
    # The scale is a power of two and the division a true one: nothing else is rounded.
    corner, size = torch.randint(1, 50, (2, 2, 2000, 2), generator=torch.Generator().manual_seed(seed)).double()
    low, high = corner, corner + size
    overlap = (high.amin(0) - low.amax(0)).clamp(min=0).prod(-1)
    exact = (overlap / (size.prod(-1).sum(0) - overlap)).float()
    pred, target = torch.cat([low, high], -1).float()
    for boxes in (pred, pred.clone().requires_grad_()):
        assert torch.equal(iou_losses.iou_loss(boxes, target), 1 - exact)
        assert torch.equal(iou_losses.paired_iou(boxes, target), exact)
        rows = [iou_losses.box_iou(b, t).diagonal() for b, t in zip(boxes.split(50), target.split(50), strict=True)]
        assert torch.equal(torch.cat(rows), exact)


@every_matrix
@given(shape=st.tuples(st.integers(0, 3), st.integers(0, 1200)), upright=st.booleans())
def test_a_matrix_of_any_shape_holds_the_paired_values(case, shape, upright):
    n, m = shape if upright else shape[::-1]
    pred, target = (awkward_pairs(count, 1)[of] for of, count in enumerate((n, m)))
    expected = 1 - case.loss(pred.repeat_interleave(m, 0), target.repeat(n, 1)).view(n, m)
    torch.testing.assert_close(case.matrix(pred, target), expected, rtol=0, atol=4 * torch.finfo(torch.float32).eps)
