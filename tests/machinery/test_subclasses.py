"""Tensor subclasses: the formula runs on them, operator by operator, and gives what it gives for plain tensors."""

from typing import ClassVar

import torch
from cases import every_loss
from subjects import assert_same, boxes, every_subject, value_and_gradient
from torch.utils import _pytree as pytree


class Logged(torch.Tensor):
    """Sees every function of torch that it goes into."""

    seen: ClassVar = []

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        cls.seen.append(function)
        return super().__torch_function__(function, types, arguments, options or {})


class Held(torch.Tensor):
    """Has no memory of its own: it holds another tensor and hands each operator on to it."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        unpacked = pytree.tree_map_only(cls, lambda tensor: tensor.held, (arguments, options or {}))
        result = function(*unpacked[0], **unpacked[1])
        return pytree.tree_map_only(torch.Tensor, cls, result)


@every_subject
def test_a_subclass_that_logs_sees_the_formula_and_gives_the_same(build):
    criterion = build("mean")
    pred, target = boxes(20)
    expected = value_and_gradient(criterion, pred, target)
    Logged.seen.clear()
    leaf = pred.clone().requires_grad_()
    value = criterion(leaf.as_subclass(Logged), target)
    assert type(value) is Logged
    assert torch.maximum in Logged.seen
    value.backward()
    assert_same(value.detach().as_subclass(torch.Tensor), expected[0])
    assert_same(leaf.grad, expected[1])


@every_subject
def test_a_subclass_without_memory_gives_the_same(build):
    criterion = build("mean")
    pred, target = boxes(20)
    expected = value_and_gradient(criterion, pred, target)
    held = Held(pred).requires_grad_()
    value = criterion(held, Held(target))
    assert type(value) is Held
    value.backward()
    assert_same(value.held, expected[0])
    assert_same(held.grad.held, expected[1])


@every_loss
def test_one_subclass_beside_a_plain_tensor_is_enough(case):
    pred, target = boxes(20)
    expected = case.loss(pred, target)
    for pair in ((pred.as_subclass(Logged), target), (pred, target.as_subclass(Logged))):
        assert_same(case.loss(*pair).as_subclass(torch.Tensor), expected)
        if case.matrix:
            assert_same(case.matrix(*pair).as_subclass(torch.Tensor), case.matrix(pred, target))
