"""The gradient that the engine saved is the result where the graph ends, and a copy where anyone may ask again."""

import pytest
import torch
from cases import ciou, ordinary_pairs
from torch.utils.checkpoint import checkpoint

REDUCTIONS = ("none", "sum")


@pytest.fixture(params=REDUCTIONS)
def leaf_loss_gradient(request):
    pred, target = ordinary_pairs(50, 5, torch.float32)
    leaf = pred.clone().requires_grad_()

    def loss(boxes=leaf):
        return ciou.loss(boxes, target, request.param).sum()

    (gradient,) = torch.autograd.grad(loss(), leaf)
    return leaf, loss, gradient.clone()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_target_that_wants_a_gradient_gets_it(reduction):
    pred, target = (boxes.requires_grad_() for boxes in ordinary_pairs(50, 5, torch.float32))
    by_both = torch.autograd.grad(ciou.loss(pred, target, reduction).sum(), (pred, target))
    (by_pred,) = torch.autograd.grad(ciou.loss(pred, target.detach(), reduction).sum(), pred)
    torch.testing.assert_close(by_both[0], by_pred, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(by_both[1].sum(-1), -by_pred.sum(-1), rtol=1e-3, atol=1e-5)  # both boxes may move


def test_a_graph_that_is_kept_gives_the_same_again_whatever_became_of_the_first(leaf_loss_gradient):
    leaf, loss, expected = leaf_loss_gradient
    value = loss()
    for keep in (True, True, False):
        (found,) = torch.autograd.grad(value, leaf, 4 * torch.ones(()), retain_graph=keep)
        assert torch.equal(found, 4 * expected)
        (found,) = torch.autograd.grad(value, leaf, retain_graph=True) if keep else (None,)
        if found is not None:
            assert torch.equal(found, expected)
            found.zero_()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(value, leaf)


def test_gradients_add_up_in_the_leaf(leaf_loss_gradient):
    leaf, loss, expected = leaf_loss_gradient
    loss().backward()
    first = leaf.grad
    loss().backward()
    assert leaf.grad is first
    assert torch.equal(first, 2 * expected)
    (loss() + loss()).backward()
    assert torch.equal(leaf.grad, 4 * expected)


def test_every_part_of_a_graph_sees_the_gradient(leaf_loss_gradient):
    leaf, loss, expected = leaf_loss_gradient
    boxes = leaf * 1
    boxes.retain_grad()
    leaf.register_hook(lambda gradient: gradient.mul_(2))
    loss(boxes).backward()
    assert torch.equal(boxes.grad, expected)
    assert torch.equal(leaf.grad, 2 * expected)


def test_many_gradients_in_one_pass(leaf_loss_gradient):
    leaf, loss, expected = leaf_loss_gradient
    factors = torch.tensor([1.0, 2.0, -4.0])
    (found,) = torch.autograd.grad(loss(), leaf, factors, is_grads_batched=True)
    assert torch.equal(found, factors[:, None, None] * expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_and_saved_tensors_elsewhere(leaf_loss_gradient, reentrant):
    leaf, loss, expected = leaf_loss_gradient
    checkpoint(loss, leaf, use_reentrant=reentrant).backward()
    assert torch.equal(leaf.grad, expected)
    with torch.autograd.graph.save_on_cpu():
        value = loss()
    assert torch.equal(torch.autograd.grad(value, leaf)[0], expected)


def test_what_a_hook_gives_back_is_not_written_to(leaf_loss_gradient):
    leaf, loss, expected = leaf_loss_gradient
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss()
    before = [tensor.clone() for tensor in kept]
    (found,) = torch.autograd.grad(4 * value, leaf)
    assert torch.equal(found, 4 * expected)
    assert all(torch.equal(tensor, was) for tensor, was in zip(kept, before, strict=True))
