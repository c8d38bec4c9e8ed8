"""torch.export and torch.jit.trace: what is saved, loaded and fed other numbers of boxes is still the loss."""

import io

import pytest
import torch
from cases import every_matrix
from subjects import assert_same, boxes, every_subject, every_subject_thoroughly
from torch import nn

pytestmark = [pytest.mark.usefixtures("fresh_compiler"), pytest.mark.filterwarnings("ignore:`?torch.jit")]
N, M = (torch.export.Dim(name, min=2) for name in ("n", "m"))


def reloaded(program):
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


@pytest.mark.slow
@every_subject_thoroughly
def test_an_exported_loss_is_loaded_and_serves_any_number_of_boxes(build):
    criterion = build("none")
    loaded = reloaded(torch.export.export(criterion, boxes(20), dynamic_shapes=({0: N}, {0: N})))
    for n in (20, 5, 300):
        assert_same(loaded(*boxes(n, 2)), criterion(*boxes(n, 2)))


class Matrix(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix

    def forward(self, boxes1, boxes2):
        return self.matrix(boxes1, boxes2)


@pytest.mark.slow
@every_matrix
def test_an_exported_matrix_is_loaded_and_serves_any_two_numbers_of_boxes(case):
    pred, target = boxes(20)
    loaded = reloaded(torch.export.export(Matrix(case.matrix), (pred, target[:7]), dynamic_shapes=({0: N}, {0: M})))
    for n, m in ((20, 7), (3, 50)):
        pred, target = boxes(50, 2)
        assert_same(loaded(pred[:n], target[:m]), case.matrix(pred[:n], target[:m]))


@every_subject
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_module_is_loaded_and_gives_the_same(build):
    criterion = build("none")
    traced = torch.jit.trace(criterion, boxes(20))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for n in (20, 5):
        assert_same(loaded(*boxes(n, 2)), criterion(*boxes(n, 2)))
