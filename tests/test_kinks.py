"""Where a loss has no one gradient: shared edges, touching, collapsed and inverted boxes."""

import awkward
import pytest
import reference
import torch
from awkward import awkward_pairs
from cases import every_case, over
from checks import assert_gradients


def gradients(case, pred, target, dtype=torch.float64):
    pred, target = torch.tensor(pred, dtype=dtype), torch.tensor(target, dtype=dtype)
    value, gradient = case.value_and_gradient(pred, target)
    _, beside_the_targets, _ = case.value_and_gradients(pred, target)
    torch.testing.assert_close(gradient, beside_the_targets, rtol=0, atol=1e-6)
    return value, gradient


@every_case
def test_at_shared_edges_the_gradient_is_the_average_of_both_sides(case):
    pred, target, kinds = awkward_pairs(40, 1, (awkward.shared_edges,))
    pairs = zip(pred.tolist(), target.tolist(), strict=True)
    exact = torch.tensor([reference.slopes(case.formula, *pair, **case.hyper) for pair in pairs], dtype=torch.float64)
    assert (pred == target).any(-1).sum() > 25
    _, gradient = case.value_and_gradient(pred.double(), target.double())
    torch.testing.assert_close(gradient, exact, rtol=1e-9, atol=1e-14)
    _, gradient = case.value_and_gradient(pred, target)
    assert_gradients(gradient, exact, (pred, target, kinds), floor=1e-14)


@every_case
def test_rounding_does_not_choose_the_slope_of_boxes_that_share_two_edges(case):
    generator = torch.Generator().manual_seed(2)
    size = torch.rand(4000, 3, generator=generator) + 0.1
    corner = torch.rand(4000, 2, generator=generator)
    pred = torch.cat([corner, corner + size[:, :2]], -1)
    target = torch.stack([pred[:, 0], pred[:, 1], pred[:, 2], pred[:, 1] + size[:, 2]], -1)
    _, gradient = case.value_and_gradient(pred, target)
    expected = case.truth(pred, target).by_pred
    kinds = ["two shared edges"] * 4000
    assert_gradients(gradient, expected, (pred, target, kinds), rounding=case.rounding(torch.float32))


@over(lambda case: case.grows)
@pytest.mark.parametrize("axis", [0, 1], ids="xy")
def test_a_box_that_collapsed_inside_its_target_can_grow(case, axis):
    line = [[5.0, 5, 9, 7]]
    line[0][axis + 2] = line[0][axis]
    target = [[4.0, 4, 10, 8]]
    _, (gradient,) = gradients(case, line, target)
    assert gradient[axis] > 0.04  # descent moves the low edge down
    assert gradient[axis + 2] < -0.04  # and the high edge up
    # It is the slope on the side where there is a box.
    line[0][axis + 2] += 1e-9
    _, (beside,) = gradients(case, line, target)
    torch.testing.assert_close(gradient, beside, rtol=0, atol=1e-6)


@every_case
def test_touching_boxes_have_a_finite_gradient(case):
    pred, target, _ = awkward_pairs(2000, 3, (awkward.touching,))
    value, by_pred, by_target = case.value_and_gradients(pred, target)
    assert all(tensor.isfinite().all() for tensor in (value, by_pred, by_target))


@every_case
@pytest.mark.parametrize(
    ("pred", "target"),
    [
        pytest.param([5, 5, 9, 5], [4, 4, 10, 8], id="a line in a box"),
        pytest.param([4, 4, 10, 8], [5, 5, 5, 7], id="a box around a line"),
        pytest.param([20, 30, 28, 30], [4, 4, 10, 8], id="a line outside a box"),
        pytest.param([5, 5, 5, 5], [4, 4, 10, 8], id="a point in a box"),
        pytest.param([5, 5, 5, 5], [7, 9, 7, 9], id="two points"),
        pytest.param([0, 0, 0, 0], [0, 0, 0, 0], id="one point twice"),
        pytest.param([0, 0, 4, 0], [0, 3, 4, 3], id="parallel lines"),
        pytest.param([0, 0, 4, 0], [2, 0, 6, 0], id="lines that overlap"),
        pytest.param([0, 2, 4, 2], [2, 0, 2, 4], id="lines that cross"),
        pytest.param([9, 9, 1, 1], [2, 2, 6, 6], id="inverted"),
        pytest.param([9, 1, 1, 9], [2, 2, 6, 6], id="inverted in x"),
        pytest.param([9, 9, 1, 1], [9, 9, 1, 1], id="inverted and identical"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_degenerate_boxes_have_the_value_and_gradient_of_the_definition(case, pred, target, dtype):
    pred, target = [[float(v) for v in pred]], [[float(v) for v in target]]
    value, gradient = gradients(case, pred, target, dtype)
    truth = case.truth(torch.tensor(pred), torch.tensor(target))
    assert case.range[0] <= value.item() <= case.range[1]
    torch.testing.assert_close(value.double(), truth.value, rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient.double(), truth.by_pred, rtol=0, atol=1e-6)


@every_case
def test_an_inverted_box_counts_as_a_box_without_area(case):
    pred, target, _ = awkward_pairs(2000, 4, (awkward.inverted,))
    empty = (pred[:, 2:] < pred[:, :2]).any(-1)
    value = case.loss(pred[empty], target[empty])
    assert (value >= case.miss).all()
