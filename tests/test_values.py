"""Values: the papers' definitions, to the last digits."""

import pytest
import torch
from awkward import awkward_pairs
from cases import GOLDEN_PAIRS, MORE_PAIRS, every_case, ordinary_pairs


def assert_within_8_ulp(value, exact):
    """Of 1, or of the value where that is larger."""
    ulp = torch.finfo(value.dtype).eps * exact.abs().clamp(min=1)
    assert ((value.double() - exact).abs() <= 8 * ulp).all()


def goldens(case):
    for (pred, target), golden in ((GOLDEN_PAIRS, case.golden), (MORE_PAIRS, case.more)):
        yield pred, target, torch.tensor(golden, dtype=torch.float64)


@every_case
def test_golden_values_in_float64(case):
    for pred, target, golden in goldens(case):
        torch.testing.assert_close(case.loss(pred, target), golden, rtol=0, atol=1e-8)


@every_case
def test_golden_values_are_those_of_exact_arithmetic(case):
    for pred, target, golden in goldens(case):
        torch.testing.assert_close(case.exact(pred, target), golden, rtol=0, atol=1e-8)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_value_is_within_8_ulp_of_1_of_exact_arithmetic(case, dtype):
    pred, target = ordinary_pairs(200, seed=1, dtype=dtype)
    assert_within_8_ulp(case.loss(pred, target), case.exact(pred, target))


@every_case
def test_whole_numbers_give_values_within_8_ulp_of_1_of_exact_arithmetic(case):
    corner = torch.randint(0, 60, (2, 200, 2), generator=torch.Generator().manual_seed(7))
    size = torch.randint(1, 40, (2, 200, 2), generator=torch.Generator().manual_seed(8))
    pred, target = torch.cat([corner, corner + size], -1)
    exact = case.exact(pred, target)
    assert_within_8_ulp(case.loss(pred.float(), target.float()), exact)
    assert_within_8_ulp(case.loss(pred, target), exact)


@every_case
def test_awkward_boxes_give_values_within_8_ulp_of_1_of_exact_arithmetic(case):
    pred, target, _ = awkward_pairs(300, seed=2)
    assert_within_8_ulp(case.loss(pred, target), case.exact(pred, target))
