"""Dtypes, formats, and where the digits go."""

import itertools

import pytest
import torch
from cases import GOLDEN_PAIRS, every_case, every_loss, every_matrix, ordinary_pairs
from checks import assert_gradients
from optional import ops, tv_tensors

PRED, TARGET = GOLDEN_PAIRS
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
HALVES = [torch.float16, torch.bfloat16]
FROM_XYXY = {
    "xyxy": lambda b: b,
    "xywh": lambda b: torch.cat([b[..., :2], b[..., 2:] - b[..., :2]], -1),
    "cxcywh": lambda b: torch.cat([(b[..., :2] + b[..., 2:]) / 2, b[..., 2:] - b[..., :2]], -1),
    "ltrb": lambda b: torch.cat([100 - b[..., :2], b[..., 2:] - 100], -1),  # from the point (100, 100)
    "xyxy_inclusive": lambda b: torch.cat([b[..., :2], b[..., 2:] - 1], -1),
}
formats = pytest.mark.parametrize("fmt", FROM_XYXY)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=tolerance)


@every_loss
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_of_every_dtype_are_computed_in_float64(case, dtype):
    pred, target = PRED.to(dtype), TARGET.to(dtype)
    for pair in ((pred, target), (pred, TARGET.float()), (PRED.float(), target)):
        value = case.loss(*pair)
        assert value.dtype == torch.float64
        close(value, case.loss(PRED, TARGET))


@every_case
def test_areas_and_differences_of_integers_do_not_overflow(case):
    expected = case.loss(torch.tensor([[0, 0, 2.0, 2]]).double(), torch.tensor([[1, 0, 3.0, 2]]).double())
    for dtype, side in [(torch.uint8, 80), (torch.int16, 10_000), (torch.int32, 2**29), (torch.int64, 2**40)]:
        pred = torch.tensor([[0, 0, 2 * side, 2 * side]], dtype=dtype)
        target = torch.tensor([[side, 0, 3 * side, 2 * side]], dtype=dtype)
        if case.scale_free:
            close(case.loss(pred, target), expected)
            close(case.loss(target, pred), case.loss(target.double(), pred.double()))


@every_case
def test_whole_numbers_beyond_2_to_24_keep_their_units(case):
    pred, target = torch.tensor([[0, 0, 4, 4]]), torch.tensor([[2, 0, 6, 4]])
    shift = torch.tensor([2**24 + 1, 2**40 + 1]).repeat(2)
    assert torch.equal(case.loss(pred + shift, target + shift), case.loss(pred, target))
    assert torch.equal(case.loss((pred + shift).double(), target + shift), case.loss(pred, target))


@every_case
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_float16_and_bfloat16_are_computed_and_returned_in_float32(case, dtype):
    pred, target = (boxes.to(dtype) for boxes in ordinary_pairs(200, 1))
    value, gradient = case.value_and_gradient(pred, target)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    expected, expected_gradient = case.value_and_gradient(pred.float(), target.float())
    assert torch.equal(value, expected)
    assert torch.equal(gradient, expected_gradient.to(dtype))


@every_loss
def test_float16_has_no_range_of_its_own(case):
    pred, target = torch.tensor([[-40000.0, -40000, -30000, -30000]]), torch.tensor([[30000.0, 30000, 40000, 40000]])
    assert torch.equal(case.loss(pred.half(), target.half()), case.loss(pred.half().float(), target.half().float()))


@every_loss
@pytest.mark.parametrize("first", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("second", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32], ids=str)
def test_mixed_dtypes_are_computed_in_float64_if_either_is_float64_or_integer_else_in_float32(case, first, second):
    wide = {first, second} & {torch.float64, torch.int32}
    value = case.loss(PRED.to(first), TARGET.to(second))
    assert value.dtype == (torch.float64 if wide else torch.float32)
    close(value, case.loss(PRED, TARGET), 1e-12 if wide else 1e-6)


