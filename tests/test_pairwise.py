"""Matrices: every box with every other."""

import pytest
import torch
from awkward import awkward_pairs
from cases import GOLDEN_PAIRS, ciou, diou, every_matrix, giou, iou, ordinary_pairs, over
from optional import tv_tensors

import iou_losses


def raises(error, *words):
    return pytest.raises(error, match="".join(f"(?=.*{word})" for word in words))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def double_loop(case, boxes1, boxes2, **options):
    rows = [[1 - case.loss(a, b, **options) for b in boxes2] for a in boxes1]
    return torch.stack([torch.stack(row) for row in rows])


@every_matrix
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("n", "m"), [(7, 5), (5, 7), (1, 6), (6, 1), (4, 4), (3, 17)])
def test_a_matrix_is_the_double_loop_over_the_paired_loss(case, dtype, n, m):
    pred, target, _ = awkward_pairs(300, 1)
    pred, target = pred[:: 300 // n][:n].to(dtype), target[:: 300 // m][:m].to(dtype)
    matrix = case.matrix(pred, target)
    assert matrix.shape == (n, m)
    assert matrix.dtype == dtype
    torch.testing.assert_close(matrix, double_loop(case, pred, target), rtol=0, atol=4 * torch.finfo(dtype).eps)


@every_matrix
def test_the_matrix_of_large_sets_holds_all_pairs_also_awkward_ones(case):
    pred, target, _ = awkward_pairs(330, 2)
    matrix = case.matrix(pred, target[:257])
    rows, columns = torch.arange(330).repeat_interleave(257), torch.arange(257).repeat(330)
    paired = 1 - case.loss(pred[rows], target[columns])
    torch.testing.assert_close(matrix.flatten(), paired, rtol=0, atol=4 * torch.finfo(torch.float32).eps)
    assert 1 - case.range[1] <= matrix.min()
    assert matrix.max() <= 1


@every_matrix
def test_a_box_and_itself_have_exactly_1(case):
    boxes = awkward_pairs(150, 3)[0]
    boxes = boxes[(boxes[:, 2:] >= boxes[:, :2]).all(-1)]
    assert (case.matrix(boxes, boxes).diagonal() == 1).all()


@every_matrix
@pytest.mark.parametrize("power", [-100, -30, 30, 100])
def test_the_unit_of_the_boxes_changes_no_bit(case, power):
    pred, target = ordinary_pairs(40, 6, torch.float32)
    unit = 2.0**power
    assert torch.equal(case.matrix(pred * unit, target * unit), case.matrix(pred, target))


@every_matrix
def test_golden_values(case):
    matrix = case.matrix(*GOLDEN_PAIRS)
    torch.testing.assert_close(1 - matrix.diagonal(), torch.tensor(case.golden).double(), rtol=0, atol=1e-7)


@every_matrix
def test_leading_dimensions_broadcast(case):
    pred, target = (boxes.view(2, 3, 5, 4) for boxes in ordinary_pairs(30, 4))
    whole = case.matrix(pred, target)
    assert whole.shape == (2, 3, 5, 5)
    one = case.matrix(pred[1, 2], target[1, 2])
    close(whole[1, 2], one)
    close(case.matrix(pred[1, 2], target)[1, 2], one)
    close(case.matrix(pred, target[1, 2])[1, 2], one)
    close(case.matrix(pred[:, 2:], target)[1, 2], one)
    assert case.matrix(pred[:, :1], target[:1, :, :2]).shape == (2, 3, 5, 2)


@every_matrix
def test_empty_sets_give_empty_matrices(case):
    boxes = ordinary_pairs(3, 5)[0].float()
    none = torch.zeros(0, 4)
    assert case.matrix(none, boxes).shape == (0, 3)
    assert case.matrix(boxes, none).shape == (3, 0)
    assert case.matrix(none, none).shape == (0, 0)
    assert case.matrix(torch.zeros(0, 2, 4), boxes).shape == (0, 2, 3)
    leaf = none.requires_grad_()
    case.matrix(leaf, boxes).sum().backward()
    assert leaf.grad.shape == (0, 4)


@every_matrix
def test_a_matrix_is_differentiable_by_both_sets(case):
    pred, target = ordinary_pairs(6, 6)
    pred, target = pred[:3].requires_grad_(), target[:2].requires_grad_()
    weight = torch.arange(1.0, 7).view(3, 2).double()
    found = torch.autograd.grad((case.matrix(pred, target) * weight).sum(), (pred, target))
    expected = torch.autograd.grad((double_loop(case, pred, target) * weight).sum(), (pred, target))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-14)
    (by_target,) = torch.autograd.grad((case.matrix(pred.detach(), target) * weight).sum(), target)
    torch.testing.assert_close(by_target, expected[1], rtol=1e-9, atol=1e-14)


