"""The native engine: loss and gradient in one pass over memory, for plain eager CPU tensors.

A C library without torch in it, loaded by ctypes; calls release the GIL. `csrc/` holds the
formulas: the same as in `iou_losses.losses`, over numbers that carry their derivatives.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from iou_losses.boxes import FORMATS, Pair, corners_of

try:  # all that torch calls private
    from torch._C import _get_tracing_state, _len_torch_dispatch_stack
    from torch._C._autograd import _get_current_graph_task_keep_graph
    from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack

    KNOWN_TORCH = hasattr(forward_ad, "_current_level")
except ImportError:  # a torch that nobody has tried: everything works by the formulas
    KNOWN_TORCH = False

# The hooks on saved tensors that are in force; an old torch does not tell, so there may always be some.
saved_tensors_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_is_tracing: True)

FORMAT_CODES = {fmt: code for code, fmt in enumerate(FORMATS)}
SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}
# What the processor can run, best first, by the name torch gives it.
INSTRUCTION_SETS = {"AVX512": ("avx512", "avx2", "generic"), "AVX2": ("avx2", "generic")}
Kernel = Callable[[bytes], None]  # a function of the library
PLAIN_TYPES = (Tensor, torch.nn.Parameter)
WORTH_A_THREAD = 1 << 16  # boxes or pairs, as in rows.h
MAX_PARAMETERS = 8

# What the library's functions are called with, as `csrc/` declares it: one block of memory takes a fifth of the time
# that ctypes takes to convert as many arguments. A pointer to nothing is 0.
# rows, pred, target, loss, gradient, total, formats of pred and target, threads, eps, factor, parameters
PAIRED = Struct(f"@q5P3i2d{MAX_PARAMETERS}d")
NO_PARAMETERS = (0.0,) * MAX_PARAMETERS
# matrices, rows, columns, boxes1, boxes2, result, formats of boxes1 and boxes2, threads
MATRIX = Struct("@3q3P3i0q")


def load() -> tuple[ctypes.CDLL | None, str | None]:
    """Load the best library that is built and that this processor runs; none is an answer too."""
    if not KNOWN_TORCH or os.environ.get("IOU_LOSSES_NATIVE") == "0":
        return None, None
    for isa in INSTRUCTION_SETS.get(torch.backends.cpu.get_cpu_capability(), ("generic",)):
        for folder in __path__:  # an editable install keeps the library beside another copy of the package
            path = Path(folder) / f"kernels_{isa}.so"
            if path.exists():
                try:
                    return ctypes.CDLL(str(path)), isa
                except OSError:  # built for another machine
                    continue
    return None, None


_library, _isa = load()


def native_isa() -> str | None:
    """Tell which build of the native engine is in use: `"avx512"`, `"avx2"`, `"generic"`, or None.

    None means that none is built or that the environment variable `IOU_LOSSES_NATIVE=0` turned
    it off when the package was imported; everything then works by the formulas in torch.

    Example:
        >>> from iou_losses import native_isa
        >>> native_isa() in ("avx512", "avx2", "generic", None)
        True
    """
    return _isa


@cache
def entry_point(name: str, dtype: torch.dtype) -> Kernel | None:
    """Look a function of the library up; None for a formula that is written in torch only."""
    function = getattr(_library, f"{name}_{SUFFIXES[dtype]}", None)
    if function is not None:
        function.argtypes, function.restype = (ctypes.c_char_p,), None
    return cast(Kernel | None, function)


def paired_kernel(formula: Callable[..., Tensor], pred: Tensor, target: Tensor) -> Kernel | None:
    """Return the function that computes the formula for these boxes, None where torch has to."""
    if not serves(pred, target) or (target.requires_grad and torch.is_grad_enabled()):
        return None
    return entry_point(formula.__name__, pred.dtype)


def matrix_kernel(similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor) -> Kernel | None:
    """Return the function that fills the matrix of the similarity, None where torch has to."""
    wants_gradient = (boxes1.requires_grad or boxes2.requires_grad) and torch.is_grad_enabled()
    if wants_gradient or not serves(boxes1, boxes2):
        return None
    return entry_point(f"{similarity.__name__}_matrix", boxes1.dtype)


def serves(boxes1: Tensor, boxes2: Tensor) -> bool:
    """Tell whether both are plain CPU tensors that nobody but autograd watches."""
    return (
        _library is not None
        and type(boxes1) in PLAIN_TYPES
        and type(boxes2) in PLAIN_TYPES
        and boxes1.is_cpu
        and boxes2.is_cpu
        and boxes1.layout is boxes2.layout is torch.strided
        and nobody_watches()
        and (boxes1.data_ptr() != 0 or boxes1.numel() == 0)  # a tensor of zeros may have no memory
        and (boxes2.data_ptr() != 0 or boxes2.numel() == 0)
    )


def nobody_watches() -> bool:
    """Tell whether operators are neither traced, nor transformed, nor intercepted: who does that has to see them."""
    return (
        not is_compiling()
        and _get_tracing_state() is None
        and _len_torch_dispatch_stack() == 0  # fake tensors, make_fx, counters
        and peek_interpreter_stack() is None  # vmap, grad, jvp, functionalize
        and forward_ad._current_level < 0
    )


def readable(boxes: Tensor) -> Tensor:
    """Return the boxes laid out as the library reads them."""
    return (boxes.resolve_neg() if boxes.is_neg() else boxes).contiguous()


def threads_for(work: int) -> int:
    """Return how many threads the library may split so many boxes or pairs over."""
    return 1 if work < 2 * WORTH_A_THREAD else torch.get_num_threads()


@cache
def number(dtype: torch.dtype) -> Tensor:
    """Return one number, for `empty_like`, which takes two thirds of the time that a size to be read does."""
    return torch.zeros((), dtype=dtype, device="cpu")


class Call(NamedTuple):
    """What a paired loss is computed with, boxes aside.

    `factor` multiplies the sum of the losses, which is the result; None gives one loss per box.
    """

    kernel: Kernel
    formula: Callable[..., Tensor]
    formats: tuple[str, str]
    eps: float
    parameters: dict[str, float]
    factor: float | None

    def run(self, pred: Tensor, target: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss, and its gradient by pred where wanted."""
        pred, target = readable(pred), readable(target)
        # Beside the boxes: torch.empty would follow the user's default device, which the library cannot write to.
        loss = torch.empty_like(number(pred.dtype)) if self.factor is not None else pred.new_empty(pred.shape[:-1])
        gradient = torch.empty_like(pred) if with_gradient else None
        self.kernel(self.pack(pred, target, loss, gradient))
        return loss, gradient

    def pack(self, pred: Tensor, target: Tensor, loss: Tensor, gradient: Tensor | None) -> bytes:
        """Return what the kernel is called with, to read and write these."""
        rows = pred.numel() // 4
        per_box = self.factor is None
        return PAIRED.pack(
            rows,
            pred.data_ptr(),
            target.data_ptr(),
            loss.data_ptr() if per_box else 0,
            0 if gradient is None else gradient.data_ptr(),
            0 if per_box else loss.data_ptr(),
            FORMAT_CODES[self.formats[0]],
            FORMAT_CODES[self.formats[1]],
            threads_for(rows),
            self.eps,
            1.0 if self.factor is None else self.factor,
            *self.parameters.values(),
            *NO_PARAMETERS[len(self.parameters) :],
        )


