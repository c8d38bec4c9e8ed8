"""The running mean of WIoU: whose it is, when it moves, and what cannot harm it."""

import copy
import inspect
import math
import pickle

import pytest
import torch
from cases import GOLDEN_PAIRS, ordinary_pairs
from torch import distributed, multiprocessing, nn
from torch.utils._python_dispatch import TorchDispatchMode

from iou_losses import CIoULoss, InnerIoULoss, WIoULoss, iou_loss, native, wiou_loss
from iou_losses.losses.wiou import PAPER_MOMENTUM

PRED, TARGET = (boxes.float() for boxes in GOLDEN_PAIRS)
COSTS = iou_loss(PRED, TARGET)
NAN = torch.full((2, 4), math.nan)
focused = pytest.mark.parametrize("version", [2, 3])


def module(version=3, momentum=0.5, **options):
    return WIoULoss(version=version, momentum=momentum, **options)


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b).to(a), rtol=0, atol=1e-6)


# Whose it is


def test_it_is_a_buffer_that_starts_at_1():
    assert list(dict(module().named_buffers())) == ["mean"]
    assert module().mean == 1
    assert not module().mean.requires_grad


def test_every_module_has_its_own():
    first, second = module(), module()
    first(PRED, TARGET)
    assert first.mean < 1
    assert second.mean == module().mean == 1


def test_a_copy_goes_on_alone():
    first = module()
    first(PRED, TARGET)
    for twin in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert torch.equal(twin.mean, first.mean)
        twin(PRED[:1], TARGET[:1])
        assert not torch.equal(twin.mean, first.mean)


def test_it_is_saved_and_restored_with_the_model_that_holds_it():
    model, fresh = (nn.ModuleDict({"box": module()}) for _ in range(2))
    model["box"](PRED, TARGET)
    saved = copy.deepcopy(model.state_dict())
    assert list(saved) == ["box.mean"]
    fresh.load_state_dict(saved)
    assert torch.equal(fresh.eval()["box"](PRED, TARGET), model.eval()["box"](PRED, TARGET))
    with pytest.raises(RuntimeError, match="Missing key"):
        fresh.load_state_dict({})


# When it moves


@focused
def test_in_training_it_moves_before_it_is_used(version):
    criterion, mean = module(version), torch.tensor(1.0)
    for rows in ([0, 1], [1], [0, 1, 2]):
        found = criterion(PRED[rows], TARGET[rows])
        mean = 0.5 * mean + 0.5 * COSTS[rows].mean()
        close(criterion.mean, mean)
        close(found, wiou_loss(PRED[rows], TARGET[rows], "mean", version=version, mean=mean.item()))


@focused
def test_with_a_base_it_moves_in_the_same_way(version):
    alone, around = module(version), module(version, base=CIoULoss())
    for criterion in (alone, around):
        criterion(PRED, TARGET)
    assert torch.equal(alone.mean, around.mean)


@focused
def test_in_evaluation_it_stays_but_is_used(version):
    criterion = module(version)
    criterion(PRED, TARGET)
    before = criterion.eval().mean.clone()
    found = criterion(PRED[:1], TARGET[:1])
    assert torch.equal(criterion.mean, before)
    close(found, wiou_loss(PRED[:1], TARGET[:1], "mean", version=version, mean=before))


def test_version_1_has_no_use_for_it():
    criterion = module(version=1)
    criterion(PRED, TARGET)
    assert criterion.mean == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"target": TARGET[:2]},
        {"reduction_override": "average"},
        {"avg_factor": 3.0, "reduction_override": "sum"},
        {"avg_factor": torch.ones(2)},
        {"weight": torch.ones(2)},
    ],
    ids=lambda arguments: ", ".join(arguments),
)
@pytest.mark.parametrize("base", [None, CIoULoss()], ids=["alone", "with a base"])
def test_a_call_that_fails_does_not_move_it(arguments, base):
    criterion = module(base=base)
    with pytest.raises(ValueError, match=r"must|cannot"):
        criterion(**{"pred": PRED, "target": TARGET, **arguments})
    assert criterion.mean == 1


def test_the_reduction_has_no_part_in_it():
    means = []
    for options in ({"reduction": "sum"}, {"reduction": "none"}, {"loss_weight": 3.0}):
        criterion = module(**options)
        criterion(PRED, TARGET)
        means.append(criterion.mean)
    assert means[0] == means[1] == means[2]


