"""Adding a loss touches one file: what stands here between the two lines has everything that the others have."""

import copy
import inspect
import math
import pickle

import pytest
import torch
from awkward import awkward_pairs
from cases import ordinary_pairs
from torch import Tensor

import iou_losses
from iou_losses import CIoULoss, FocalerIoULoss, InnerIoULoss, UnifiedIoULoss, WIoULoss, as_metric, native
from iou_losses.boxes import FORMATS, Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.integrations.box_term import BoxTerm
from iou_losses.pairwise import pairwise

# ---------------------------------------------------------------------------------------------------------------------


def side_iou(pair: Pair) -> Tensor:
    """Return the mean of i_w / c_w and i_h / c_h."""
    return pair.ratio(pair.overlap, pair.hull, units=1, undefined=1).mean(-1)


def side_iou_cost(pair: Pair, strength: float) -> Tensor:
    """Return the strength times one minus that."""
    return strength * (1 - side_iou(pair))


def side_iou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    strength: float = 1.0,
) -> Tensor:
    """How much of the hull's sides the boxes do not share."""
    check_range("strength", strength, 0, above=True)
    return paired_loss(side_iou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, strength=strength)


class SideIoULoss(BoxLoss):
    """The same as a module."""

    function = staticmethod(side_iou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        strength: float = 1.0,
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, strength=strength)


# ---------------------------------------------------------------------------------------------------------------------

# Sides shared: 8 of 10 and 7 of 11; half and all; none and half.
PRED = torch.tensor([[0.0, 0, 10, 10], [0, 0, 4, 4], [0, 0, 1, 2]])
TARGET = torch.tensor([[2.0, 3, 10, 11], [0, 0, 2, 4], [3, 0, 4, 1]])
LOSSES = torch.tensor([1 - (8 / 10 + 7 / 11) / 2, 0.25, 0.75])
WEIGHT = torch.tensor([2.0, 0, 0.5])


def close(a, b, tolerance=1e-6):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), rtol=0, atol=tolerance)


def gradient(loss, pred, target):
    leaf = pred.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, target).sum(), leaf)[0]


def test_it_is_its_definition():
    close(side_iou_loss(PRED, TARGET), LOSSES)
    close(side_iou_loss(PRED, TARGET, strength=3.0), 3 * LOSSES)


def test_it_takes_the_arguments_of_the_others():
    names = list(inspect.signature(iou_losses.giou_loss).parameters)
    assert list(inspect.signature(side_iou_loss).parameters)[: len(names)] == names


def test_it_is_weighted_and_reduced():
    close(side_iou_loss(PRED, TARGET, "mean"), LOSSES.mean())
    close(side_iou_loss(PRED, TARGET, "sum", weight=WEIGHT), (LOSSES * WEIGHT).sum())
    close(side_iou_loss(PRED, TARGET, "mean", weight=WEIGHT[:, None].repeat(1, 4)), (LOSSES * WEIGHT).mean())
    close(side_iou_loss(PRED, TARGET, "mean", avg_factor=torch.tensor(2.0)), LOSSES.sum() / 2)
    empty = torch.zeros(0, 4, requires_grad=True)
    side_iou_loss(empty, torch.zeros(0, 4), "mean").backward()
    assert empty.grad.shape == (0, 4)


def test_eps_joins_its_denominators_in_the_units_of_the_boxes():
    close(side_iou_loss(PRED[:1], TARGET[:1], eps=1.0), [1 - (8 / 11 + 7 / 12) / 2])


def test_it_takes_every_format():
    (low, high), (low_t, high_t) = PRED.split(2, -1), TARGET.split(2, -1)
    boxes = {
        "xyxy": ((low, high), (low_t, high_t)),
        "xywh": ((low, high - low), (low_t, high_t - low_t)),
        "cxcywh": (((low + high) / 2, high - low), ((low_t + high_t) / 2, high_t - low_t)),
        "ltrb": ((-low, high), (-low_t, high_t)),
        "xyxy_inclusive": ((low, high - 1), (low_t, high_t - 1)),
    }
    assert boxes.keys() == FORMATS.keys()
    for fmt, (pred, target) in boxes.items():
        close(side_iou_loss(torch.cat(pred, -1), torch.cat(target, -1), fmt=fmt), LOSSES)


def test_it_computes_in_float32_or_float64():
    for given, computed in [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float64),
    ]:
        value = side_iou_loss(PRED.to(given), TARGET.to(given))
        assert value.dtype == computed
        close(value, LOSSES)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((PRED, TARGET[:2]), ValueError, "same shape"),
        ((PRED[:, :3], TARGET[:, :3]), ValueError, "4 numbers in the last dimension"),
        ((PRED.bool(), TARGET.bool()), TypeError, "floating or integer"),
        ((PRED, TARGET, "average"), ValueError, "reduction must be"),
        ((PRED, TARGET, "none", -1.0), ValueError, "eps must be"),
    ],
)
def test_it_refuses_what_the_others_refuse(arguments, error, message):
    with pytest.raises(error, match=message):
        side_iou_loss(*arguments)


