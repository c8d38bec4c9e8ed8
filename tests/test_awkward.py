"""Boxes of every awkward kind, in bulk: finite, in range, and right.

A gradient is right to 1e-4 of its row's largest, unless it all but cancels: it is a sum over the lengths that a
coordinate moves, and no sum made in float32 is better than a few roundings of its largest term. (Of a box around a
small target, GIoU's slope is 2e-10, the sum of two of 6e-3.) Besides that there are things which no float32 holds: a
gradient below its smallest number, and an area below its smallest number in units of the hull's longer side squared,
such as the overlap of a box of side 2^-60 with one of side 2^60.
"""

from functools import cache

import pytest
import torch
from awkward import awkward_pairs
from cases import every_case, over
from checks import assert_gradients, assert_rows, rounding_floor

every_way = pytest.mark.parametrize(
    "way", ["value_and_gradient", "value_and_gradients"], ids=["alone", "with target's"]
)


@cache
def many_pairs(n):
    return awkward_pairs(n)


def pairs(case):
    return many_pairs(200_000 if case.matrix else 20_000)


@cache
def truth(case):
    """The truth, and which rows float32 can hold."""
    truth = case.truth(*pairs(case)[:2])
    return truth._replace(two=None), truth.two.held(torch.float32)


@cache
def found(case, way):
    value, *gradients = getattr(case, way)(*pairs(case)[:2])
    return value, gradients


def assert_finite(case, pred, target, value, gradients):
    """Everything; of a steep loss the gradients which float32 can hold."""
    assert value.isfinite().all()
    asked = torch.ones_like(value, dtype=torch.bool)
    if case.steep:
        truth, largest = case.truth(pred, target), torch.finfo(torch.float32).max / 16
        asked = truth.two.held(torch.float32) & (torch.cat(truth[1:3], -1).abs() < largest).all(-1)
        assert asked.sum() > len(pred) / 2
    assert all(gradient[asked].isfinite().all() for gradient in gradients)


@pytest.mark.slow
@every_case
@every_way
def test_of_many_awkward_pairs_value_and_gradient_are_finite_in_range_and_0_for_identical_boxes(case, way):
    pred, target, _ = pairs(case)
    value, gradients = found(case, way)
    assert_finite(case, pred, target, value, gradients)
    assert case.range[0] <= value.min()
    assert value.max() <= case.range[1]
    identical = (pred == target).all(-1) & (pred[:, 2:] >= pred[:, :2]).all(-1)
    assert identical.sum() > len(pred) / 10
    assert not value[identical].count_nonzero()


@pytest.mark.slow
@every_case
@every_way
def test_of_many_awkward_pairs_every_value_is_within_1e_4_of_float64(case, way):
    pred, target, _ = pairs(case)
    value, _ = found(case, way)
    for right in (truth(case)[0].value, case.loss(pred.double(), target.double())):
        assert_rows((value - right).abs() <= 1e-4 * right.abs().clamp(min=1), value, right, pairs(case))


@pytest.mark.slow
@every_case
@every_way
def test_of_many_awkward_pairs_every_gradient_is_within_1e_4_of_the_rows_largest_of_float64(case, way):
    right, held = truth(case)
    for number, gradient in enumerate(found(case, way)[1]):
        floor = rounding_floor(right.terms[number], torch.float32)
        rounding = case.rounding(torch.float32, by_target=number == 1)
        assert_gradients(gradient, right[1 + number], pairs(case), floor=floor, rows=held, rounding=rounding)


@pytest.mark.slow
@every_case
def test_float64_is_a_truth_for_float32_it_agrees_with_the_definition(case):
    pred, target, _ = pairs(case)
    right, held = truth(case)
    value, by_pred, by_target = case.value_and_gradients(pred.double(), target.double())
    torch.testing.assert_close(value, right.value, rtol=1e-14, atol=1e-14)
    for number, gradient in enumerate((by_pred, by_target)):
        floor = rounding_floor(right.terms[number], torch.float64)
        rounding = case.rounding(torch.float64, by_target=number == 1)
        assert_gradients(gradient, right[1 + number], pairs(case), 1e-5, floor, held, rounding)


@over(lambda case: case.range[1] < float("inf"))
def test_value_and_gradient_are_finite_for_coordinates_that_are_0_or_between_2_to_minus_100_and_2_to_100(case):
    generator = torch.Generator().manual_seed(1)
    size = torch.exp2(200 * torch.rand(2, 10_000, 4, generator=generator) - 100)
    boxes = size * torch.randint(-1, 2, (2, 10_000, 4), generator=generator)
    in_order = torch.cat([boxes.view(2, -1, 2, 2).amin(2), boxes.view(2, -1, 2, 2).amax(2)], -1)
    for pred, target in (boxes, in_order):
        for value, *gradients in (case.value_and_gradient(pred, target), case.value_and_gradients(pred, target)):
            assert_finite(case, pred, target, value, gradients)
            assert case.range[0] <= value.min()
            assert value.max() <= case.range[1]
