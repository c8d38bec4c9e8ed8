"""What changes no value, what may only raise it, and what is always so."""

from dataclasses import replace

import cases
import pytest
import torch
from cases import every_case, over
from hypothesis import given
from hypothesis import strategies as st

from .errors import ALLOWED
from .strategies import anything, approaches, coarse, growths, ordered, proper, three_boxes

EPS = torch.finfo(torch.float64).eps
TRANSPOSED = [1, 0, 3, 2]
# So far that float32 holds the moved coordinates, but not the sum of two.
far = st.builds(lambda side, distance: side * distance, st.sampled_from([-1, 1]), st.integers(2**23, 2**24 - 2**9))
# A box that goes straight away from its target may become cheaper with these, by their definitions.
CHEAPER_FAR_AWAY = {
    cases.eiou: "the difference of the sides is divided by a hull that grows",
    cases.focal_eiou: "the weight of a box falls with its IoU",
    cases.extended_iou: "its signed intersection may be nearer to the union's size when farther away",
    cases.ciou_journal: "below its threshold the aspect ratio costs nothing",
    cases.alpha_ciou: "CIoU's alpha falls with the IoU, and so does what it weighs, to any power",
    cases.half_ciou: "the same",
    cases.piou2: "its focus leaves out the boxes of least quality",
    cases.dynamic_interp_iou: "the interpolated box comes nearer when the IoU is low",
}
# And one that shrinks in the midst of it with these.
CHEAPER_WHEN_SMALL = (cases.focal_eiou, cases.dynamic_interp_iou)


def assert_same(found, expected):
    """To rounding, in float64; of a large value its own digits count."""
    torch.testing.assert_close(found, expected, rtol=ALLOWED * EPS, atol=ALLOWED * EPS)


def assert_not_less(found, least):
    assert (found >= least - ALLOWED * EPS * found.abs().clamp(min=1)).all()


@every_case
@given(boxes=anything)
def test_a_value_is_in_range_and_not_nan(case, boxes):
    for pred, target in (boxes, [b.float() for b in boxes]):
        for value in (case.loss(pred, target), case.value_and_gradients(pred, target)[0]):
            assert ((value >= case.range[0]) & (value <= case.range[1])).all()


@every_case
@given(boxes=anything)
def test_a_box_and_itself_cost_exactly_0_with_gradient_exactly_0_where_it_has_sides(case, boxes):
    for box in (boxes[0], boxes[0].float()):
        box = torch.cat([torch.minimum(box[:, :2], box[:, 2:]), torch.maximum(box[:, :2], box[:, 2:])], -1)
        assert not case.loss(box, box).count_nonzero()
        for value, gradient, *_ in (case.value_and_gradient(box, box), case.value_and_gradients(box, box)):
            assert not value.count_nonzero()
            assert gradient.isfinite().all()
            side = box[:, 2:] - box[:, :2]
            slender = side.amin(-1) < 2.0**-20 * side.amax(-1)  # its area may be below the smallest number
            assert not gradient[~slender].count_nonzero()


@over(lambda case: case.symmetric)
@given(boxes=coarse)
def test_prediction_and_target_may_change_places(case, boxes):
    pred, target = boxes
    assert_same(case.loss(target, pred), case.loss(pred, target))


@every_case
@given(boxes=coarse, by=st.tuples(far, far))
def test_a_move_of_both_boxes_changes_no_bit(case, boxes, by):
    pred, target = (b.float() for b in boxes)
    shift = torch.tensor(by).repeat(2)
    before, after = (case.value_and_gradients(pred + move, target + move) for move in (0 * shift, shift))
    assert all(map(torch.equal, before, after))
    before, after = (case.value_and_gradient(pred + move, target + move) for move in (0 * shift, shift))
    assert all(map(torch.equal, before, after))


