"""The engine in the graphs of torch.compile: an operator for a loss with its gradient, and one for a matrix.

On a CPU each is many times as fast as what inductor makes of the formula. Exported graphs have the formula: they are
to run where this package is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from iou_losses import native

# An old torch does not tell an export from a compilation, so both have the formula.
is_exporting = getattr(torch.compiler, "is_exporting", lambda: True)
# The parameters one by one: a list of floats cannot hold a symbolic one.
PARAMETERS = "".join(f", float parameter{i}=0" for i in range(native.MAX_PARAMETERS))
SCHEMA = (
    "(Tensor pred, Tensor target, str formula, str fmt1, str fmt2, float eps, bool with_gradient"
    f"{PARAMETERS}) -> (Tensor, Tensor)"
)


@torch.library.custom_op("iou_losses::paired", mutates_args=(), schema=SCHEMA)
def paired(
    pred: Tensor,
    target: Tensor,
    formula: str,
    fmt1: str,
    fmt2: str,
    eps: float,
    with_gradient: bool,
    *parameters: float,
) -> tuple[Tensor, Tensor]:
    """Give the loss of each box, and its gradient by pred where wanted."""
    kernel = native.entry_point(formula, pred.dtype, native.PAIRED)
    assert kernel is not None  # known before the operator was put into the graph
    numbers = {str(i): number for i, number in enumerate(parameters)}
    loss, gradient = native.Call(kernel, undifferentiated, (fmt1, fmt2), eps, numbers, None).run(
        pred, target, with_gradient
    )
    return loss, pred.new_empty(0) if gradient is None else gradient


def undifferentiated(*_: Any) -> Tensor:
    """Stand for the formula that a second derivative would take: a compiled backward has none."""
    raise RuntimeError("torch.compile does not support second derivatives")


@paired.register_fake
def _(
    pred: Tensor, target: Tensor, formula: str, fmt1: str, fmt2: str, eps: float, with_gradient: bool, *_: float
) -> tuple[Tensor, Tensor]:
    return pred.new_empty(pred.shape[:-1]), pred.new_empty(pred.shape if with_gradient else 0)


def save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the gradient for the backward."""
    ctx.save_for_backward(output[1])


def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    """Multiply the gradient that the forward computed."""
    (gradient,) = ctx.saved_tensors
    return grad.unsqueeze(-1) * gradient, *[None] * (6 + native.MAX_PARAMETERS)


paired.register_autograd(backward, setup_context=save_gradient)


@torch.library.custom_op(
    "iou_losses::matrix",
    mutates_args=(),
    schema="(Tensor boxes1, Tensor boxes2, str similarity, str fmt1, str fmt2) -> Tensor",
)
def matrix(boxes1: Tensor, boxes2: Tensor, similarity: str, fmt1: str, fmt2: str) -> Tensor:
    """Give the similarity of every box with every other."""
    kernel = native.entry_point(similarity, boxes1.dtype, native.MATRIX)
    assert kernel is not None  # known before the operator was put into the graph
    return native.matrix(kernel, boxes1, boxes2, (fmt1, fmt2))


@matrix.register_fake
def _(boxes1: Tensor, boxes2: Tensor, similarity: str, fmt1: str, fmt2: str) -> Tensor:
    leading = torch.broadcast_shapes(boxes1.shape[:-2], boxes2.shape[:-2])  # type: ignore[no-untyped-call]
    return boxes1.new_empty(*leading, boxes1.shape[-2], boxes2.shape[-2])


def has_kernel(name: str, dtype: torch.dtype, of_pairs: bool) -> bool:
    """Tell whether the engine has this function; the compiler takes the answer and does not look inside."""
    arguments = native.PAIRED if of_pairs else native.MATRIX
    return dtype in native.SUFFIXES and native.entry_point(name, dtype, arguments) is not None


# What torch.compiler.assume_constant_result does, which would import the compiler, for seconds.
has_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def paired_goes_into_the_graph(
    formula: Callable[..., Tensor], pred: Tensor, target: Tensor, parameters: Mapping[str, Any]
) -> bool:
    """Tell whether the graph that is being compiled gets the operator of a loss; else it gets the formula."""
    return (
        serves(pred, target)
        and not any(isinstance(value, Tensor) for value in parameters.values())  # a running mean: not read
        and not (target.requires_grad and torch.is_grad_enabled())
        and has_kernel(formula.__name__, pred.dtype, True)
    )


def matrix_goes_into_the_graph(similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor) -> bool:
    """Tell whether the graph that is being compiled gets the operator of a matrix; else it gets the formula."""
    return (
        serves(boxes1, boxes2)
        and not ((boxes1.requires_grad or boxes2.requires_grad) and torch.is_grad_enabled())
        and has_kernel(f"{similarity.__name__}_matrix", boxes1.dtype, False)
    )


def serves(boxes1: Tensor, boxes2: Tensor) -> bool:
    """Tell whether plain CPU tensors are being compiled, not exported and not transformed."""
    return (
        torch.compiler.is_dynamo_compiling()
        and not is_exporting()
        and native._library is not None
        and boxes1.is_cpu
        and boxes2.is_cpu
        and type(boxes1) in native.PLAIN_TYPES
        and type(boxes2) in native.PLAIN_TYPES
        and not torch._C._are_functorch_transforms_active()
    )


def paired_in_graph(
    formula: Callable[..., Tensor],
    pred: Tensor,
    target: Tensor,
    formats: tuple[str, str],
    eps: float,
    parameters: Mapping[str, Any],
) -> Tensor:
    """Give the loss of each box, by the operator."""
    with_gradient = pred.requires_grad and torch.is_grad_enabled()
    numbers = [float(value) for value in parameters.values()]
    loss: Tensor = paired(pred, target, formula.__name__, *formats, float(eps), with_gradient, *numbers)[0]
    return loss


def matrix_in_graph(
    similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]
) -> Tensor:
    """Give the similarity of every box with every other, by the operator."""
    result: Tensor = matrix(boxes1, boxes2, f"{similarity.__name__}_matrix", *formats)
    return result
