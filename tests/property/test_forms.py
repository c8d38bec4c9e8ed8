"""The same boxes in every format, dtype and company."""

import math

import torch
from cases import every_loss, every_matrix
from hypothesis import given
from hypothesis import strategies as st

from .strategies import batches, coarse, on_a_grid, pairs, proper

# Coarse boxes in each format, exactly. An inverted box stays one.
FROM_CORNERS = {
    "xyxy": lambda low, high: (low, high),
    "xywh": lambda low, high: (low, high - low),
    "cxcywh": lambda low, high: ((low + high) / 2, high - low),
    "ltrb": lambda low, high: (-low, high),
    "xyxy_inclusive": lambda low, high: (low, high - 1),
}
TRANSPOSES = {  # a gradient by corners to one by the two halves of a box in the format
    "xyxy": lambda low, high: (low, high),
    "xywh": lambda low, high: (low + high, high),
    "cxcywh": lambda low, high: (low + high, (high - low) / 2),
    "ltrb": lambda low, high: (-low, high),
    "xyxy_inclusive": lambda low, high: (low, high),
}
RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
small = batches(pairs(on_a_grid(5)))  # from -32 to 128


def halves(convert, boxes):
    return torch.cat(convert(boxes[:, :2], boxes[:, 2:]), -1)


@every_loss
@given(boxes=coarse)
def test_every_format_gives_the_bits_of_corners_and_its_own_gradient(case, boxes):
    pred, target = (b.float() for b in boxes)
    for fmt, convert in FROM_CORNERS.items():
        given = halves(convert, pred), halves(convert, target)
        for way in (case.value_and_gradient, lambda *boxes, **options: formula(case, *boxes, **options)):
            value, gradient = way(pred, target, fmt="xyxy")
            found, found_gradient = way(*given, fmt=fmt)
            assert torch.equal(found, value)
            expected = halves(TRANSPOSES[fmt], gradient)
            largest = gradient.abs().amax(-1, keepdim=True)
            assert ((found_gradient - expected).abs() <= 4 * torch.finfo(torch.float32).eps * largest).all()


def formula(case, pred, target, fmt):
    """Value and gradient by the formula: a target that wants a gradient is not for the engine."""
    pred, target = pred.clone().requires_grad_(), target.clone().requires_grad_()
    value = case.loss(pred, target * 1, fmt=fmt)
    return value.detach(), torch.autograd.grad(value.sum(), pred)[0]


@every_matrix
@given(boxes=coarse)
def test_a_matrix_of_every_format_is_that_of_corners(case, boxes):
    pred, target = (b.float() for b in boxes)
    for fmt, convert in FROM_CORNERS.items():
        found = case.matrix(halves(convert, pred), halves(convert, target), fmt=fmt)
        torch.testing.assert_close(found, case.matrix(pred, target), rtol=0, atol=2 * torch.finfo(torch.float32).eps)


@every_loss
@given(boxes=small, dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)))
def test_every_pair_of_dtypes_gives_the_bits_of_the_dtype_it_is_computed_in(case, boxes, dtypes):
    pred, target = (b.clamp(*RANGES.get(dtype, (-1e3, 1e3))).to(dtype) for b, dtype in zip(boxes, dtypes, strict=True))
    wide = torch.float32 if pred.is_floating_point() and target.is_floating_point() else torch.float64
    value = case.loss(pred, target)
    assert value.dtype == wide
    assert torch.equal(value, case.loss(pred.to(wide), target.to(wide)))


@every_loss
@given(
    boxes=coarse,
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    place=st.tuples(st.integers(0, 16), st.integers(0, 7)),
)
def test_a_bad_row_stays_alone_and_nan_is_not_swallowed(case, boxes, bad, place):
    row, column = min(place[0], len(boxes[0])), place[1]
    rows = torch.cat([*boxes], -1).float()
    bad_row = torch.arange(8.0).where(torch.arange(8) != column, torch.tensor(bad))
    with_bad = torch.cat([rows[:row], bad_row[None], rows[row:]])
    others = torch.arange(len(with_bad)) != row
    for way in (case.value_and_gradient, case.value_and_gradients):
        expected = way(rows[:, :4], rows[:, 4:])
        found = way(with_bad[:, :4], with_bad[:, 4:])
        for clean, dirty in zip(expected, found, strict=True):
            assert torch.equal(dirty[others], clean)
        assert not math.isnan(bad) or found[0][row].isnan()


@every_loss
@given(boxes=proper, reduction=st.sampled_from(["mean", "sum"]))
def test_the_second_derivative_of_a_reduction_is_that_of_the_reduced_losses(case, boxes, reduction):
    pred, target = boxes

    def slopes(reduced):
        leaf = pred.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(reduced(leaf), leaf, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), leaf)[0]

    found = slopes(lambda leaf: case.loss(leaf, target, reduction))
    expected = slopes(lambda leaf: getattr(case.loss(leaf, target), reduction)())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