@every_case
@given(boxes=coarse, exponent=st.integers(-60, 60))
def test_a_power_of_two_as_unit_changes_no_bit_of_the_value(case, boxes, exponent):
    unit, (pred, target) = 2.0**exponent, (b.float() for b in boxes)
    scaled = case if case.scale_free else with_lengths_times(case, unit)
    assert torch.equal(scaled.loss(pred * unit, target * unit), case.loss(pred, target))
    found, expected = scaled.value_and_gradients(pred * unit, target * unit), case.value_and_gradients(pred, target)
    assert torch.equal(found[0], expected[0])


def with_lengths_times(case, unit):
    """The same loss with its absolute length in another unit."""
    if case is cases.mpdiou:
        return vary(case, image_size=tuple(side * unit for side in case.hyper["image_size"]))
    assert case is cases.nwd
    return vary(case, constant=12.8 * unit)


def vary(case, **hyper):
    return replace(case, hyper=case.hyper | hyper)


@every_case
@given(boxes=coarse)
def test_x_and_y_may_change_places(case, boxes):
    pred, target = boxes
    assert_same(case.loss(pred[:, TRANSPOSED], target[:, TRANSPOSED]), case.loss(pred, target))


@over(lambda case: case.mirror_invariant)
@given(boxes=coarse, axes=st.sampled_from([(0,), (1,), (0, 1)]))
def test_a_mirror_changes_no_value(case, boxes, axes):
    assert_same(case.loss(*(mirrored(b, axes) for b in boxes)), case.loss(*boxes))


def mirrored(boxes, axes):
    halves = boxes.clone().view(-1, 2, 2)
    for axis in axes:
        halves[:, :, axis] = -halves[:, :, axis].flip(1)
    return halves.view(-1, 4)


@over([cases.sca])
@given(boxes=coarse)
def test_a_mirror_of_both_axes_changes_no_value_of_what_takes_the_low_corner_and_the_high_one_alike(case, boxes):
    assert_same(case.loss(*(mirrored(b, (0, 1)) for b in boxes)), case.loss(*boxes))


@over([cases.extended_iou])
@given(boxes=proper, axes=st.sampled_from([(0,), (1,)]))
def test_a_mirror_changes_no_value_of_boxes_that_overlap_where_it_changes_that_of_others(case, boxes, axes):
    pred, target = boxes
    overlap = (torch.minimum(pred[:, 2:], target[:, 2:]) >= torch.maximum(pred[:, :2], target[:, :2])).all(-1)
    pred, target = pred[overlap], target[overlap]
    assert_same(case.loss(mirrored(pred, axes), mirrored(target, axes)), case.loss(pred, target))


@over(lambda case: case not in CHEAPER_FAR_AWAY)
@given(boxes=three_boxes(approaches()))
def test_a_box_that_goes_straight_away_from_its_target_gets_no_cheaper(case, boxes):
    near, far, target = boxes
    assert_not_less(case.loss(far, target), case.loss(near, target))


@over(lambda case: case not in CHEAPER_WHEN_SMALL)
@given(boxes=three_boxes(growths()))
def test_a_box_that_grows_to_the_size_of_its_target_gets_no_dearer(case, boxes):
    larger, smaller, target = boxes
    assert_not_less(case.loss(smaller, target), case.loss(larger, target))


@pytest.mark.parametrize(
    ("case", "less"),
    [
        (cases.giou, cases.iou),
        (cases.diou, cases.iou),
        (cases.ciou, cases.diou),
        (cases.eiou, cases.diou),
        (cases.ciou, cases.ciou_journal),
        (cases.siou, cases.iou),
        (cases.mpdiou, cases.iou),
        (cases.shape_iou1, cases.iou),
        (cases.wiou1, cases.iou),
        (cases.piou1, cases.iou),
        (cases.interp_iou, cases.iou),
        (cases.square_iou, cases.iou),
        (cases.log_iou, cases.iou),
    ],
    ids=str,
)
@given(boxes=ordered)
def test_what_a_paper_adds_to_another_loss_is_no_rebate(case, less, boxes):
    assert_not_less(case.loss(*boxes), less.loss(*boxes))
