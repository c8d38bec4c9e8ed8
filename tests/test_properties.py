"""Properties that hold for any boxes: identity, range, symmetries."""

import awkward
import pytest
import torch
from awkward import awkward_pairs
from cases import every_case, ordinary_pairs, over
from checks import assert_gradients

# Kinds whose boxes can be moved and scaled without losing a digit.
EVERYDAY = (awkward.ordinary, awkward.near, awkward.thin, awkward.shared_edges, awkward.nested, awkward.crossing)


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_identical_pair_costs_exactly_0_with_gradient_exactly_0(case, dtype):
    pred, target, _ = awkward_pairs(2000, 3, (awkward.identical, awkward.identical_any_size))
    value, gradient = case.value_and_gradient(pred.to(dtype), target.to(dtype))
    _, by_pred, by_target = case.value_and_gradients(pred.to(dtype), target.to(dtype))
    assert all(not tensor.count_nonzero() for tensor in (value, gradient, by_pred, by_target))


@every_case
@pytest.mark.parametrize("size", [(0, 3), (3, 0), (0, 0)], ids=["vertical line", "horizontal line", "point"])
def test_an_identical_pair_without_area_costs_exactly_0_with_finite_gradient(case, size):
    for corner, scale in [((0.0, 0), 1), ((5.0, -7), 1), ((2.0, 1), 2.0**100), ((0.0, 1), 2.0**-100)]:
        box = torch.tensor([[*corner, corner[0] + size[0], corner[1] + size[1]]]) * scale
        value, gradient = case.value_and_gradient(box, box)
        assert value.item() == 0
        assert gradient.isfinite().all()


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_value_is_out_of_range(case, dtype):
    pred, target, _ = awkward_pairs(20_000, 4)
    value = case.loss(pred.to(dtype), target.to(dtype))
    assert case.range[0] <= value.min()
    assert value.max() <= case.range[1]


@over(lambda case: case.symmetric)
def test_prediction_and_target_may_change_places(case):
    pred, target, _ = awkward_pairs(3000, 5)
    assert_same(case.loss(pred.double(), target.double()), case.loss(target.double(), pred.double()))


@over(lambda case: case.symmetric)
def test_the_gradient_by_the_target_is_that_of_the_exchanged_pair(case):
    pred, target = ordinary_pairs(500, 6)
    _, _, by_target = case.value_and_gradients(pred, target)
    assert_same(by_target, case.value_and_gradient(target, pred)[1])


@every_case
def test_a_shift_of_both_boxes_changes_no_bit_where_it_is_exact(case):
    pred, target, _ = awkward_pairs(2000, 6, EVERYDAY)
    pred, target = pred.round(), target.round()
    shift = torch.tensor([1000.0, -3000.0]).repeat(2)
    for before, after in zip(
        case.value_and_gradient(pred, target), case.value_and_gradient(pred + shift, target + shift), strict=True
    ):
        assert torch.equal(before, after)


@over(lambda case: case.scale_free)
@pytest.mark.parametrize("exponent", [-60, -1, 4, 60])
def test_a_power_of_two_as_unit_changes_no_bit_of_the_value_and_scales_the_gradient(case, exponent):
    pred, target, _ = awkward_pairs(3000, 7, EVERYDAY)
    value, gradient = case.value_and_gradient(pred, target)
    scaled_value, scaled_gradient = case.value_and_gradient(pred * 2.0**exponent, target * 2.0**exponent)
    assert torch.equal(value, scaled_value)
    fewer_bits = torch.finfo(torch.float32).tiny * max(1, 2.0**exponent)  # below it one of the two has them
    assert ((gradient - scaled_gradient * 2.0**exponent).abs() <= fewer_bits).all()


@over(lambda case: case.scale_free)
def test_any_unit_gives_the_same_value(case):
    pred, target = ordinary_pairs(3000, 8)
    assert_same(case.loss(pred, target), case.loss(pred / 37, target / 37))


@every_case
def test_x_and_y_may_change_places(case):
    pred, target, _ = awkward_pairs(3000, 9, (*EVERYDAY, awkward.inverted, awkward.collapsed))
    pred, target = pred.double(), target.double()
    swapped = torch.tensor([1, 0, 3, 2])
    value, gradient = case.value_and_gradient(pred, target)
    swapped_value, swapped_gradient = case.value_and_gradient(pred[:, swapped], target[:, swapped])
    assert_same(value, swapped_value)
    pairs = (pred, target, ["x and y exchanged"] * len(pred))
    assert_gradients(swapped_gradient[:, swapped], gradient, pairs, relative=1e-9, floor=1e-14)


@over(lambda case: case.mirror_invariant)
def test_a_mirror_changes_no_value(case):
    pred, target, _ = awkward_pairs(3000, 10, EVERYDAY)
    sign = torch.tensor([-1.0, 1, -1, 1])
    mirrored = [boxes.double()[:, [2, 1, 0, 3]] * sign for boxes in (pred, target)]
    assert_same(case.loss(pred.double(), target.double()), case.loss(*mirrored))


@every_case
def test_only_the_pair_itself_counts(case):
    pred, target = ordinary_pairs(100, 11)
    alone = torch.stack([case.loss(p, t) for p, t in zip(pred, target, strict=True)])
    assert_same(case.loss(pred, target), alone)