def test_it_is_a_constant_of_the_gradient():
    criterion, (pred, target) = module(), (boxes.clone().requires_grad_() for boxes in (PRED, TARGET))
    criterion(pred, target).backward()
    assert criterion.mean.grad_fn is None
    expected = pred.detach().clone().requires_grad_()
    wiou_loss(expected, TARGET, "mean", version=3, mean=criterion.mean).backward()
    close(pred.grad, expected.grad)
    criterion(pred, target).backward()  # no graph of the first step is left in the second


@focused
@pytest.mark.parametrize("base", [None, CIoULoss()], ids=["alone", "with a base"])
def test_several_calls_may_share_one_backward(version, base, monkeypatch):
    monkeypatch.setattr(native, "_library", None)  # the formula keeps more for its backward
    criterion, pred = module(version, base=base), PRED.clone().requires_grad_()
    (criterion(pred, TARGET) + criterion(pred[:1], TARGET[:1])).backward()
    assert pred.grad.isfinite().all()


@pytest.mark.parametrize("version", [2, 3])
def test_a_second_derivative_takes_it_as_it_was_in_the_forward(version):
    criterion = WIoULoss(version=version).eval()
    pred, target = ordinary_pairs(20, 3, torch.float32)
    leaf = pred.requires_grad_()
    value = criterion(leaf, target)
    (expected,) = torch.autograd.grad(value, leaf, retain_graph=True)
    if native.native_isa() is None:
        pytest.skip("torch itself refuses a backward through a number that has changed")
    criterion.mean.fill_(3.0)
    (found,) = torch.autograd.grad(value, leaf, create_graph=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_papers_momentum_goes_95_percent_of_the_way_until_ap_flattens():
    assert pytest.approx(9.9e-5, rel=1e-3) == PAPER_MOMENTUM == 1 - 0.05 ** (1 / (890 * 34))
    assert inspect.signature(WIoULoss).parameters["momentum"].default == PAPER_MOMENTUM
    assert "1 - 0.05 ** (1 / (n * t))" in inspect.getdoc(WIoULoss)
    batches, epochs = 20, 5
    criterion = module(momentum=1 - 0.05 ** (1 / (batches * epochs))).double()
    for _ in range(batches * epochs):
        criterion(PRED[:1], TARGET[:1])
    close(criterion.mean, COSTS[0] + 0.05 * (1 - COSTS[0]))


# What cannot harm it


@focused
def test_a_batch_without_boxes_leaves_it_as_it_is(version):
    criterion = module(version)
    for _ in range(3):
        empty = torch.zeros(0, 4, requires_grad=True)
        loss = criterion(empty, torch.zeros(0, 4))
        loss.backward()
        assert loss == 0
    assert criterion.mean == 1


def test_a_batch_of_nan_leaves_it_as_it_is():
    criterion = module()
    for pred, target in ((NAN, TARGET[:2]), (PRED[:2], NAN), (NAN, NAN)):
        assert criterion(pred, target).isnan()
        assert criterion.mean == 1


def test_of_a_batch_with_nan_the_other_boxes_count():
    criterion = module()
    criterion(torch.cat([NAN, PRED]), torch.cat([TARGET[:2], TARGET]))
    close(criterion.mean, 0.5 + 0.5 * COSTS.mean())


@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
def test_infinite_boxes_leave_it_a_mean_of_losses(infinite):
    criterion = module()
    criterion(PRED, TARGET)
    for coordinate in range(4):
        pred = PRED.clone()
        pred[1, coordinate] = infinite
        criterion(pred, TARGET)
        criterion(pred, pred)
        assert 0 <= criterion.mean <= 1


@pytest.mark.parametrize("weight", [torch.tensor([1.0, 0, 0.1]), torch.tensor([[1.0] * 4, [0.0] * 4, [0, 0, 0, 2]])])
@pytest.mark.parametrize("base", [None, CIoULoss()], ids=["alone", "with a base"])
def test_boxes_of_weight_0_do_not_count_and_others_count_alike(weight, base):
    criterion = module(base=base)
    criterion(PRED, TARGET, weight)
    close(criterion.mean, 0.5 + 0.5 * COSTS[[0, 2]].mean())
    criterion(PRED, TARGET, torch.zeros(3))
    close(criterion.mean, 0.5 + 0.5 * COSTS[[0, 2]].mean())


def test_as_the_base_of_another_module_it_does_not_see_the_weights():
    criterion = InnerIoULoss(module(), ratio=0.7)
    criterion(PRED, TARGET, torch.tensor([1.0, 0, 1]))
    close(criterion.base.mean, 0.5 + 0.5 * COSTS.mean())


@focused
def test_perfect_boxes_bring_it_to_0_and_do_no_harm(version):
    criterion = module(version, momentum=1.0)
    pred = TARGET.clone().requires_grad_()
    for _ in range(2):
        loss = criterion(pred, TARGET)
        loss.backward()
        assert (loss.item(), criterion.mean.item()) == (0, 0)
    assert not pred.grad.count_nonzero()
    assert criterion.eval()(PRED, TARGET) == 0  # a focus of b = L / 0 is guarded


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [(torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64, torch.float64)],
    ids=str,
)
def test_in_a_model_of_any_dtype_it_keeps_small_steps(dtype, kept):
    model = nn.ModuleDict({"box": WIoULoss(version=3, momentum=1e-4)}).to(dtype)
    for _ in range(50):
        model["box"](PRED[:1].to(dtype), TARGET[:1].to(dtype))
    close(model["box"].mean, COSTS[0] + (1 - 1e-4) ** 50 * (1 - COSTS[0]))
    assert model["box"].mean.dtype == kept