def test_its_own_argument_is_checked_when_the_module_is_built():
    with pytest.raises(ValueError, match="strength must be a finite number above 0, got -1"):
        SideIoULoss(strength=-1)
    with pytest.raises(ValueError, match="fmt must be one of"):
        SideIoULoss(fmt="yxyx")


def test_its_module_is_a_module_like_the_others():
    module = SideIoULoss("sum", loss_weight=2.0, strength=3.0)
    close(module(PRED, TARGET), 6 * LOSSES.sum())
    close(module(PRED, TARGET, WEIGHT, None, "none"), 6 * LOSSES * WEIGHT)
    assert repr(module) == ("SideIoULoss(reduction='sum', eps=0.0, fmt='xyxy', loss_weight=2.0, strength=3.0)")
    for twin in (eval(repr(module)), pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert torch.equal(twin(PRED, TARGET), module(PRED, TARGET))
    assert not module.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_it_is_finite_for_every_awkward_box_and_0_for_identical_ones(dtype):
    pred, target, kinds = awkward_pairs(5000, 1)
    pred, target = pred.to(dtype), target.to(dtype)
    value, slopes = side_iou_loss(pred, target), gradient(side_iou_loss, pred, target)
    assert value.isfinite().all()
    assert slopes.isfinite().all()
    assert 0 <= value.min() <= value.max() <= 1
    identical = torch.tensor([kind.startswith("identical") for kind in kinds])
    assert identical.sum() > 100
    assert not value[identical].any()
    assert not slopes[identical].any()


def test_a_nan_stays_in_its_row():
    pred = PRED.clone()
    pred[1, 2] = math.nan
    assert side_iou_loss(pred, TARGET).isnan().tolist() == [False, True, False]


def test_its_gradient_is_right_and_can_be_differentiated():
    pred, target = (boxes.requires_grad_() for boxes in ordinary_pairs(6, 2))
    assert torch.autograd.gradcheck(side_iou_loss, (pred, target))
    assert torch.autograd.gradgradcheck(side_iou_loss, (pred, target))


def test_its_matrix_is_the_same_formula():
    matrix = pairwise(side_iou, PRED, TARGET[:2], "xyxy")
    assert matrix.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            close(1 - matrix[i, j], side_iou_loss(PRED[i], TARGET[j]))
    close(as_metric(side_iou_loss)(PRED, TARGET[:2]), matrix)


def test_it_compiles_to_one_graph_for_any_number_of_boxes():
    torch._dynamo.reset()
    compiled = torch.compile(SideIoULoss("none", strength=2.0), backend="eager", fullgraph=True, dynamic=True)
    for n in (2, 5, 40):
        pred, target = ordinary_pairs(n, n, torch.float32)
        close(compiled(pred, target), side_iou_loss(pred, target, strength=2.0))
        close(gradient(compiled, pred, target), 2 * gradient(side_iou_loss, pred, target))


def test_it_is_transformed_like_the_others():
    pred, target = ordinary_pairs(20, 3)
    close(torch.vmap(side_iou_loss)(pred, target), side_iou_loss(pred, target), 1e-12)
    slopes = torch.vmap(torch.func.grad(side_iou_loss))(pred, target)
    close(slopes, gradient(side_iou_loss, pred, target), 1e-12)
    assert SideIoULoss().to("meta")(pred.to("meta"), target.to("meta")).shape == ()


def test_it_needs_no_twin_in_the_engine():
    assert native.paired_kernel(side_iou_cost, PRED, TARGET) is None
    assert native.matrix_kernel(side_iou, PRED, TARGET) is None
    assert (native.paired_kernel(iou_losses.losses.iou.iou_cost, PRED, TARGET) is None) == (native.native_isa() is None)


@pytest.mark.parametrize(
    "combine",
    [
        lambda base: InnerIoULoss(base, 0.7),
        FocalerIoULoss,
        UnifiedIoULoss,
        lambda base: WIoULoss(version=3, base=base),
    ],
    ids=["inner", "focaler", "unified", "wise"],
)
def test_every_combinator_takes_it_as_base(combine):
    pred, target = ordinary_pairs(50, 4)
    ours, ciou = (combine(base).eval() for base in (SideIoULoss("none"), CIoULoss("none")))
    assert ours(pred, target).isfinite().all()
    assert not torch.equal(ours(pred, target), ciou(pred, target))
    assert not ours(target, target).any()


def test_every_integration_takes_it():
    for loss in (side_iou_loss, SideIoULoss()):
        close(BoxTerm(loss)(PRED, TARGET), LOSSES.sum())
