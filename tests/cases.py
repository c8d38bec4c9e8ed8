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
from torch.utils._python_dispatch import TorchDispatchMode

import iou_losses

# Prediction and target: overlapping, nested, and disjoint with very different shapes.
GOLDEN_PAIRS = (
    torch.tensor([[0, 0, 10, 10], [1, 1, 9, 5], [3, 2, 9, 20]], dtype=torch.float64),
    torch.tensor([[2, 3, 9, 11], [2, 2, 6, 4], [10, 5, 34, 9]], dtype=torch.float64),
)
# An IoU of exactly 1/2; disjoint in x and y, tall against wide; a wide box across a tall one.
MORE_PAIRS = (
    torch.tensor([[0, 0, 12, 14], [40, 50, 44, 90], [0, 10, 40, 13]], dtype=torch.float64),
    torch.tensor([[4, 1, 14, 13], [10, 20, 31, 22], [19, 0, 21, 32]], dtype=torch.float64),
)


class Watch(TorchDispatchMode):
    """Sees every operator, and lets it pass."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


@dataclass(frozen=True, eq=False)
class Case:
    function: Callable[..., Tensor]
    module: type[iou_losses.BoxLoss]
    formula: Callable[..., Any]  # the same loss in `reference`
    paper: str  # what the docstring cites
    golden: tuple[float, float, float]  # of GOLDEN_PAIRS, in float64 from the paper's definition, to nine digits
    more: tuple[float, float, float]  # of MORE_PAIRS
    hyper: dict[str, Any] = field(default_factory=dict)
    range: tuple[float, float] = (0.0, 1.0)
    matrix: Callable[..., Tensor] | None = None  # 1 - loss, of every box with every other
    # A disjoint pair has no gradient ("flat"); one that brings the centres closer ("pulls"), at least where it is near
    # ("fades"); one with no such promise ("slopes"); or one that fades and may even point away ("strays").
    disjoint: str = "slopes"
    miss: float = 1.0  # what a pair without overlap costs at least; what it costs where that is flat
    grows: bool = True  # a box that collapsed inside its target has a slope by which it grows again
    steep: bool = False  # the definition's slope has no bound, and some awkward gradients are beyond float32
    symmetric: bool = True
    scale_free: bool = True
    mirror_invariant: bool = True
    stop_gradients: bool = False  # some factor of the formula is a constant of the gradient
    target_is_constant: bool = False  # and has no gradient
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
        """The losses and both gradients by the formula: the engine does not serve who watches operators."""
        pred, target = pred.detach().clone().requires_grad_(), target.detach().clone().requires_grad_()
        with Watch():
            value = self.loss(pred, target)
        return value.detach(), *torch.autograd.grad(value.sum(), (pred, target), materialize_grads=True)

    def exact(self, pred: Tensor, target: Tensor, eps: float = 0.0) -> Tensor:
        """The losses of boxes (N, 4), each correctly rounded to float64."""
        pairs = zip(pred.tolist(), target.tolist(), strict=True)
        values = [reference.exact(self.formula, *pair, eps, **self.hyper) for pair in pairs]
        return torch.tensor([float(value) for value in values], dtype=torch.float64)

    def truth(self, pred: Tensor, target: Tensor) -> reference.Truth:
        truth = reference.truth(self.formula, pred, target, **self.hyper)
        return truth._replace(by_target=torch.zeros_like(truth.by_target)) if self.target_is_constant else truth

    def rounding(self, dtype: torch.dtype, by_target: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
        """What roundings of the lengths do to a gradient of the definition itself."""

        def of_pairs(pred: Tensor, target: Tensor) -> Tensor:
            return reference.rounding(self.formula, pred, target, dtype, **self.hyper)[int(by_target)]

        return of_pairs


iou = Case(
    iou_losses.iou_loss, iou_losses.IoULoss, reference.iou, "arXiv:1908.03851",
    (0.542056075, 0.75, 1.0), (0.5, 1.0, 0.966292135),
    matrix=iou_losses.box_iou, disjoint="flat",
)  # fmt: skip
giou = Case(
    iou_losses.giou_loss, iou_losses.GIoULoss, reference.giou, "arXiv:1902.09630",
    (0.569328802, 0.75, 1.634408602), (0.520408163, 1.91512605, 1.827229635),
    range=(0, 2), matrix=iou_losses.generalized_box_iou, disjoint="pulls",
)  # fmt: skip
diou = Case(
    iou_losses.diou_loss, iou_losses.DIoULoss, reference.diou, "arXiv:1911.08287",
    (0.561286844, 0.7625, 1.211673152), (0.522959184, 1.472795575, 0.97400936),
    range=(0, 2), matrix=iou_losses.distance_box_iou, disjoint="pulls",
)  # fmt: skip
ciou = Case(
    iou_losses.ciou_loss, iou_losses.CIoULoss, reference.ciou, "arXiv:1911.08287",
    (0.561292775, 0.7625, 1.365256669), (0.522959196, 1.806102246, 1.359547568),
    range=(0, 3), matrix=iou_losses.complete_box_iou, disjoint="pulls", stop_gradients=True,
)  # fmt: skip
ciou_journal = Case(
    iou_losses.ciou_loss, iou_losses.CIoULoss, reference.ciou, "arXiv:2005.03572",
    (0.561286844, 0.7625, 1.211673152), (0.522959196, 1.472795575, 0.97400936),
    hyper={"iou_threshold": 0.5}, range=(0, 3), disjoint="pulls", stop_gradients=True,
)  # fmt: skip
log_iou = Case(
    iou_losses.iou_loss, iou_losses.IoULoss, reference.iou, "arXiv:1608.01471",
    (0.781008536, 1.386294361, 13.81551056), (0.693147181, 13.81551056, 3.390024081),
    hyper={"mode": "log"}, range=(0, 13.82), disjoint="flat", miss=13.8, grows=False,
)  # fmt: skip
square_iou = Case(
    iou_losses.iou_loss, iou_losses.IoULoss, reference.iou, "arXiv:2110.13675",
    (0.790287361, 0.9375, 1.0), (0.75, 1.0, 0.99886378),
    hyper={"mode": "square"}, disjoint="flat", grows=False,
)  # fmt: skip
eiou = Case(
    iou_losses.eiou_loss, iou_losses.EIoULoss, reference.eiou, "arXiv:2101.08158",
    (0.684344695, 1.2625, 2.153760227), (0.56377551, 2.017489452, 2.697798423),
    range=(0, 4), disjoint="slopes",
)  # fmt: skip
focal_eiou = Case(
    iou_losses.focal_eiou_loss, iou_losses.FocalEIoULoss, reference.focal_eiou, "arXiv:2101.08158",
    (0.463106692, 0.63125, 0.0), (0.398649486, 0.0, 0.495307747),
    range=(0, 4), disjoint="flat", stop_gradients=True, miss=0.0, grows=False,
)  # fmt: skip
extended_iou = Case(
    iou_losses.extended_iou_loss, iou_losses.ExtendedIoULoss, reference.extended_iou, "arXiv:2112.01793",
    (0.492056075, 0.7, 0.996728972), (0.45, 1.84468196, 0.916292135),
    range=(0, 2), disjoint="slopes", mirror_invariant=False, miss=0.95, steep=True,
)  # fmt: skip
siou = Case(
    iou_losses.siou_loss, iou_losses.SIoULoss, reference.siou, "arXiv:2205.12740",
    (0.571411398, 0.789352034, 1.285138519), (0.544307709, 1.547401709, 1.119475859),
    range=(0, 2.5), disjoint="pulls",
)  # fmt: skip
alpha_iou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.903963371, 0.984375, 1.0), (0.875, 1.0, 0.9999617),
    hyper={"alpha": 3.0, "base": "iou"}, disjoint="flat", grows=False,
)  # fmt: skip
alpha_giou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.903983657, 0.984375, 1.255333142), (0.8750085, 1.766377516, 1.638100094),
    hyper={"alpha": 3.0, "base": "giou"}, range=(0, 2), disjoint="pulls", grows=False,
)  # fmt: skip
alpha_diou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.903970483, 0.984376953, 1.009484126), (0.875012102, 1.105686669, 0.99996216),
    hyper={"alpha": 3.0, "base": "diou"}, range=(0, 2), disjoint="pulls", grows=False,
)  # fmt: skip
alpha_ciou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.903970483, 0.984376953, 1.013106838), (0.875012102, 1.142714819, 1.057268447),
    hyper={"alpha": 3.0, "base": "ciou"}, range=(0, 3), disjoint="pulls", stop_gradients=True, grows=False,
)  # fmt: skip
half_iou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.323284458, 0.5, 1.0), (0.292893219, 1.0, 0.816402982),
    hyper={"alpha": 0.5, "base": "iou"}, disjoint="flat", grows=False,
)  # fmt: skip
half_diou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.461959507, 0.611803399, 1.460079506), (0.444416101, 1.68760132, 0.904250723),
    hyper={"alpha": 0.5, "base": "diou"}, range=(0, 2), disjoint="pulls", grows=False,
)  # fmt: skip
half_ciou = Case(
    iou_losses.alpha_iou_loss, iou_losses.AlphaIoULoss, reference.alpha_iou, "arXiv:2110.13675",
    (0.46439481, 0.611803399, 1.851976836), (0.444526641, 2.264928499, 1.525167953),
    hyper={"alpha": 0.5, "base": "ciou"}, range=(0, 3), disjoint="pulls", stop_gradients=True,
    grows=False,
)  # fmt: skip
wiou1 = Case(
    iou_losses.wiou_loss, iou_losses.WIoULoss, reference.wiou, "arXiv:2301.10051",
    (0.552581108, 0.759433839, 1.235743918), (0.511612387, 1.604473354, 0.973778077),
    hyper={"version": 1}, range=(0, 2.72), disjoint="pulls", stop_gradients=True, stateful=True,
)  # fmt: skip
wiou2 = Case(
    iou_losses.wiou_loss, iou_losses.WIoULoss, reference.wiou, "arXiv:2301.10051",
    (0.406834843, 0.657688997, 1.235743918), (0.361764588, 1.604473354, 0.957225403),
    hyper={"version": 2}, range=(0, 2.72), disjoint="pulls", stop_gradients=True, stateful=True,
)  # fmt: skip
wiou3 = Case(
    iou_losses.wiou_loss, iou_losses.WIoULoss, reference.wiou, "arXiv:2301.10051",
    (0.483592675, 0.80468435, 1.487011848), (0.424300754, 1.93071627, 1.157045863),
    hyper={"version": 3}, range=(0, 3.28), disjoint="pulls", stop_gradients=True, stateful=True,
)  # fmt: skip
mpdiou = Case(
    iou_losses.mpdiou_loss, iou_losses.MPDIoULoss, reference.mpdiou, "arXiv:2307.07662",
    (0.542079512, 0.75001875, 1.00125625), (0.500034375, 1.010301562, 0.968140572),
    hyper={"image_size": (640, 480)}, range=(0, float("inf")), disjoint="pulls", scale_free=False,
)  # fmt: skip
shape_iou0 = Case(
    iou_losses.shape_iou_loss, iou_losses.ShapeIoULoss, reference.shape_iou, "arXiv:2312.17663",
    (0.564082939, 0.786468651, 1.293122004), (0.523393931, 1.590931917, 1.107803655),
    hyper={"scale": 0.0}, range=(0, 4), disjoint="pulls",
)  # fmt: skip
shape_iou1 = Case(
    iou_losses.shape_iou_loss, iou_losses.ShapeIoULoss, reference.shape_iou, "arXiv:2312.17663",
    (0.563388059, 0.789590091, 1.22599653), (0.525538322, 1.967419215, 1.207698591),
    hyper={"scale": 1.0}, range=(0, 4), disjoint="pulls", symmetric=False,
)  # fmt: skip
piou1 = Case(
    iou_losses.piou_loss, iou_losses.PIoULoss, reference.piou, "Neural Networks 170",
    (0.594520035, 0.971199217, 1.767779852), (0.536069528, 2.0, 1.966292135),
    hyper={"version": 1}, range=(0, 2), disjoint="fades", symmetric=False,
)  # fmt: skip
piou2 = Case(
    iou_losses.piou_loss, iou_losses.PIoULoss, reference.piou, "Neural Networks 170",
    (0.635416866, 1.233723254, 1.771077935), (0.545495185, 2.237e-05, 0.052891282),
    hyper={"version": 2}, range=(0, 2.6), disjoint="strays", symmetric=False, miss=0.0,
)  # fmt: skip
nwd = Case(
    iou_losses.nwd_loss, iou_losses.NWDLoss, reference.nwd, "arXiv:2110.13389",
    (0.192614576, 0.17417004, 0.791204793), (0.228262885, 0.988729414, 0.850440413),
    disjoint="fades", scale_free=False, miss=0.0, grows=False,
)  # fmt: skip
sca = Case(
    iou_losses.sca_loss, iou_losses.SCALoss, reference.sca, "arXiv:2104.00462",
    (1.001302288, 1.511667274, 2.7844235), (0.892615341, 4.099522945, 2.799948858),
    range=(0, 6), disjoint="pulls", mirror_invariant=False,
)  # fmt: skip
bounded_iou = Case(
    iou_losses.bounded_iou_loss, iou_losses.BoundedIoULoss, reference.bounded_iou, "arXiv:1711.00164",
    (1.016666667, 1.366666667, 3.127777778), (0.770464853, 3.35952381, 1.99527439),
    range=(0, 4), disjoint="fades", symmetric=False, target_is_constant=True, miss=0.0, grows=False,
)  # fmt: skip
interp_iou = Case(
    iou_losses.interp_iou_loss, iou_losses.InterpIoULoss, reference.interp_iou, "arXiv:2507.12420",
    (0.560375161, 0.788831219, 1.088963667), (0.515174487, 1.594672843, 1.251219626),
    range=(0, 2), disjoint="fades", symmetric=False,
)  # fmt: skip
dynamic_interp_iou = Case(
    iou_losses.interp_iou_loss, iou_losses.InterpIoULoss, reference.interp_iou, "arXiv:2507.12420",
    (0.832344228, 1.11, 1.046326449), (0.753246753, 1.375902273, 1.368191616),
    hyper={"coefficient": "dynamic"}, range=(0, 2), disjoint="fades", symmetric=False, stop_gradients=True,
)  # fmt: skip
gcd = Case(
    iou_losses.gcd_loss, iou_losses.GCDLoss, reference.gcd, "arXiv:2510.27649",
    (0.273479218, 0.447292893, 0.930432288), (0.260099735, 0.999999995, 0.999512394),
    disjoint="fades", miss=0.0, grows=False,
)  # fmt: skip

CASES = tuple(case for case in vars().copy().values() if isinstance(case, Case))


def over(chosen: Any) -> pytest.MarkDecorator:
    """Run a test once for each of the chosen cases, which are given or picked by a condition."""
    cases = [case for case in CASES if chosen(case)] if callable(chosen) else chosen
    return pytest.mark.parametrize("case", cases, ids=str)


every_case = over(CASES)
every_loss = over(tuple({case.function: case for case in reversed(CASES)}.values())[::-1])  # whatever its arguments
every_matrix = over(lambda case: case.matrix)


def ordinary_pairs(n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Boxes without ties, overlapping and disjoint."""
    kinds = (awkward.ordinary, awkward.near)
    pred, target, _ = awkward.awkward_pairs(n, seed, kinds)
    return pred.to(dtype), target.to(dtype)