# Without waiting for the device


class NothingIsRead(TorchDispatchMode):
    """Fails where a value would leave the device."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        assert function is not torch.ops.aten._local_scalar_dense.default
        return function(*arguments, **(options or {}))


@focused
@pytest.mark.parametrize("base", [None, CIoULoss()], ids=["alone", "with a base"])
def test_no_value_is_read(version, base):
    criterion, pred = module(version, base=base), PRED.clone().requires_grad_()
    with NothingIsRead():
        criterion(pred, TARGET).backward()
        criterion(pred, TARGET, torch.ones(3), torch.tensor(2.0)).backward()
        criterion(pred, TARGET, torch.ones(3, 4)).backward()
        criterion.eval()(pred, TARGET).backward()
        with pytest.raises(AssertionError):
            criterion.mean.item()
    assert criterion.mean < 1


@focused
def test_meta_tensors_have_no_value_to_read(version):
    criterion = module(version, sync=True).to("meta")
    pred, target = (torch.empty(5, 4, device="meta", requires_grad=True) for _ in range(2))
    criterion(pred, target, torch.ones(5, device="meta"), torch.ones((), device="meta")).backward()
    assert pred.grad.shape == (5, 4)
    assert criterion.mean.is_meta


@focused
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda")
def test_on_a_gpu_nothing_waits(version):
    criterion, pred, target = module(version).cuda(), PRED.cuda().requires_grad_(), TARGET.cuda()
    criterion(pred, target).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        criterion(pred, target, torch.ones(3, device="cuda")).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert criterion.mean < 1


@focused
def test_compiled_it_moves_too_in_one_graph(version):
    torch._dynamo.reset()
    plain, criterion = module(version), module(version)
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    for seed in range(3):
        pred, target = ordinary_pairs(20, seed, torch.float32)
        close(compiled(pred, target), plain(pred, target))
        close(criterion.mean, plain.mean)
    assert criterion.mean < 1


# Over processes


def test_sync_without_other_processes_changes_nothing():
    assert not distributed.is_initialized()
    alone, together = module(), module(sync=True)
    assert torch.equal(alone(PRED, TARGET), together(PRED, TARGET))
    assert torch.equal(alone.mean, together.mean)


SHARES = ([0], [1, 2]), ([0, 1, 2], [])  # which boxes each rank has, in two steps


def rank_worker(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    together, alone = module(sync=True), module()
    for share in SHARES:
        for criterion in (together, alone):
            criterion(PRED[share[rank]], TARGET[share[rank]])
    torch.save((together.mean, alone.mean), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_with_sync_every_rank_has_the_mean_over_all_boxes(tmp_path):
    multiprocessing.spawn(rank_worker, (str(tmp_path),), nprocs=2)
    (first, first_alone), (second, second_alone) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    close(first, 0.25 + 0.75 * COSTS.mean())  # both steps have all three boxes, one rank none of them
    assert not torch.equal(first_alone, second_alone)
    close(second_alone, 0.5 + 0.5 * COSTS[1:].mean())
