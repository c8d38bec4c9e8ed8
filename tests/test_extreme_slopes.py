"""Slopes that float32 holds although a product on the way to them is beyond it: every number of the gradient is right.

`test_awkward` looks at the largest number of a row, and of its pairs one in 30,000 has such a product.
"""

import pytest
import torch
from cases import half_ciou, half_diou, half_iou, iou, log_iou, mpdiou, over, shape_iou1, siou


def assert_right(case, pred, target, rtol=1e-5, atol=1e-6):
    truth = case.truth(pred, target)
    by_formula, by_engine = case.value_and_gradients(pred, target), case.value_and_gradient(pred, target)
    for found, right in [*zip(by_formula, truth[:3], strict=True), *zip(by_engine, truth[:2], strict=True)]:
        torch.testing.assert_close(found.double(), right, rtol=rtol, atol=atol)


@over([log_iou, half_iou, half_diou, half_ciou])
@pytest.mark.parametrize("share", [2.0**-18, 2.0**-29])
def test_a_steep_function_of_the_iou_of_two_thin_boxes(case, share):
    # The slope by the IoU, up to 2^18, times 1 / U, 2^116, overflows before a side of 2^-116 brings it back.
    thin = 2.0**-116
    long, short = [0, 0, 1, thin], [share / 4, thin / 4, share, 5 * thin / 4]
    pred, target = (torch.tensor([box, [box[i] for i in (1, 0, 3, 2)]]) for box in (long, short))
    assert_right(case, pred, target)
    assert_right(case, target, pred)


@pytest.mark.parametrize("side", [1e30, 1e38])
@pytest.mark.parametrize("distance", [1e10, 1e16])
def test_a_distance_of_corners_that_is_short_beside_the_boxes_and_long_beside_the_image(side, distance):
    pred, target = torch.tensor([[0, 0, side, side]]), torch.tensor([[distance, 0, side, side]])
    assert_right(mpdiou, pred, target)


# A thin prediction beside a target without width: the slopes of the width fill the dtype and cancel.
THIN = [
    (shape_iou1, [547.08685, 620.09314, 547.09698, 1020.31042], [547.39191, 961.70881, 547.39191, 1761.33215]),
    (siou, [328.60025, 114.36138, 328.60031, 114.36142], [299.02319, 251.74693, 299.02319, 365.62988]),
    (siou, [-100, -0.001, -0.001, 0], [-0.001, 100, -100, -100]),
]


@pytest.mark.parametrize(("case", "pred", "target"), THIN, ids=str)
def test_slopes_that_cancel_swallow_no_other(case, pred, target):
    assert_right(case, torch.tensor([pred]), torch.tensor([target]), rtol=1e-3, atol=1e-9)


def test_a_gap_that_vanishes_beside_the_hull_is_a_gap():
    pred = torch.tensor([[0.0, -1, 1e20, 0]], requires_grad=True)
    iou.loss(pred, torch.tensor([[0.0, 1e-27, 1e20, 1]])).sum().backward()
    assert torch.equal(pred.grad, torch.zeros(1, 4))
