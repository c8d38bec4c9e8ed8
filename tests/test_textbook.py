"""Numbers that one can check with pencil and paper."""

from fractions import Fraction

import pytest
import torch

from iou_losses import box_iou, generalized_box_iou, giou_loss, iou_loss, is_correct, paired_iou


def iou(first, second, **options):
    value = paired_iou(torch.tensor([first]), torch.tensor([second]), **options)
    assert value.item() == box_iou(torch.tensor([first]), torch.tensor([second]), **options).item()
    return value.item()


def test_two_squares_of_side_4_shifted_by_1_in_both_directions_share_9_of_23():
    assert iou([0, 0, 4, 4], [1, 1, 5, 5]) == float(Fraction(9, 23))


def test_shifted_by_1_in_one_direction_only_they_share_12_of_20():
    assert iou([0, 0, 4, 4], [1, 0, 5, 4]) == 0.6
    assert iou([0, 0, 4, 4], [0, 1, 4, 5]) == 0.6


def test_shifted_by_2_in_both_directions_they_share_4_of_28():
    assert iou([0, 0, 4, 4], [2, 2, 6, 6]) == float(Fraction(1, 7))


def test_areas_of_12000_and_10000_with_an_overlap_of_8000_have_an_iou_of_four_sevenths():
    assert iou([0, 0, 120, 100], [40, 0, 140, 100]) == float(Fraction(4, 7))


@pytest.mark.parametrize(
    ("shift", "share", "hit_at_half", "hit_at_three_quarters"),
    [
        (0, Fraction(1), True, True),
        (10, Fraction(9, 11), True, True),
        (25, Fraction(3, 5), True, False),
        (50, Fraction(1, 3), False, False),
        (100, Fraction(0), False, False),
    ],
)
def test_a_square_of_side_100_and_itself_shifted_to_the_right(shift, share, hit_at_half, hit_at_three_quarters):
    value = iou([0, 0, 100, 100], [shift, 0, 100 + shift, 100])
    assert value == float(share)
    assert is_correct(torch.tensor(value)).item() is hit_at_half
    assert is_correct(torch.tensor(value), 0.75).item() is hit_at_three_quarters


def test_two_squares_of_side_100_that_are_8_apart_have_an_iou_of_0_7337_and_a_giou_of_0_7227():
    first, second = torch.tensor([[50, 50, 150, 150]]), torch.tensor([[58, 58, 158, 158]])
    assert box_iou(first, second).item() == float(Fraction(8464, 11536)) == pytest.approx(0.7337, abs=5e-5)
    assert generalized_box_iou(first, second).item() == pytest.approx(0.7227, abs=5e-5)
    assert giou_loss(first, second).item() == pytest.approx(1 - 0.7227, abs=5e-5)


def test_a_square_of_side_10_shifted_by_1_is_a_hit_and_shifted_by_8_a_miss():
    near, far = iou([0, 0, 10, 10], [1, 1, 11, 11]), iou([0, 0, 10, 10], [8, 8, 18, 18])
    assert (near, far) == (float(Fraction(81, 119)), float(Fraction(4, 196)))
    assert (round(near, 4), round(far, 4)) == (0.6807, 0.0204)
    assert is_correct(torch.tensor([near, far])).tolist() == [True, False]


def test_disjoint_boxes_share_nothing_where_unclamped_lengths_would_give_16():
    assert (1 - 5) * (1 - 5) == 16
    assert iou([0, 0, 1, 1], [5, 5, 6, 6]) == 0
    assert iou_loss(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[5.0, 5, 6, 6]])).item() == 1


def test_a_box_from_pixel_0_to_pixel_3_is_4_pixels_wide():
    assert iou([0, 0, 3, 3], [0, 0, 3, 1], fmt="xyxy_inclusive") == 0.5
    assert iou([0, 0, 3, 3], [0, 0, 3, 1]) == float(Fraction(1, 3))


def test_a_gap_as_wide_as_both_boxes_together_makes_half_of_the_hull_empty():
    assert giou_loss(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[3.0, 0, 4, 1]])).item() == 1.5


def test_a_box_in_the_opposite_corner_of_a_large_image_costs_almost_2_by_giou():
    loss = giou_loss(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[30.0, 30, 31, 31]])).item()
    assert loss == pytest.approx(float(Fraction(1920, 961)), abs=1e-6)
