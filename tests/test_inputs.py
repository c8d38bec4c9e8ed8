"""What a loss leaves alone: its inputs, the other rows, and the order of memory."""

import pytest
import torch
from awkward import awkward_pairs
from cases import every_case, every_loss, ordinary_pairs

LAYOUTS = {
    "transposed": lambda boxes: boxes.t().contiguous().t(),
    "every other row": lambda boxes: boxes.repeat_interleave(2, 0)[::2],
    "columns of a wider tensor": lambda boxes: torch.cat([boxes, boxes.new_ones(len(boxes), 2)], -1)[:, :4],
    "strided numbers": lambda boxes: torch.stack([boxes, -boxes], -1)[..., 0],
    "reversed twice": lambda boxes: boxes.flip(0).contiguous().flip(0),
    "imaginary part of a conjugate": lambda boxes: torch.complex(boxes, -boxes).conj().imag,
    "negative of what is in memory": lambda boxes: torch._neg_view(-boxes),
}


@every_loss
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_in_memory_changes_no_bit(case, layout):
    pred, target, _ = awkward_pairs(900, 1)
    value, gradient = case.value_and_gradient(pred, target)
    leaf = pred.clone().requires_grad_()
    view, other = layout(leaf), layout(target)
    assert torch.equal(view, pred)
    result = case.loss(view, other)
    result.sum().backward()
    assert torch.equal(result, value)
    assert torch.equal(leaf.grad, gradient)
    assert torch.equal(case.loss(layout(pred), target), value)


@every_loss
def test_an_expanded_target_is_one_target_for_all(case):
    pred, target = ordinary_pairs(50, 2, torch.float32)
    one = target[:1].expand(50, 4)
    assert torch.equal(case.loss(pred, one), case.loss(pred, one.contiguous()))


@every_loss
def test_nothing_is_written_to_the_inputs(case):
    pred, target, _ = awkward_pairs(900, 3)
    weight, factor = torch.rand(900), torch.tensor(3.0)
    arguments = [pred.clone().requires_grad_(), target.clone(), weight.clone(), factor.clone()]
    for reduction in ("none", "mean"):
        case.loss(*arguments[:2], reduction, weight=arguments[2], avg_factor=arguments[3]).sum().backward()
    case.loss(*arguments[:2])
    for before, after in zip((pred, target, weight, factor), arguments, strict=True):
        assert torch.equal(before, after)
        assert after._version == 0


@every_loss
def test_a_result_is_not_changed_by_the_next_call(case):
    pred, target = ordinary_pairs(50, 4, torch.float32)
    value, gradient = case.value_and_gradient(pred, target)
    kept = value.clone(), gradient.clone()
    case.value_and_gradient(target, pred)
    assert torch.equal(value, kept[0])
    assert torch.equal(gradient, kept[1])


@every_loss
def test_backward_after_the_target_was_overwritten_is_an_error_or_still_right(case):
    pred, target = ordinary_pairs(50, 5, torch.float32)
    expected = case.value_and_gradient(pred, target)[1]
    pred, target = pred.requires_grad_(), target.clone()
    value = case.loss(pred, target).sum()
    target.zero_()
    try:
        (gradient,) = torch.autograd.grad(value, pred)
    except RuntimeError as error:
        gradient, message = expected, str(error)
        assert "modified by an inplace operation" in message
    assert torch.equal(gradient, expected)


@every_case
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("of_target", [False, True], ids=["in prediction", "in target"])
def test_nan_gives_nan_in_its_own_row_and_nowhere_else(case, column, of_target):
    pred, target = ordinary_pairs(40, 6, torch.float32)
    value, gradient = case.value_and_gradient(pred, target)
    (target if of_target else pred)[7, column] = float("nan")
    found, found_gradient = case.value_and_gradient(pred, target)
    others = torch.arange(40) != 7
    assert found[7].isnan()
    assert torch.equal(found[others], value[others])
    assert torch.equal(found_gradient[others], gradient[others])


@every_loss
@pytest.mark.parametrize("infinity", [float("inf"), -float("inf")])
@pytest.mark.parametrize("column", range(4))
def test_an_infinite_coordinate_leaves_the_other_rows_alone(case, infinity, column):
    pred, target = ordinary_pairs(40, 7, torch.float32)
    value, gradient = case.value_and_gradient(pred, target)
    pred[7, column] = infinity
    found, found_gradient = case.value_and_gradient(pred, target)
    others = torch.arange(40) != 7
    assert torch.equal(found[others], value[others])
    assert torch.equal(found_gradient[others], gradient[others])


@every_loss
def test_a_masked_row_leaks_nothing_into_the_gradient(case):
    pred = torch.tensor([[2.0, 3, 9, 8], [200, 599, 300, 599]], requires_grad=True)
    target = torch.tensor([[4.0, 1, 12, 7], [180, 520, 310, 640]])
    torch.where(torch.tensor([True, False]), case.loss(pred, target), 0.0).sum().backward()
    assert not pred.grad[1].count_nonzero()
    assert torch.equal(pred.grad[0], case.value_and_gradient(pred[0], target[0])[1])
