"""Modes of PyTorch change how operators run or what is kept for the backward pass: the loss is the same in each."""

import pytest
import torch
from cases import every_matrix
from subjects import assert_same, boxes, every_combined, every_subject, value_and_gradient
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.checkpoint import checkpoint


def same_bits(found, expected):
    return all(map(torch.equal, found, expected))


@every_subject
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_gives_the_same_bits(build, reentrant):
    criterion = build("mean")

    def again(pred, target):
        return checkpoint(criterion, pred, target, use_reentrant=reentrant)

    assert same_bits(value_and_gradient(again, *boxes(20)), value_and_gradient(criterion, *boxes(20)))


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@every_subject
def test_deterministic_algorithms_give_the_same_bits(build, request):
    criterion = build("mean")
    pred, target = boxes(20)
    expected = value_and_gradient(criterion, pred, target), value_and_gradient(criterion, pred, target.clone())
    request.getfixturevalue("deterministic")
    assert same_bits(value_and_gradient(criterion, pred, target), expected[0])
    # By the formula, too: a target that wants a gradient is not the engine's.
    by_formula = [value_and_gradient(criterion, pred, target.clone().requires_grad_()) for _ in range(2)]
    assert same_bits(*by_formula)
    assert_same(by_formula[0], expected[0])


@every_matrix
def test_deterministic_algorithms_serve_matrices(case, deterministic):
    pred, target = boxes(20)
    assert torch.equal(case.matrix(pred, target), case.matrix(pred, target))


@every_subject
def test_fake_tensors_have_shapes_alone(build):
    with FakeTensorMode() as mode:
        pred, target = (mode.from_tensor(real).requires_grad_() for real in boxes(20))
        for reduction, shape in (("none", (20,)), ("mean", ()), ("sum", ())):
            value = build(reduction)(pred, target, torch.ones(20))
            assert isinstance(value, FakeTensor)
            assert (value.shape, value.dtype, value.device.type) == (shape, torch.float32, "cpu")
            pred.grad = None
            value.sum().backward()
            assert isinstance(pred.grad, FakeTensor)
            assert pred.grad.shape == (20, 4)


@every_subject
def test_what_is_saved_for_the_backward_pass_may_be_moved_away_and_back(build):
    criterion, moved = build("mean"), []

    def pack(tensor):
        moved.append(tensor.clone())
        return len(moved) - 1

    pred, target = boxes(20)
    expected = value_and_gradient(criterion, pred, target)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda number: moved[number]):
        found = value_and_gradient(criterion, pred, target)
    assert moved
    assert same_bits(found, expected)


@every_combined
def test_anomaly_mode_finds_nothing(build):
    pred = torch.tensor([[5.0, 5, 9, 5], [5, 5, 5, 5], [4, 4, 10, 8], [9, 9, 1, 1]])
    with torch.autograd.set_detect_anomaly(True):
        value, gradient = value_and_gradient(build("sum"), pred, torch.tensor([[4.0, 4, 10, 8]] * 4))
    assert value.isfinite()
    assert gradient.isfinite().all()


@every_combined
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_changes_nothing(build, dtype):
    criterion = build("none")
    expected = value_and_gradient(criterion, *boxes(20))
    with torch.autocast("cpu", dtype=dtype):
        assert same_bits(value_and_gradient(criterion, *boxes(20)), expected)


@every_subject
def test_half_precision_from_a_layer_under_autocast_is_computed_in_float32(build):
    criterion, layer = build("mean"), torch.nn.Linear(4, 4)
    pred, target = boxes(20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predicted = pred + layer(pred / 700)
        lower = layer(pred / 700)
        assert lower.dtype == torch.bfloat16
        value = criterion(predicted, target) + criterion(lower, target)
    assert value.dtype == torch.float32
    assert_same(value, criterion(predicted.float(), target) + criterion(lower.float(), target))
    value.backward()
    assert layer.weight.grad.isfinite().all()
    assert layer.weight.grad.count_nonzero()