@every_loss
@formats
def test_every_format_agrees_with_its_conversion_by_hand(case, fmt):
    pred, target = ordinary_pairs(300, 2)
    convert = FROM_XYXY[fmt]
    converted, other = convert(pred), convert(target)
    close(case.loss(converted, other, fmt=fmt), case.loss(pred, target), 1e-10)
    close(case.build("none", fmt=fmt).eval()(converted, other), case.loss(pred, target), 1e-10)
    if fmt in ("xywh", "cxcywh"):
        assert torch.allclose(converted, ops.box_convert(pred, "xyxy", fmt))
    # The gradient is that of the numbers the user gave.
    leaf = pred.clone().requires_grad_()
    (expected,) = torch.autograd.grad(case.loss(convert(leaf), other, fmt=fmt).sum(), leaf)
    torch.testing.assert_close(expected, case.value_and_gradient(pred, target)[1], rtol=1e-7, atol=1e-10)


@every_loss
def test_the_last_pixel_belongs_to_an_inclusive_box(case):
    pred, target = torch.tensor([[0, 0, 3, 3]]), torch.tensor([[1, 0, 4, 3]])  # 4 pixels wide
    expected = case.loss(torch.tensor([[0, 0, 4, 4]]), torch.tensor([[1, 0, 5, 4]]))
    assert torch.equal(case.loss(pred, target, fmt="xyxy_inclusive"), expected)


def bounding_boxes(boxes, fmt):
    return tv_tensors.BoundingBoxes(FROM_XYXY[fmt.lower()](boxes), format=fmt, canvas_size=(900, 900))


BOUNDING_BOXES = ["XYXY", "XYWH", "CXCYWH"]
each_its_own = pytest.mark.parametrize(("first", "second"), list(itertools.product(BOUNDING_BOXES, repeat=2)))


@every_loss
@each_its_own
def test_bounding_boxes_bring_their_own_formats_which_may_differ(case, first, second):
    pred, target = ordinary_pairs(50, 3)
    boxes = [bounding_boxes(pred, first), bounding_boxes(target, second)]
    value = case.loss(*boxes, fmt="ltrb")
    assert type(value) is torch.Tensor
    close(value, case.loss(pred, target), 1e-10)
    assert type(boxes[0]) is tv_tensors.BoundingBoxes
    close(case.loss(boxes[0], FROM_XYXY["xywh"](target), fmt="xywh"), case.loss(pred, target), 1e-10)


@every_matrix
@each_its_own
def test_the_two_sides_of_a_matrix_bring_their_own_formats(case, first, second):
    pred, target = ordinary_pairs(50, 3)
    value = case.matrix(bounding_boxes(pred, first), bounding_boxes(target[:20], second), fmt="ltrb")
    close(value, case.matrix(pred, target[:20]), 1e-10)


@every_case
@pytest.mark.parametrize("fmt", ["xywh", "cxcywh"])
def test_formats_with_a_size_keep_the_digits_of_small_boxes(case, fmt):
    generator = torch.Generator().manual_seed(4)
    places = 0.5 + 1e-4 * torch.rand(2, 200, 2, generator=generator)
    pred, target = torch.cat([places, 1e-4 + 1e-4 * torch.rand(2, 200, 2, generator=generator)], -1)
    corners = [ops.box_convert(boxes.double(), fmt, "xyxy") for boxes in (pred, target)]
    close(case.loss(pred, target, fmt=fmt), case.exact(*corners), 1e-6)
    _, gradient = case.value_and_gradient(pred, target, fmt=fmt)
    _, expected = case.value_and_gradient(pred.double(), target.double(), fmt=fmt)
    assert_gradients(gradient, expected, (pred, target, [fmt] * 200))


@every_case
def test_map_coordinates_keep_their_digits(case):
    pred = torch.tensor([[500000.0, 464977.25, 500000.125, 464977.375]])
    target = torch.tensor([[500000.0625, 464977.25, 500000.1875, 464977.5]])
    close(case.loss(pred, target), case.exact(pred, target), 1e-6)
