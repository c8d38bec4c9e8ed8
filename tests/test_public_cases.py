"""Faults that people reported in public against some IoU implementation; none of them is here."""

import importlib
import json
import math
from pathlib import Path

import pytest
import torch

import iou_losses

CASES = json.loads(Path(__file__).with_name("public_cases.json").read_text(encoding="utf-8"))["cases"]
MATRICES = {"iou": "box_iou", "giou": "generalized_box_iou", "diou": "distance_box_iou", "ciou": "complete_box_iou"}
ELSEWHERE = {  # checks of how a loss fits into PyTorch, which have a test of their own for every loss
    "anomaly": "test_torch_machinery.test_anomaly_mode_finds_nothing",
    "autocast_bf16": "test_torch_machinery.test_autocast_changes_nothing",
    "bounds": "test_properties.test_no_value_is_out_of_range",
    "compile_fullgraph": "test_torch_machinery.test_compile_makes_one_graph_for_any_number_of_boxes",
    "compile_no_breaks": "test_torch_machinery.test_compile_makes_one_graph_for_any_number_of_boxes",
    "cuda_matches_cpu": "test_devices.test_values_and_gradients_are_those_of_the_cpu",
    "cuda_no_sync": "test_devices.test_no_call_waits_for_the_device",
    "detach_shape_term": "test_gradients.test_the_gradient_is_that_of_exact_differences",
    "device_mismatch": "test_errors.test_devices_that_differ_are_both_named",
    "double_backward": "test_torch_machinery.test_second_derivatives_are_finite_and_the_same_by_every_way",
    "export": "test_torch_machinery.test_export_serves_any_number_of_boxes",
    "inputs_unchanged": "test_inputs.test_nothing_is_written_to_the_inputs",
    # Keyword-only arguments cannot be scripted, but traced.
    "jit_script": "test_torch_machinery.test_a_trace_serves_any_number_of_boxes",
    "jit_trace": "test_torch_machinery.test_a_trace_serves_any_number_of_boxes",
    "large_n": "test_native.test_a_reduction_loses_no_digits_in_large_sets",
    "meta": "test_torch_machinery.test_meta_tensors_have_shapes_alone",
    "mps_matches_cpu": "test_devices.test_values_and_gradients_are_those_of_the_cpu",
    "noncontiguous": "test_inputs.test_the_layout_in_memory_changes_no_bit",
    "random_exact": "test_values.test_whole_numbers_give_values_within_8_ulp_of_1_of_exact_arithmetic",
    "symmetric": "test_properties.test_prediction_and_target_may_change_places",
    "target_grad": "test_gradients.test_both_gradients_are_those_of_the_definition",
    "vmap": "test_torch_machinery.test_vmap_is_the_loss_of_each",
}


def flat(numbers):
    return [leaf for part in numbers for leaf in flat(part)] if isinstance(numbers, list) else [numbers]


def boxes_of(case, name, dtype="dtype"):
    boxes = torch.tensor(case[name], dtype=getattr(torch, case.get(dtype, case["dtype"])))
    return boxes if boxes.numel() else boxes.reshape(0, 4)


def pair_of(case):
    pred, target = boxes_of(case, "boxes1"), boxes_of(case, "boxes2", "dtype2")
    return (pred.requires_grad_() if "grad" in case["expect"] else pred), target


def loss_of(case, pred, target, **options):
    options |= case.get("kwargs", {}) | {"fmt": case.get("fmt", "xyxy")}
    return getattr(iou_losses, f"{case['loss']}_loss")(pred, target, **options)


def check_value(result, expect):
    assert result.is_floating_point()
    if "dtype" in expect:
        assert result.dtype == getattr(torch, expect["dtype"])
    if "shape" in expect:
        assert list(result.shape) == expect["shape"]
    if "value" in expect:
        for found, value in zip(flat(result.tolist()), flat(expect["value"]), strict=True):
            assert value is None or found == pytest.approx(value, rel=0, abs=expect["tol"])
    if "range" in expect:
        low, high = expect["range"]
        assert all(low <= found <= high for found in flat(result.tolist()))
    if "nan_rows" in expect:
        assert result.isnan().nonzero().flatten().tolist() == expect["nan_rows"]


def check_gradient(pred, result, expect):
    if expect.get("attached"):
        assert result.grad_fn is not None
    result.sum().backward()
    found = flat(pred.grad.tolist())
    assert all(map(math.isfinite, found))
    if "value" in expect:
        value = flat(expect["value"])
        tolerance = expect["rtol"] * max(map(abs, value)) + expect.get("atol", 0)
        assert found == pytest.approx(value, rel=0, abs=tolerance)
    if "grow" in expect:
        low = "xy".index(expect["grow"])
        assert found[low] - found[low + 2] >= 2 * expect["min"]
    for number, limits in zip(found, *expect.get("interval", [[None] * len(found)]), strict=True):
        assert limits is None or limits[0] <= number <= limits[1]


def run_loss(case):
    expect, options = case["expect"], {name: case[name] for name in ("reduction", "avg_factor") if name in case}
    pred, target = pair_of(case)
    if "weight" in case:
        options["weight"] = torch.tensor(case["weight"])
    if expect.get("error"):
        with pytest.raises(ValueError, match=r"must|cannot"):
            loss_of(case, pred, target, **options)
        return
    result = loss_of(case, pred, target, **options)
    check_value(result, expect)
    if "grad" in expect:
        check_gradient(pred, result, expect["grad"])


def run_pairwise(case):
    function = getattr(iou_losses, MATRICES[case["loss"]])
    check_value(function(*pair_of(case), case.get("fmt", "xyxy")), case["expect"])


def run_threshold(case):
    iou = iou_losses.box_iou(*pair_of(case))
    reached = iou_losses.is_correct(iou, case["threshold"])
    assert (iou >= case["threshold"]).item() == reached.item() == case["expect"]["ge"]
    assert (iou > case["threshold"]).item() == case["expect"]["gt"]


def run_masked(case):
    pred, target = pair_of(case)
    check_gradient(
        pred, torch.where(torch.tensor(case["mask"]), loss_of(case, pred, target), 0), case["expect"]["grad"]
    )


def run_weighted(case):
    pred, target = pair_of(case)
    result = (loss_of(case, pred, target) * torch.tensor(case["weight"])).sum()
    check_value(result, case["expect"])
    check_gradient(pred, result, case["expect"]["grad"])


def run_symmetry(case):
    pred, target = pair_of(case)
    for first, second in ((pred, target), (target, pred)):
        with pytest.raises(ValueError, match="same shape"):
            loss_of(case, first, second)


RUN = {
    "loss": run_loss,
    "masked": run_masked,
    "pairwise": run_pairwise,
    "symmetry": run_symmetry,
    "threshold": run_threshold,
    "weighted": run_weighted,
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_public_case(case):
    if case["op"] in ELSEWHERE:
        pytest.skip(f"has a test of its own: {ELSEWHERE[case['op']]}")
    if not hasattr(iou_losses, f"{case['loss']}_loss"):
        pytest.skip(f"there is no {case['loss']}_loss yet")
    RUN[case["op"]](case)


def test_every_case_that_is_skipped_has_a_test_of_its_own():
    for path in ELSEWHERE.values():
        module, name = path.split(".")
        assert callable(getattr(importlib.import_module(module), name))
    assert set(ELSEWHERE) <= {case["op"] for case in CASES}
    assert len(CASES) == 252
