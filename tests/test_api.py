"""The call: reductions, weights, averages, empty inputs, and what it leaves alone."""

import pytest
import torch
from awkward import awkward_pairs
from cases import GOLDEN_PAIRS, every_case, every_loss, ordinary_pairs

PRED, TARGET = (boxes.float() for boxes in GOLDEN_PAIRS)
reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), rtol=1e-6, atol=1e-6)


@every_case
def test_reductions(case):
    per_box = case.loss(PRED, TARGET)
    assert per_box.shape == (3,)
    close(case.function(PRED, TARGET, **case.hyper), per_box)
    close(case.loss(PRED, TARGET, "none"), per_box)
    close(case.loss(PRED, TARGET, "sum"), per_box.sum())
    close(case.loss(PRED, TARGET, "mean"), per_box.sum() / 3)
    close(case.loss(PRED, TARGET, reduction="mean", eps=0.0), per_box.sum() / 3)


@every_loss
@reductions
def test_the_gradient_of_a_reduction_is_that_of_the_reduced_losses(case, reduction):
    pred, target = ordinary_pairs(300, 1, torch.float32)
    _, per_box = case.value_and_gradient(pred, target)
    _, gradient = case.value_and_gradient(pred, target, reduction=reduction)
    torch.testing.assert_close(gradient, per_box / 300 if reduction == "mean" else per_box, rtol=1e-5, atol=1e-9)


@every_loss
def test_leading_dimensions_are_kept_and_count_as_boxes(case):
    pred, target = ordinary_pairs(30, 2)
    per_box = case.loss(pred, target)
    for shape in [(2, 15), (5, 1, 6), (30, 1)]:
        value = case.loss(pred.view(*shape, 4), target.view(*shape, 4))
        assert value.shape == shape
        close(value, per_box.view(shape))
        close(case.loss(pred.view(*shape, 4), target.view(*shape, 4), "mean"), per_box.mean())


@every_loss
def test_one_box_of_shape_4_gives_one_number(case):
    for reduction in ("none", "mean", "sum"):
        value = case.loss(PRED[0], TARGET[0], reduction)
        assert value.shape == ()
        close(value, case.golden[0])
    weight = torch.tensor(0.25)
    close(case.loss(PRED[0], TARGET[0], weight=weight), case.golden[0] / 4)
    close(case.loss(PRED[0], TARGET[0], weight=torch.tensor([1.0, 0, 0, 0])), case.golden[0] / 4)


@every_loss
def test_a_weight_multiplies_the_loss_of_its_box(case):
    per_box, weight = case.loss(PRED, TARGET), torch.tensor([2.0, 0.0, 0.5])
    close(case.loss(PRED, TARGET, weight=weight), per_box * weight)
    close(case.loss(PRED, TARGET, "sum", weight=weight), (per_box * weight).sum())
    close(case.loss(PRED, TARGET, "mean", weight=weight), (per_box * weight).sum() / 3)


@every_loss
def test_a_weight_per_coordinate_is_averaged(case):
    weight = torch.tensor([[1.0, 2, 3, 4], [0, 0, 0, 0], [1, 1, 1, 1]])
    close(case.loss(PRED, TARGET, weight=weight), case.loss(PRED, TARGET) * torch.tensor([2.5, 0, 1]))


@every_loss
def test_of_4_boxes_a_weight_of_shape_4_is_one_per_box_and_one_of_shape_4_4_is_per_coordinate(case):
    pred, target, weight = PRED[[0, 1, 2, 0]], TARGET[[0, 1, 2, 0]], torch.tensor([1.0, 2, 3, 4])
    per_box = case.loss(pred, target)
    close(case.loss(pred, target, weight=weight), per_box * weight)
    close(case.loss(pred, target, weight=weight.repeat(4, 1)), per_box * 2.5)
    close(case.loss(pred, target, weight=weight[:, None].repeat(1, 4)), per_box * weight)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.bool], ids=str)
