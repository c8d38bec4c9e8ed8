"""Threads, worker processes and forks that use the engine at once: none crashes, and all give the same bits."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import CASES
from subjects import SUBJECTS, boxes, value_and_gradient
from torch.utils.data import DataLoader, Dataset

import iou_losses

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # since 3.12, of a process with threads
FORK = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
MATRICES = [case.matrix for case in CASES if case.matrix]
N = 3000


def everything(seed):
    """The bits of every loss with its gradient, every matrix, a match and a suppression."""
    pred, target = boxes(N, seed)
    scores = pred[:, 0] / 700
    results = [tensor for build in SUBJECTS.values() for tensor in value_and_gradient(build("none"), pred, target)]
    results += [matrix(pred[:300], target[:200]) for matrix in MATRICES]
    results += [*iou_losses.best_match(pred, target[:100]), iou_losses.nms(pred, scores, 0.5)]
    results += iou_losses.soft_nms(pred[:200], scores[:200])
    return results


def same_bits(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def test_threads_at_once_give_what_each_gives_alone():
    seeds = [1, 2, 3, 4]
    expected = [everything(seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(everything, seeds * 3))
    assert all(map(same_bits, found, expected * 3))


def test_threads_at_once_that_each_use_several_threads():
    pred, target = boxes(140_000)
    criterion = iou_losses.GIoULoss("none")
    expected = value_and_gradient(criterion, pred, target)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: value_and_gradient(criterion, pred, target), range(8)))
    finally:
        torch.set_num_threads(threads)
    assert all(same_bits(each, expected) for each in found)


class Losses(Dataset):
    """What a data set does that labels or augments by IoU in its workers."""

    def __len__(self):
        return 6

    def __getitem__(self, seed):
        pred, target = boxes(200, seed)
        return iou_losses.ciou_loss(pred, target), iou_losses.box_iou(pred[:20], target[:30])


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("fork", marks=FORK), "spawn"])
def test_workers_of_a_data_loader_give_the_same_bits(method):
    workers = DataLoader(Losses(), batch_size=2, num_workers=2, multiprocessing_context=method)
    found, expected = list(workers), list(DataLoader(Losses(), batch_size=2))
    assert len(found) == 3
    assert all(map(same_bits, found, expected))


def use_and_fork():
    expected = everything(1)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=check_again, args=(expected,)) for _ in range(2)]
    for child in children:
        child.start()
    check_again(expected)
    for child in children:
        child.join(100)
    assert [child.exitcode for child in children] == [0, 0]


def check_again(expected):
    torch.set_num_threads(1)  # a child has none of its parent's
    assert same_bits(everything(1), expected)


@FORK
@pytest.mark.slow
def test_a_fork_after_use_works_in_the_children_and_in_the_parent():
    # In a process of its own: torch's backward pass refuses to work in a fork once it has used its own threads.
    parent = multiprocessing.get_context("spawn").Process(target=use_and_fork)
    parent.start()
    parent.join(300)
    assert parent.exitcode == 0
