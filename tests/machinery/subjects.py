"""What goes through PyTorch's machinery: the module of every row, and the modules that change another loss.

A subject is built by its reduction, in `eval()`: a running mean that moves has tests of its own.
"""

from collections.abc import Callable

import pytest
import torch
from cases import CASES, Case, ordinary_pairs
from torch import Tensor

from iou_losses import BoxLoss, CIoULoss, DIoULoss, FocalerIoULoss, GIoULoss, InnerIoULoss, UnifiedIoULoss, WIoULoss

Build = Callable[[str], BoxLoss]

ROWS: dict[str, Build] = {str(case): lambda reduction, case=case: case.build(reduction).eval() for case in CASES}
COMBINED: dict[str, Build] = {
    "inner(giou)": lambda reduction: InnerIoULoss(GIoULoss(reduction), 0.7).eval(),
    "focaler(diou)": lambda reduction: FocalerIoULoss(DIoULoss(reduction)).eval(),
    "unified(ciou)": lambda reduction: UnifiedIoULoss(CIoULoss(reduction), "cosine", quality="focal").eval(),
    "wiou(inner(ciou))": lambda reduction: WIoULoss(version=3, base=InnerIoULoss(CIoULoss(reduction), 1.25)).eval(),
}
SUBJECTS = ROWS | COMBINED
# Between them they have branches, exponentials, a buffer and roots; ciou, which has the angles, is in
# tests/test_torch_machinery.py.
REPRESENTATIVE = ("extended_iou", "wiou-version=3", "nwd")


every_subject = pytest.mark.parametrize("build", SUBJECTS.values(), ids=SUBJECTS)
every_combined = pytest.mark.parametrize("build", COMBINED.values(), ids=COMBINED)


def thorough(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """The mark of a subject, or none if it is a representative one."""
    return () if name in REPRESENTATIVE else (pytest.mark.thorough,)


def over_thoroughly(chosen: Callable[[Case], object]) -> pytest.MarkDecorator:
    """Run a test for the representative ones of the chosen rows, and for all of them with `-m thorough`."""
    rows = [pytest.param(case, id=str(case), marks=thorough(str(case))) for case in CASES if chosen(case)]
    return pytest.mark.parametrize("case", rows)


every_subject_thoroughly = pytest.mark.parametrize(
    "build", [pytest.param(build, id=name, marks=thorough(name)) for name, build in SUBJECTS.items()]
)


def boxes(n: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return ordinary_pairs(n, seed, dtype)


def value_and_gradient(criterion: Callable[..., Tensor], pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    leaf = pred.detach().clone().requires_grad_()
    value = criterion(leaf, target)
    value.sum().backward()
    return value.detach(), leaf.grad


def assert_same(found: object, expected: object, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
