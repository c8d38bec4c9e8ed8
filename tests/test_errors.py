"""Errors: raised before anything is computed, naming what came and what is allowed."""

import re

import pytest
import torch
from cases import every_loss

import iou_losses

BOXES = torch.tensor([[0.0, 0, 2, 2], [1, 1, 4, 3], [0, 1, 5, 5]])


def raises(error, *words):
    """Expect an error whose message holds all the words."""
    return pytest.raises(error, match="".join(f"(?=.*{re.escape(word)})" for word in words))


@every_loss
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (2, 4)), ((3, 4), (4,)), ((3, 4), (1, 4)), ((3, 4), (3, 1, 4)), ((1, 3, 4), (3, 4)), ((0, 4), (1, 4))],
    ids=str,
)
def test_pred_and_target_never_broadcast(case, shapes):
    for first, second in (shapes, shapes[::-1]):
        with raises(ValueError, "same shape", str(first), str(second)):
            case.loss(torch.zeros(first), torch.zeros(second), "mean")


@every_loss
@pytest.mark.parametrize("shape", [(3, 5), (3, 3), (4, 1), (), (3, 0), (0,)], ids=str)
def test_the_last_dimension_must_be_4(case, shape):
    with raises(ValueError, "4", str(shape)):
        case.loss(torch.zeros(shape), torch.zeros(shape))


@every_loss
@pytest.mark.parametrize("reduction", ["avg", "Mean", "", None, True])
def test_an_unknown_reduction_names_the_three(case, reduction):
    with raises(ValueError, "'none'", "'mean'", "'sum'", repr(reduction)):
        case.loss(BOXES, BOXES, reduction)
    with raises(ValueError, "'none'", "'mean'", "'sum'", repr(reduction)):
        case.build(reduction)


@every_loss
@pytest.mark.parametrize("fmt", ["xyhw", "XYXY", "", None])
def test_an_unknown_format_names_all_five(case, fmt):
    formats = ("'xyxy'", "'xywh'", "'cxcywh'", "'ltrb'", "'xyxy_inclusive'", repr(fmt))
    for call in (lambda: case.loss(BOXES, BOXES, fmt=fmt), lambda: case.build(fmt=fmt)):
        with raises(ValueError, *formats):
            call()


@every_loss
@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.complex128], ids=str)
def test_bool_and_complex_boxes_are_a_type_error(case, dtype):
    for pred, target in ((BOXES.to(dtype), BOXES), (BOXES, BOXES.to(dtype))):
        with raises(TypeError, str(dtype)):
            case.loss(pred, target)


@every_loss
@pytest.mark.parametrize("boxes", [BOXES.tolist(), BOXES.numpy(), None], ids=["list", "array", "None"])
def test_what_is_no_tensor_is_a_type_error(case, boxes):
    for pred, target in ((boxes, BOXES), (BOXES, boxes)):
        with raises(TypeError, "Tensor", type(boxes).__name__):
            case.loss(pred, target)


@every_loss
def test_devices_that_differ_are_both_named(case):
    for pred, target in ((BOXES, BOXES.to("meta")), (BOXES.to("meta"), BOXES)):
        with raises(ValueError, "cpu", "meta"):
            case.loss(pred, target)
    with raises(ValueError, "cpu", "meta"):
        case.loss(BOXES, BOXES, weight=torch.ones(3, device="meta"))


@every_loss
@pytest.mark.parametrize("shape", [(3, 1), (1,), (), (2,), (4,), (1, 4), (1, 3), (3, 3), (4, 3)], ids=str)
def test_a_weight_of_another_shape_names_the_allowed_ones(case, shape):
    with raises(ValueError, "(3,)", "(3, 4)", str(shape)):
        case.loss(BOXES, BOXES, "mean", weight=torch.ones(shape))


@every_loss
def test_a_weight_that_is_no_real_tensor_is_a_type_error(case):
    with raises(TypeError, "weight", "list"):
        case.loss(BOXES, BOXES, weight=[1.0, 1.0, 1.0])
    with raises(TypeError, "weight", "torch.complex64"):
        case.loss(BOXES, BOXES, weight=torch.ones(3, dtype=torch.complex64))


@every_loss
@pytest.mark.parametrize("factor", [4.0, 0, torch.tensor(4.0)], ids=repr)
def test_avg_factor_contradicts_sum(case, factor):
    with raises(ValueError, "avg_factor", "sum"):
        case.loss(BOXES, BOXES, "sum", avg_factor=factor)
    with raises(ValueError, "avg_factor", "sum"):
        case.build("sum")(BOXES, BOXES, avg_factor=factor)


