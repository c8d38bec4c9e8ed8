"""What is compared: this package in its three ways, and the same calls of other packages."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
import torchvision
from measure import Call, Contender
from torch import Tensor

import iou_losses
from iou_losses import native

IMAGE = 640  # pixels
FLOAT = 4  # bytes

# Losses that torchvision has too; pairwise matrices have the same names in both packages.
PAIRED = {
    "giou_loss": "generalized_box_iou_loss",
    "diou_loss": "distance_box_iou_loss",
    "ciou_loss": "complete_box_iou_loss",
}
PAIRWISE = ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou")
ULTRALYTICS = {"giou_loss": "GIoU", "diou_loss": "DIoU", "ciou_loss": "CIoU"}

# What a kernel of the engine can be asked for: with the gradient?
KERNELS = {"value alone": False, "with gradient": True}

# Hyper-parameters that a loss has no default for.
HYPER_PARAMETERS: dict[str, dict[str, Any]] = {"mpdiou_loss": {"image_size": (IMAGE, IMAGE)}}


def engine_off() -> AbstractContextManager[Any]:
    """Leave all boxes to the formulas in torch for a while."""
    return mock.patch.object(native, "_library", None)


def has_engine(device: str) -> bool:
    """Tell whether the native engine serves boxes on this device."""
    return device == "cpu" and iou_losses.native_isa() is not None


def all_losses() -> list[str]:
    """Return the names of the package's losses that can be called with `HYPER_PARAMETERS`; warn about the others."""
    names = []
    for name in (name for name in vars(iou_losses) if name.endswith("_loss")):
        parameters = inspect.signature(getattr(iou_losses, name)).parameters.values()
        required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
        required -= {"pred", "target"}
        if missing := required - HYPER_PARAMETERS.get(name, {}).keys():
            warnings.warn(f"{name} is left out: HYPER_PARAMETERS lacks {', '.join(sorted(missing))}", stacklevel=2)
        else:
            names.append(name)
    return names


def our_loss(name: str) -> Callable[..., Tensor]:
    """Return a loss of this package with the hyper-parameters it needs."""
    return partial(getattr(iou_losses, name), **HYPER_PARAMETERS.get(name, {}))


def boxes(count: int, device: str) -> Tensor:
    """Return boxes of many sizes in an image, the same in every run."""
    random = torch.rand(2, count, 2, generator=torch.Generator().manual_seed(0))
    low, size = random[0] * IMAGE * 0.8, 4 + random[1] * IMAGE / 4
    return torch.cat((low, low + size), dim=1).to(device)


def predictions(target: Tensor) -> Tensor:
    """Return a prediction near each target, which wants a gradient."""
    noise = torch.rand(target.shape, generator=torch.Generator().manual_seed(1)).to(target)
    return (target + 3 * noise).requires_grad_()  # no corner passes its opposite: fvcore refuses such a box


def step(loss: Callable[..., Tensor], pred: Tensor, target: Tensor) -> Call:
    """Return the call of a loss and of its backward."""

    def forward_backward() -> None:
        pred.grad = None
        loss(pred, target, reduction="sum").backward()

    return forward_backward


def matrix(similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor) -> Call:
    """Return the call of a matrix."""
    return partial(similarity, boxes1, boxes2)


def bare_copy(moved: int, device: str) -> Contender:
    """Return the physical limit: a copy that reads and writes so many bytes altogether."""
    source = torch.ones(moved // (2 * FLOAT), device=device)
    return Contender("bare copy", partial(torch.empty_like(source).copy_, source))


def of_any_number(*boxes: Tensor) -> None:
    """Let torch.compile make one graph for every number of boxes, as in training, where it changes all the time."""
    for tensor in boxes:
        torch._dynamo.maybe_mark_dynamic(tensor, 0)


@cache  # a matter of many seconds
def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function under torch.compile."""
    torch._logging.set_logs(dynamo=logging.ERROR)  # torchvision's losses break the graph at a mask, at great length
    warnings.filterwarnings("ignore", message="Error detected in IndexPutBackward0")
    return torch.compile(function)


def ways(
    arrange: Callable[[Callable[..., Tensor]], Call],
    ours: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
    device: str,
    compile: bool,
) -> list[Contender]:
    """Return the contenders that compute one thing: ours and torchvision's, each in all its ways."""
    contenders = [Contender("ours, native", arrange(ours))] if has_engine(device) else []
    contenders.append(Contender("ours, formula", arrange(ours), engine_off))
    if compile:
        contenders.append(Contender("ours, compiled", arrange(compiled(ours))))
    contenders.append(Contender("torchvision", arrange(theirs)))
    if compile:
        contenders.append(Contender("torchvision, compiled", arrange(compiled(theirs))))
    return contenders


def paired(name: str, count: int, device: str, compile: bool) -> list[Contender]:
    """Return who computes this loss of so many boxes, forward and backward."""
    target = boxes(count, device)
    pred = predictions(target)
    if compile:
        of_any_number(pred, target)
    arrange = partial(step, pred=pred, target=target)
    ours, theirs = getattr(iou_losses, name), getattr(torchvision.ops, PAIRED[name])
    contenders = ways(arrange, ours, theirs, device, compile)
    return contenders + [Contender(package, arrange(loss)) for package, loss in other_losses(name).items()]


def pairwise(name: str, rows: int, columns: int, device: str, compile: bool) -> list[Contender]:
    """Return who computes this matrix of so many rows and columns."""
    boxes1, boxes2 = boxes(rows, device), boxes(columns, device)
    if compile:
        of_any_number(boxes1, boxes2)
    arrange = partial(matrix, boxes1=boxes1, boxes2=boxes2)
    return ways(arrange, getattr(iou_losses, name), getattr(torchvision.ops, name), device, compile)


@cache
def other_losses(name: str) -> dict[str, Callable[..., Tensor]]:
    """Return the same loss of further packages that are installed."""
    losses: dict[str, Callable[..., Tensor]] = {}
    if find_spec("fvcore"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # it scripts a module of its own
            import fvcore.nn
        if hasattr(fvcore.nn, name):  # a release may have GIoU alone
            losses["fvcore"] = getattr(fvcore.nn, name)
    if find_spec("ultralytics"):
        losses["ultralytics"] = partial(ultralytics_loss, kind=ULTRALYTICS[name])
    return losses


def ultralytics_loss(pred: Tensor, target: Tensor, reduction: str, kind: str) -> Tensor:
    """Give the sum of a loss as ultralytics' `BboxLoss` takes it."""
    from ultralytics.utils.metrics import bbox_iou

    assert reduction == "sum"
    return (1 - bbox_iou(pred, target, xywh=False, **{kind: True})).sum()


def kernel(name: str, count: int) -> dict[str, Call]:
    """Return the calls of a loss's kernel alone; none where the engine has no formula for it."""
    target = boxes(count, "cpu")
    pred = predictions(target).detach()
    with mock.patch.object(native, "paired", wraps=native.paired) as engine:
        our_loss(name)(pred, target, "sum")
    if not engine.called:
        return {}
    call = engine.call_args.args[0]
    total, gradient = pred.new_empty(()), torch.empty_like(pred)

    def run(arguments: bytes, *_: Tensor) -> None:  # with the tensors, which are there as long as it is
        call.kernel(arguments)

    return {
        key: partial(run, call.pack(pred, target, total, gradient if wanted else None), pred, target, total, gradient)
        for key, wanted in KERNELS.items()
    }
