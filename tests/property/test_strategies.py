"""The strategies give what their names say."""

import pytest
import torch
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from .strategies import ORDERED, PROPER, RAGGED, RELATIONS, anything, held, intervals, of_any_size, on_a_grid


def named(pred, target):
    """Every relation that holds between two intervals."""
    (x1, x2), (a1, a2) = sorted([pred, target])
    (low, high), (a_low, a_high) = sorted([x1, x2]), sorted([a1, a2])
    flat, upside_down = [x1 == x2, a1 == a2], [x2 < x1, a2 < a1]
    return {
        "apart": high < a_low,
        "touching": high == a_low,
        "inside": (low < a_low and a_high < high),
        "sharing an edge": (low == a_low) != (high == a_high),
        "identical": (x1, x2) == (a1, a2),
        "collapsed": any(flat),
        "both collapsed": all(flat),
        "inverted": any(upside_down),
        "both inverted": all(upside_down),
    }


@pytest.mark.parametrize("kind", named((0, 1), (0, 1)))
@pytest.mark.parametrize(
    "numbers", [on_a_grid(6), on_a_grid(21), of_any_size(-100, 100)], ids=["coarse", "ragged", "any size"]
)
def test_every_kind_of_interval_comes_up(kind, numbers):
    some = settings(max_examples=500, phases=[Phase.generate])
    found = find(intervals(numbers, tuple(RELATIONS)), lambda both: named(*both)[kind], settings=some)
    assert named(*found)[kind]


@given(st.sampled_from(PROPER).flatmap(lambda name: intervals(on_a_grid(6), (name,))))
def test_proper_intervals_have_a_length(both):
    assert all(low < high for low, high in both)


@given(st.sampled_from(ORDERED).flatmap(lambda name: intervals(of_any_size(-40, 60), (name,))))
def test_ordered_intervals_are_not_inverted(both):
    assert all(low <= high for low, high in both)


@given(anything)
def test_float32_holds_every_coordinate_and_they_are_of_the_promised_size(boxes):
    for box in boxes:
        assert torch.equal(box.float().double(), box)
        assert ((box == 0) | (box.abs() >= 2.0**-100) & (box.abs() <= 2.0**100)).all()


@given(held)
def test_float32_holds_every_side_in_units_of_the_hull(boxes):
    numbers = torch.cat(boxes, -1)
    x, y = numbers[:, ::2], numbers[:, 1::2]
    hull = torch.maximum(x.amax(1) - x.amin(1), y.amax(1) - y.amin(1))
    for places in (x, y):
        sides = (places[:, :, None] - places[:, None]).abs().flatten(1)
        assert ((sides == 0) | (sides >= torch.finfo(torch.float32).tiny * hull[:, None])).all()


def test_ragged_numbers_take_all_the_bits_of_float32():
    assert 4 * 2**RAGGED < 2**24 <= 8 * 2**RAGGED