@every_loss
def test_avg_factor_is_a_count(case):
    with raises(ValueError, "avg_factor", "-1"):
        case.loss(BOXES, BOXES, "mean", avg_factor=-1)
    with raises(ValueError, "avg_factor", "nan"):
        case.loss(BOXES, BOXES, "mean", avg_factor=float("nan"))
    with raises(ValueError, "avg_factor", "(3,)"):
        case.loss(BOXES, BOXES, "mean", avg_factor=torch.ones(3))


@every_loss
@pytest.mark.parametrize("eps", [-1e-7, float("nan"), float("inf")])
def test_eps_is_a_finite_number_that_is_not_negative(case, eps):
    for call in (lambda: case.loss(BOXES, BOXES, eps=eps), lambda: case.build(eps=eps)):
        with raises(ValueError, "eps", repr(eps)):
            call()


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_ciou_s_threshold_is_an_iou(threshold):
    for call in (
        lambda: iou_losses.ciou_loss(BOXES, BOXES, iou_threshold=threshold),
        lambda: iou_losses.CIoULoss(iou_threshold=threshold),
    ):
        with raises(ValueError, "iou_threshold", "0", "1", repr(threshold)):
            call()


@pytest.mark.parametrize(
    ("function", "module", "hyper_parameters", "words"),
    [
        ("alpha_iou_loss", "AlphaIoULoss", {"alpha": 0}, ("alpha", "above 0")),
        ("alpha_iou_loss", "AlphaIoULoss", {"base": "siou"}, ("base", "'ciou'", "'siou'")),
        ("bounded_iou_loss", "BoundedIoULoss", {"beta": 0}, ("beta", "above 0")),
        ("bounded_iou_loss", "BoundedIoULoss", {"factor": -1}, ("factor", "above 0")),
        ("extended_iou_loss", "ExtendedIoULoss", {"smooth": 0}, ("smooth", "above 0")),
        ("focal_eiou_loss", "FocalEIoULoss", {"gamma": -1}, ("gamma", "at least 0")),
        ("interp_iou_loss", "InterpIoULoss", {"coefficient": 1.5}, ("coefficient", "at most 1", "1.5")),
        ("interp_iou_loss", "InterpIoULoss", {"coefficient": "fixed"}, ("coefficient", "'dynamic'", "'fixed'")),
        ("mpdiou_loss", "MPDIoULoss", {"image_size": (0, 5)}, ("image_size", "above 0")),
        ("mpdiou_loss", "MPDIoULoss", {"image_size": 640}, ("image_size", "(width, height)", "640")),
        ("nwd_loss", "NWDLoss", {"constant": 0}, ("constant", "above 0")),
        ("piou_loss", "PIoULoss", {"version": 3}, ("version", "1 or 2", "3")),
        ("piou_loss", "PIoULoss", {"lambda_": 0}, ("lambda_", "above 0")),
        ("sca_loss", "SCALoss", {"distance_weight": -1}, ("distance_weight", "at least 0")),
        ("shape_iou_loss", "ShapeIoULoss", {"scale": float("nan")}, ("scale", "nan")),
        ("siou_loss", "SIoULoss", {"theta": 0.5}, ("theta", "at least 1")),
    ],
    ids=repr,
)
def test_a_hyper_parameter_out_of_its_range_fails_in_the_call_and_in_the_module(
    function, module, hyper_parameters, words
):
    with raises(ValueError, *words):
        getattr(iou_losses, function)(BOXES, BOXES, **hyper_parameters)
    with raises(ValueError, *words):
        getattr(iou_losses, module)(**hyper_parameters)


def test_wiou_s_mean_is_one_number():
    for mean, words in ((torch.ones(2), ("mean", "(2,)")), (-1.0, ("mean", "at least 0")), (float("nan"), ("nan",))):
        with raises(ValueError, *words):
            iou_losses.wiou_loss(BOXES, BOXES, version=3, mean=mean)
    with raises(ValueError, "version", "4"):
        iou_losses.wiou_loss(BOXES, BOXES, version=4)


def test_focal_eiou_divides_by_its_weights_or_by_avg_factor():
    with raises(ValueError, "normalize=True", "avg_factor"):
        iou_losses.focal_eiou_loss(BOXES, BOXES, "mean", normalize=True, avg_factor=3)


@every_loss
def test_hyper_parameters_are_keywords_only(case):
    with pytest.raises(TypeError):
        case.function(BOXES, BOXES, "none", 0.0, None)
    with pytest.raises(TypeError):
        case.module("mean", 0.0, "xyxy")
    with pytest.raises(TypeError):
        case.build(no_such_argument=1)