class PairedLoss(torch.autograd.Function):
    """Loss with its gradient, computed together in the forward pass."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, target: Tensor, call: Call) -> Tensor:  # noqa: D102
        loss, gradient = call.run(pred, target, with_gradient=True)
        ctx.save_for_backward(pred, target, gradient)
        ctx.call = call
        ctx.owns_gradient = saved_tensors_hooks(False) is None  # else it may come back as another's
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        pred, target, gradient = ctx.saved_tensors
        call: Call = ctx.call
        if torch.is_grad_enabled():  # create_graph: the gradient itself is to be differentiated
            loss = call.formula(Pair(*corners_of(pred, target, *call.formats), call.eps), **call.parameters)
            if call.factor is not None:
                loss = loss.sum() * call.factor
            (gradient,) = torch.autograd.grad(loss, pred, grad, create_graph=True)
            return gradient, None, None
        if call.factor is None:
            grad = grad.unsqueeze(-1)
        if not (ctx.owns_gradient and is_last_use(grad)):
            return grad * gradient, None, None
        # The graph ends here, and the saved gradient with it: it becomes the result.
        unchanged = grad.dim() == 0 and grad.item() == 1
        return gradient if unchanged else gradient.mul_(grad), None, None


def is_last_use(grad: Tensor) -> bool:
    """Tell whether a backward pass that was given this may write to what its node saved."""
    return (
        type(grad) is Tensor
        and nobody_watches()
        and not is_legacy_batchedtensor(grad)  # is_grads_batched
        and not _get_current_graph_task_keep_graph()
    )


# Function.apply asks whether functorch is at work, which takes 2 microseconds; `serves` has asked before.
apply_paired_loss = super(torch.autograd.Function, PairedLoss).apply


def paired(call: Call, pred: Tensor, target: Tensor) -> Tensor:
    """Give the loss of each box, or their sum times the factor."""
    if pred.requires_grad and torch.is_grad_enabled():
        loss: Tensor = apply_paired_loss(pred, target, call)
        return loss
    return call.run(pred, target, with_gradient=False)[0]


def side_by_side(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Return two sets of boxes with the same leading dimensions, laid out as the library reads them."""
    if boxes1.shape[:-2] != boxes2.shape[:-2]:
        leading = torch.broadcast_shapes(boxes1.shape[:-2], boxes2.shape[:-2])  # type: ignore[no-untyped-call]
        boxes1, boxes2 = (boxes.expand(*leading, *boxes.shape[-2:]) for boxes in (boxes1, boxes2))
    return readable(boxes1), readable(boxes2)


def matrix(kernel: Kernel, boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]) -> Tensor:
    """Give the similarity of every box with every other; allocates the result and nothing else of its size."""
    boxes1, boxes2 = side_by_side(boxes1, boxes2)
    *leading, rows, _ = boxes1.shape
    columns = boxes2.shape[-2]
    result = boxes1.new_empty(*leading, rows, columns)
    kernel(
        MATRIX.pack(
            math.prod(leading),
            rows,
            columns,
            boxes1.data_ptr(),
            boxes2.data_ptr(),
            result.data_ptr(),
            FORMAT_CODES[formats[0]],
            FORMAT_CODES[formats[1]],
            threads_for(result.numel()),
        )
    )
    return result
