"""Scoring: which boxes are correct."""

import pytest
import torch
from cases import ordinary_pairs

from iou_losses import COCO_THRESHOLDS, detection_accuracy, is_correct, paired_iou

TRUTH = torch.tensor([[0.0, 0, 100, 100]]).repeat(5, 1)
SHIFTED = TRUTH + torch.tensor([0.0, 10, 25, 50, 100])[:, None] * torch.tensor([1.0, 0, 1, 0])


def width(share):
    """A box and the part of it whose IoU with it is `share`."""
    return torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[0.0, 0, share, 1]])


def test_an_iou_of_exactly_the_threshold_is_correct():
    assert is_correct(torch.tensor([0.5, 0.6, 0.25])).tolist() == [True, True, False]
    assert is_correct(torch.tensor([0.75]), 0.75).item()


@pytest.mark.parametrize("threshold", COCO_THRESHOLDS)
def test_a_threshold_that_float32_rounds_is_met_by_the_rounded_iou(threshold):
    iou = torch.tensor([threshold])
    assert is_correct(iou, threshold).item()
    assert is_correct(iou, torch.tensor(threshold, dtype=torch.float64)).item()
    assert is_correct(iou, [threshold]).item()
    assert not is_correct(torch.nextafter(iou, torch.zeros(1)), threshold).item()
    assert detection_accuracy(*width(threshold), threshold).item() == 1


def test_an_iou_of_exactly_7_tenths_meets_the_threshold_0_7():
    pred, target = torch.tensor([[0.0, 0, 10, 1]]), torch.tensor([[0.0, 0, 7, 1]])
    assert detection_accuracy(pred, target, 0.7).item() == 1
    assert detection_accuracy(pred.double(), target.double(), 0.7).item() == 1


def test_thresholds_broadcast_against_the_ious():
    iou = torch.tensor([[0.4], [0.6]])
    assert is_correct(iou, [0.3, 0.5, 0.7]).tolist() == [[True, False, False], [True, True, False]]
    assert torch.equal(is_correct(iou, (0.3, 0.5, 0.7)), is_correct(iou, torch.tensor([0.3, 0.5, 0.7])))
    assert is_correct(iou, 0.5).dtype == torch.bool


def test_nan_is_not_correct():
    assert not is_correct(torch.tensor(float("nan")), 0.0).item()


@pytest.mark.parametrize("iou", [torch.tensor([0, 1]), torch.tensor([True]), [0.7]], ids=["int", "bool", "list"])
def test_a_similarity_must_be_floating_lest_the_threshold_be_cut_to_0(iou):
    with pytest.raises(TypeError, match="iou must be a floating tensor, got"):
        is_correct(iou, 0.5)


def test_coco_averages_over_ten_thresholds():
    assert tuple(round(0.5 + 0.05 * i, 2) for i in range(10)) == COCO_THRESHOLDS


def test_accuracy_is_the_share_of_correct_boxes_for_each_threshold():
    assert detection_accuracy(SHIFTED, TRUTH).item() == pytest.approx(0.6)
    torch.testing.assert_close(detection_accuracy(SHIFTED, TRUTH, (0.5, 0.75)), torch.tensor([0.6, 0.4]))
    pred, target = ordinary_pairs(500, 1)
    iou = paired_iou(pred, target)
    expected = torch.stack([(iou >= threshold).double().mean() for threshold in COCO_THRESHOLDS])
    torch.testing.assert_close(detection_accuracy(pred, target, COCO_THRESHOLDS), expected)


@pytest.mark.parametrize("as_type", [list, tuple, torch.tensor, lambda t: torch.tensor(t).double()])
def test_thresholds_may_be_a_sequence_or_a_tensor(as_type):
    expected = detection_accuracy(SHIFTED, TRUTH, (0.5, 0.75))
    assert torch.equal(detection_accuracy(SHIFTED, TRUTH, as_type([0.5, 0.75])), expected)


def test_the_result_has_the_shape_of_the_thresholds():
    assert detection_accuracy(SHIFTED, TRUTH, 0.5).shape == ()
    assert detection_accuracy(SHIFTED, TRUTH, torch.tensor(0.5)).shape == ()
    assert detection_accuracy(SHIFTED, TRUTH, [0.5]).shape == (1,)
    assert detection_accuracy(SHIFTED, TRUTH, torch.full((2, 3), 0.5)).shape == (2, 3)
    assert detection_accuracy(SHIFTED, TRUTH, []).shape == (0,)


def test_leading_dimensions_count_as_boxes():
    pred, target = ordinary_pairs(60, 2)
    nested = detection_accuracy(pred.view(3, 20, 4), target.view(3, 20, 4), COCO_THRESHOLDS)
    assert torch.equal(nested, detection_accuracy(pred, target, COCO_THRESHOLDS))
    assert detection_accuracy(pred[0], target[0], 0.0).item() == 1


@pytest.mark.parametrize("thresholds", [0.5, (0.5, 0.75)])
def test_without_boxes_nothing_was_right_or_wrong(thresholds):
    nothing = torch.zeros(0, 4)
    accuracy = detection_accuracy(nothing, nothing, thresholds)
    assert accuracy.shape == torch.as_tensor(thresholds).shape
    assert accuracy.isnan().all()
    images = torch.stack([accuracy, detection_accuracy(SHIFTED, TRUTH, thresholds)])
    assert torch.equal(images.nanmean(0), images[1])


def test_formats_and_errors_are_those_of_paired_iou():
    centred = [torch.cat([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]], -1) for b in (SHIFTED, TRUTH)]
    assert detection_accuracy(*centred, fmt="cxcywh").item() == pytest.approx(0.6)
    with pytest.raises(ValueError, match=r"\(5, 4\).*\(2, 4\)"):
        detection_accuracy(SHIFTED, TRUTH[:2])


def test_a_score_has_no_graph_to_keep():
    assert not detection_accuracy(SHIFTED.clone().requires_grad_(), TRUTH).requires_grad
