"""One loss over many processes: averages, gradients of shards, and detectors under DDP."""

import re
import subprocess
import sys
import tempfile

import pytest
import torch
from conftest import EXAMPLES
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

import iou_losses
from iou_losses.distributed import global_average

SHARDS = {2: ([5, 0], [3, 2]), 4: ([3, 0, 4, 1], [0, 2, 0, 6], [1, 1, 1, 1])}  # boxes of each rank
FEATURES = 6


@pytest.mark.parametrize(("count", "expected"), [(0, 1), (0.5, 1), (1, 1), (7, 7), (2.5, 2.5)])
def test_one_process_without_a_group_has_its_own_number(count, expected):
    for value in (count, torch.tensor(count), torch.tensor([count]), torch.tensor(count, dtype=torch.float64)):
        average = global_average(value)
        assert average.shape == ()
        assert average.dtype == torch.float32
        assert average == expected


def test_the_count_is_not_written_to_and_keeps_no_graph():
    count = torch.tensor(0.25, requires_grad=True)
    assert not global_average(count).requires_grad
    assert count.item() == 0.25
    assert global_average(torch.tensor(3)).dtype == torch.float32


def test_what_is_no_number_is_an_error():
    with pytest.raises(ValueError, match=r"one element, got shape \(2,\)"):
        global_average(torch.ones(2))


def test_nothing_waits_for_the_device():
    """A fake tensor has no value to wait for."""
    with FakeTensorMode():
        average = global_average(torch.ones((), device="cuda" if torch.cuda.is_available() else "cpu"))
        pred = torch.zeros(3, 4, requires_grad=True)
        iou_losses.CIoULoss()(pred, torch.ones(3, 4), avg_factor=average).backward()
    assert average.shape == ()


def data(boxes):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.rand(boxes, FEATURES, dtype=torch.float64, generator=generator)
    low = torch.rand(boxes, 2, dtype=torch.float64, generator=generator)
    return inputs, torch.cat([low, low + 0.1 + torch.rand(boxes, 2, dtype=torch.float64, generator=generator)], 1)


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(FEATURES, 8, dtype=torch.float64), nn.Tanh(), nn.Linear(8, 4, dtype=torch.float64))


def gradient(model, inputs, target):
    pred = model(inputs)
    pred = torch.cat([pred[:, :2], pred[:, :2] + pred[:, 2:].exp()], 1)
    loss = iou_losses.ciou_loss(pred, target, "sum") / global_average(len(target))
    other = iou_losses.GIoULoss()(pred, target, avg_factor=global_average(torch.tensor(len(target))))
    (loss + other).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def join(rank, world, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)


def shard_worker(rank, world, folder):
    """Compute the gradients of this rank's shard of each batch, and what the averages are."""
    join(rank, world, folder)
    found = []
    for counts in SHARDS[world]:
        inputs, target = (part.split(counts)[rank] for part in data(sum(counts)))
        found.append(gradient(DistributedDataParallel(network()), inputs, target))
    averages = [global_average(rank), global_average(torch.tensor(10 * rank)), global_average(0)]
    torch.save((found, averages), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def run(worker, world):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, (world, folder), world)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(world)]


@pytest.mark.slow
@pytest.mark.parametrize("world", SHARDS)
def test_shards_have_the_gradient_of_the_whole_batch(world):
    results = run(shard_worker, world)
    for number, counts in enumerate(SHARDS[world]):
        expected = gradient(network(), *data(sum(counts)))
        for found, _ in results:
            torch.testing.assert_close(found[number], expected, rtol=1e-6, atol=1e-9)
    mean = (world - 1) / 2
    for _, averages in results:
        assert [average.item() for average in averages] == [max(mean, 1), 10 * mean, 1]


def detector_worker(rank, world, folder):
    """One step of a changed FCOS; the images of the last rank have no objects."""
    from test_torchvision import SmallFCOS, batch
    from torchvision.ops import generalized_box_iou_loss

    from iou_losses.integrations.torchvision import use_box_loss

    join(rank, world, folder)
    found = {}
    for name, loss in (("ours", iou_losses.CIoULoss()), ("theirs", generalized_box_iou_loss), ("untouched", None)):
        torch.manual_seed(5)
        model = SmallFCOS().train()
        model = DistributedDataParallel(model if loss is None else use_box_loss(model, loss))
        losses = model(*batch(empty=(0, 1) if rank == world - 1 else ()))
        sum(losses.values()).backward()
        found[name] = [p.grad for p in model.parameters()]
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_a_changed_detector_trains_under_ddp():
    """No rank waits for a parameter that an image without objects left out."""
    pytest.importorskip("torchvision")
    first, second = run(detector_worker, 2)
    for name, gradients in first.items():
        for one, two in zip(gradients, second[name], strict=True):
            assert torch.isfinite(one).all()
            assert torch.equal(one, two)
    for theirs, untouched in zip(first["theirs"], first["untouched"], strict=True):
        assert torch.equal(theirs, untouched)


@pytest.mark.slow
def test_the_example_prints_the_same_on_one_process_and_two():
    pytest.importorskip("sklearn")
    options = [str(EXAMPLES / "ddp_train.py"), "--steps", "6", "--batch", "8"]
    # The address is said, or the processes would meet at the machine's own name, which may lead nowhere.
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost", "--nproc-per-node", "2"]
    losses = []
    for launcher in ([], torchrun):
        command = [sys.executable, *launcher, *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, f"{command} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
        losses.append([float(value) for value in re.findall(r"step +\d+: ([\d.]+)", result.stdout)])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)
