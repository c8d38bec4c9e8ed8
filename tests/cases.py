"""One row per loss: what it is, what it promises and what it is held against. The generic tests run over the rows.

A new loss is one more `Case` here and one more formula in `reference`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import awkward
import pytest
import reference
import torch
from torch import Tensor

import iou_losses

# Prediction and target: overlapping, nested, and disjoint with very different shapes.
GOLDEN_PAIRS = (
    torch.tensor([[0, 0, 10, 10], [1, 1, 9, 5], [3, 2, 9, 20]], dtype=torch.float64),
    torch.tensor([[2, 3, 9, 11], [2, 2, 6, 4], [10, 5, 34, 9]], dtype=torch.float64),
)


@dataclass(frozen=True, eq=False)
class Case:
    function: Callable[..., Tensor]
    module: type[iou_losses.BoxLoss]
    formula: Callable[..., Any]  # the same loss in `reference`
    paper: str  # what the docstring cites
    golden: tuple[float, float, float]  # of GOLDEN_PAIRS, in float64 from the paper's definition, to nine digits
    hyper: dict[str, Any] = field(default_factory=dict)
    range: tuple[float, float] = (0.0, 1.0)
    matrix: Callable[..., Tensor] | None = None  # 1 - loss, of every box with every other
    disjoint: str = ""  # "flat": a disjoint pair has no gradient; "pulls": its gradient brings the centres closer
    symmetric: bool = True
    scale_free: bool = True
    mirror_invariant: bool = True
    stop_gradients: bool = False  # some factor of the formula is a constant of the gradient
    stateful: bool = False  # the module keeps more than its arguments

    def __str__(self) -> str:
        return "-".join([self.function.__name__.removesuffix("_loss"), *(f"{k}={v}" for k, v in self.hyper.items())])

    def loss(self, pred: Tensor, target: Tensor, reduction: str = "none", eps: float = 0.0, **options: Any) -> Tensor:
        return self.function(pred, target, reduction, eps, **options, **self.hyper)

    def build(self, *args: Any, **options: Any) -> iou_losses.BoxLoss:
        return self.module(*args, **options, **self.hyper)

    def value_and_gradient(self, pred: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """The losses and their gradient by the prediction alone, which the native engine may compute."""
        pred = pred.detach().clone().requires_grad_()
        value = self.loss(pred, target, **options)
        return value.detach(), torch.autograd.grad(value.sum(), pred)[0]

    def value_and_gradients(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The losses and both gradients, which are the formula's: the engine has none by the target."""
        pred, target = pred.detach().clone().requires_grad_(), target.detach().clone().requires_grad_()
        value = self.loss(pred, target)
        return value.detach(), *torch.autograd.grad(value.sum(), (pred, target))

    def exact(self, pred: Tensor, target: Tensor, eps: float = 0.0) -> Tensor:
        """The losses of boxes (N, 4), each correctly rounded to float64."""
        pairs = zip(pred.tolist(), target.tolist(), strict=True)
        values = [reference.exact(self.formula, *pair, eps, **self.hyper) for pair in pairs]
        return torch.tensor([float(value) for value in values], dtype=torch.float64)

    def truth(self, pred: Tensor, target: Tensor) -> reference.Truth:
        return reference.truth(self.formula, pred, target, **self.hyper)


iou = Case(
    iou_losses.iou_loss, iou_losses.IoULoss, reference.iou, "arXiv:1908.03851", (0.542056075, 0.75, 1.0),
    matrix=iou_losses.box_iou, disjoint="flat",
)  # fmt: skip
giou = Case(
    iou_losses.giou_loss, iou_losses.GIoULoss, reference.giou, "arXiv:1902.09630", (0.569328802, 0.75, 1.634408602),
    range=(0, 2), matrix=iou_losses.generalized_box_iou, disjoint="pulls",
)  # fmt: skip
diou = Case(
    iou_losses.diou_loss, iou_losses.DIoULoss, reference.diou, "arXiv:1911.08287", (0.561286844, 0.7625, 1.211673152),
    range=(0, 2), matrix=iou_losses.distance_box_iou, disjoint="pulls",
)  # fmt: skip
ciou = Case(
    iou_losses.ciou_loss, iou_losses.CIoULoss, reference.ciou, "arXiv:1911.08287", (0.561292775, 0.7625, 1.365256669),
    range=(0, 3), matrix=iou_losses.complete_box_iou, disjoint="pulls", stop_gradients=True,
)  # fmt: skip
ciou_journal = Case(
    iou_losses.ciou_loss, iou_losses.CIoULoss, reference.ciou, "arXiv:2005.03572", (0.561286844, 0.7625, 1.211673152),
    hyper={"iou_threshold": 0.5}, range=(0, 3), disjoint="pulls", stop_gradients=True,
)  # fmt: skip

CASES = (iou, giou, diou, ciou, ciou_journal)


def over(chosen: Any) -> pytest.MarkDecorator:
    """Run a test once for each of the chosen cases, which are given or picked by a condition."""
    cases = [case for case in CASES if chosen(case)] if callable(chosen) else chosen
    return pytest.mark.parametrize("case", cases, ids=str)


every_case = over(CASES)

# 1 - share and the difference of two angles near a right angle lose digits; about 1 in 800 of the awkward pairs.
slender = pytest.mark.xfail(reason="CIoU's gradient is not right for slender wide boxes far apart", strict=True)
every_case_but_slender_ciou = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=slender) if case is ciou else case for case in CASES], ids=str
)
every_matrix = over(lambda case: case.matrix)


def ordinary_pairs(n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Boxes without ties, overlapping and disjoint."""
    kinds = (awkward.ordinary, awkward.near)
    pred, target, _ = awkward.awkward_pairs(n, seed, kinds)
    return pred.to(dtype), target.to(dtype)