@over([giou, diou])
def test_gradcheck_of_a_matrix(case):
    pred, target = ordinary_pairs(6, 6)
    boxes = [(pred[:3] / 100).requires_grad_(), (target[:2] / 100).requires_grad_()]
    assert torch.autograd.gradcheck(case.matrix, boxes)


@pytest.mark.parametrize(
    ("first", "second", "threshold"),
    [
        ([0, 0, 1, 1], [0, 0, 0.5, 1], 0.5),
        ([1, 1, 2, 3], [0, 0, 2, 2], 0.2),
        ([3, 4, 7, 6], [4, 4, 8, 6], 0.6),
        ([0, 0, 4, 1], [0, 0, 3, 1], 0.75),
        ([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 3.0, 2.0**-40])
def test_an_iou_of_exactly_the_threshold_is_at_the_threshold(first, second, threshold, scale):
    first, second = torch.tensor([first]) * scale, torch.tensor([second]) * scale
    for value in (iou_losses.box_iou(first, second)[0], iou_losses.paired_iou(first, second)):
        assert value.item() == torch.tensor(threshold).item()
        assert value >= threshold
        assert not value > torch.tensor(threshold)


@every_matrix
def test_nan_stays_in_its_row_and_column(case):
    pred, target = ordinary_pairs(20, 7, torch.float32)
    expected = case.matrix(pred, target)
    pred[3, 1], target[5, 2] = float("nan"), float("nan")
    matrix = case.matrix(pred, target)
    hit = torch.zeros(20, 20, dtype=torch.bool)
    hit[3], hit[:, 5] = True, True
    assert torch.equal(matrix.isnan(), hit)
    assert torch.equal(matrix[~hit], expected[~hit])


@every_matrix
def test_formats_and_dtypes_are_those_of_the_paired_loss(case):
    pred, target = (boxes[:9].round() for boxes in ordinary_pairs(18, 8))
    sized = [torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], -1) for boxes in (pred, target)]
    matrix = case.matrix(pred, target)
    assert torch.equal(case.matrix(*sized, fmt="xywh"), matrix)
    assert torch.equal(case.matrix(*sized, "xywh"), matrix)
    boxes = tv_tensors.BoundingBoxes(sized[0], format="XYWH", canvas_size=(9, 9))
    assert torch.equal(case.matrix(boxes, target), matrix)
    assert type(case.matrix(boxes, target)) is torch.Tensor
    assert torch.equal(case.matrix(pred.int(), target.float()), matrix)
    assert case.matrix(pred.half(), target.bfloat16()).dtype == torch.float32
    assert torch.equal(case.matrix(pred.t().contiguous().t(), target.flip(0)).flip(1), matrix)


@every_matrix
def test_errors_name_what_came(case):
    with raises(ValueError, r"\(\.\.\., N, 4\)", r"\(2, 3, 4\)", r"\(5, 3, 4\)"):
        case.matrix(torch.zeros(2, 3, 4), torch.zeros(5, 3, 4))
    with raises(ValueError, r"\(4,\)"):
        case.matrix(torch.zeros(4), torch.zeros(3, 4))
    with raises(ValueError, r"\(3, 5\)"):
        case.matrix(torch.zeros(3, 5), torch.zeros(3, 4))
    with raises(ValueError, "'xyxy_inclusive'", "'xyhw'"):
        case.matrix(torch.zeros(3, 4), torch.zeros(3, 4), "xyhw")
    with raises(TypeError, "bool"):
        case.matrix(torch.zeros(3, 4).bool(), torch.zeros(3, 4))
    with raises(ValueError, "cpu", "meta"):
        case.matrix(torch.zeros(3, 4), torch.zeros(3, 4, device="meta"))


def test_paired_iou_is_one_minus_the_loss():
    pred, target, _ = awkward_pairs(1500, 9)
    assert torch.equal(1 - iou_losses.paired_iou(pred, target), iou.loss(pred, target))
    assert iou_losses.paired_iou(pred.view(3, 500, 4), target.view(3, 500, 4)).shape == (3, 500)
    assert iou_losses.paired_iou(pred[0], target[0]).shape == ()
    with raises(ValueError, r"\(3, 4\)", r"\(2, 4\)"):
        iou_losses.paired_iou(torch.zeros(3, 4), torch.zeros(2, 4))
    assert ciou.matrix is iou_losses.complete_box_iou