def test_a_weight_of_any_dtype_is_cast_to_the_dtype_of_the_loss(case, dtype):
    value = case.loss(PRED, TARGET, weight=torch.tensor([1, 0, 1], dtype=dtype))
    assert value.dtype == torch.float32
    close(value, case.loss(PRED, TARGET) * torch.tensor([1.0, 0, 1]))


@every_case
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_weight_of_0_contributes_exactly_0_to_value_and_gradient(case, reduction):
    pred, target, _ = awkward_pairs(1500, 3)
    for weight in (torch.zeros(1500), torch.zeros(1500, 4)):
        value, gradient = case.value_and_gradient(pred, target, reduction=reduction, weight=weight)
        assert not value.count_nonzero()
        assert not gradient.count_nonzero()
    weight = (torch.arange(1500) % 2).float()
    _, gradient = case.value_and_gradient(pred, target, reduction="sum", weight=weight)
    assert not gradient[::2].count_nonzero()
    assert torch.equal(gradient[1::2], case.value_and_gradient(pred[1::2], target[1::2])[1])


@every_loss
@pytest.mark.parametrize("as_number", [float, int, torch.tensor], ids=["float", "int", "tensor"])
def test_avg_factor_takes_the_place_of_the_number_of_boxes(case, as_number):
    per_box, weight = case.loss(PRED, TARGET), torch.tensor([2.0, 0.0, 0.5])
    close(case.loss(PRED, TARGET, "mean", avg_factor=as_number(4)), per_box.sum() / 4)
    close(case.loss(PRED, TARGET, "mean", weight=weight, avg_factor=as_number(4)), (per_box * weight).sum() / 4)
    _, gradient = case.value_and_gradient(PRED, TARGET, reduction="mean", avg_factor=as_number(4))
    close(gradient, case.value_and_gradient(PRED, TARGET)[1] / 4)


@every_loss
@pytest.mark.parametrize("zero", [0, 0.0, torch.tensor(0), torch.tensor(0.0)], ids=repr)
def test_an_avg_factor_of_0_gives_0_with_gradient_0(case, zero):
    for weight in (None, torch.zeros(3), torch.ones(3)):
        value, gradient = case.value_and_gradient(PRED, TARGET, reduction="mean", weight=weight, avg_factor=zero)
        assert value.item() == 0
        assert not gradient.count_nonzero()


@every_loss
def test_avg_factor_is_ignored_without_a_reduction(case):
    assert torch.equal(case.loss(PRED, TARGET, "none", avg_factor=7.0), case.loss(PRED, TARGET))


@every_case
@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4), (0, 3, 4)], ids=str)
def test_without_boxes_none_is_empty_and_mean_and_sum_are_0_still_attached_to_the_graph(case, shape):
    for options in ({}, {"weight": torch.zeros(shape[:-1])}, {"weight": torch.zeros(shape)}):
        for reduction in ("none", "mean", "sum"):
            pred = torch.zeros(shape, requires_grad=True)
            value = case.loss(pred, torch.zeros(shape), reduction, **options)
            assert value.shape == (shape[:-1] if reduction == "none" else ())
            assert not value.count_nonzero()
            value.sum().backward()
            assert pred.grad.shape == shape
    assert case.loss(torch.zeros(shape), torch.zeros(shape), "mean", avg_factor=5).item() == 0
    assert case.loss(torch.zeros(shape), torch.zeros(shape), "mean", avg_factor=torch.tensor(0)).item() == 0


@every_case
@pytest.mark.parametrize("eps", [1e-7, 0.25, 100.0])
def test_eps_is_added_to_every_denominator_in_the_units_of_the_boxes(case, eps):
    pred, target = ordinary_pairs(100, 4)
    pred, target = torch.cat([pred / 300, pred]), torch.cat([target / 300, target])
    torch.testing.assert_close(case.loss(pred, target, eps=eps), case.exact(pred, target, eps), rtol=0, atol=1e-12)


@every_loss
def test_an_eps_of_0_is_no_eps(case):
    assert torch.equal(case.loss(PRED, TARGET, eps=0), case.loss(PRED, TARGET))
