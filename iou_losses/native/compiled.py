"""The engine in the graphs of torch.compile: an operator for a loss with its gradient, and one for a matrix.

On a CPU each is many times as fast as what inductor makes of the formula. Exported graphs have the formula: they are
to run where this package is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from iou_losses import native

# An old torch does not tell an export from a compilation, so both have the formula.
is_exporting = getattr(torch.compiler, "is_exporting", lambda: True)
# The parameters one by one: a list of floats cannot hold a symbolic one.
PARAMETERS = "".join(f", float parameter{i}=0" for i in range(native.MAX_PARAMETERS))
PAIRED = (
    "paired(Tensor pred, Tensor target, bool summed, bool with_gradient, str formula, str fmt1, str fmt2, float eps"
    f"{PARAMETERS}) -> (Tensor, Tensor)"
)
MATRIX = "matrix(Tensor boxes1, Tensor boxes2, str similarity, str fmt1, str fmt2) -> Tensor"


def paired(
    pred: Tensor,
    target: Tensor,
    summed: bool,
    with_gradient: bool,
    formula: str,
    fmt1: str,
    fmt2: str,
    eps: float,
    *parameters: float,
) -> tuple[Tensor, Tensor]:
    """Give the loss of each box or their sum, and the gradient by pred where wanted."""
    if pred.shape != target.shape:
        raise ValueError(f"boxes must have the same shape, got {tuple(pred.shape)} and {tuple(target.shape)}")
    kernel = kernel_for(formula, pred, target)
    numbers = {str(i): number for i, number in enumerate(parameters)}
    call = native.Call(kernel, undifferentiated, (fmt1, fmt2), eps, numbers, 1.0 if summed else None)
    loss, gradient = call.run(pred, target, with_gradient)
    return loss, pred.new_empty(0) if gradient is None else gradient


def kernel_for(name: str, boxes1: Tensor, boxes2: Tensor) -> native.Kernel:
    """Return the function of the library; whoever put the operator into a graph has asked `has_kernel` before."""
    readable = boxes1.shape[-1:] == boxes2.shape[-1:] == (4,) and boxes1.dtype == boxes2.dtype
    if not readable or not has_kernel(name, boxes1.dtype):
        got = " and ".join(f"{tuple(boxes.shape)} of {boxes.dtype}" for boxes in (boxes1, boxes2))
        raise ValueError(f"the engine has no {name} of boxes {got}")
    return cast(native.Kernel, native.entry_point(name, boxes1.dtype))


def undifferentiated(*_: Any) -> Tensor:
    """Stand for the formula that a second derivative would take: a compiled backward has none."""
    raise RuntimeError("torch.compile has no second derivatives of a loss: call it in eager mode for create_graph=True")


def fake_paired(pred: Tensor, target: Tensor, summed: bool, with_gradient: bool, *_: Any) -> tuple[Tensor, Tensor]:
    """Give what `paired` gives, without its numbers."""
    loss = pred.new_empty(() if summed else pred.shape[:-1])
    return loss, pred.new_empty(pred.shape if with_gradient else 0)


def save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the gradient for the backward."""
    ctx.save_for_backward(output[1])
    ctx.arguments = len(inputs)
    ctx.summed = inputs[2]


def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    """Multiply the gradient that the forward computed."""
    if torch.is_grad_enabled():
        undifferentiated()
    (gradient,) = ctx.saved_tensors
    return (grad if ctx.summed else grad.unsqueeze(-1)) * gradient, *[None] * (ctx.arguments - 1)


def matrix(boxes1: Tensor, boxes2: Tensor, similarity: str, fmt1: str, fmt2: str) -> Tensor:
    """Give the similarity of every box with every other."""
    return native.matrix(kernel_for(similarity, boxes1, boxes2), boxes1, boxes2, (fmt1, fmt2))


def fake_matrix(boxes1: Tensor, boxes2: Tensor, similarity: str, fmt1: str, fmt2: str) -> Tensor:
    """Give what `matrix` gives, without its numbers."""
    leading = torch.broadcast_shapes(boxes1.shape[:-2], boxes2.shape[:-2])  # type: ignore[no-untyped-call]
    return boxes1.new_empty(*leading, boxes1.shape[-2], boxes2.shape[-2])


def define() -> Any:
    """Give torch the operators. Not by `custom_op`, whose wrapper takes 10 microseconds a call."""
    library: Any = torch.library.Library("iou_losses", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema, function, fake in ((PAIRED, paired, fake_paired), (MATRIX, matrix, fake_matrix)):
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(function.__name__, function, "CPU")
        torch.library.register_fake(f"iou_losses::{function.__name__}", fake, lib=library)
    torch.library.register_autograd("iou_losses::paired", backward, setup_context=save_gradient, lib=library)
    return library


if not hasattr(torch.ops.iou_losses, "paired"):  # where the package is imported again, they are still there
    LIBRARY = define()


def has_kernel(name: str, dtype: torch.dtype) -> bool:
    """Tell whether the engine has this function; the compiler takes the answer and does not look inside."""
    return dtype in native.SUFFIXES and native.entry_point(name, dtype) is not None


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
        and has_kernel(formula.__name__, pred.dtype)
    )


def matrix_goes_into_the_graph(similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor) -> bool:
    """Tell whether the graph that is being compiled gets the operator of a matrix; else it gets the formula."""
    return (
        serves(boxes1, boxes2)
        and not ((boxes1.requires_grad or boxes2.requires_grad) and torch.is_grad_enabled())
        and has_kernel(f"{similarity.__name__}_matrix", boxes1.dtype)
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
    summed: bool,
) -> Tensor:
    """Give the loss of each box or their sum, by the operator."""
    with_gradient = pred.requires_grad and torch.is_grad_enabled()
    numbers = [float(value) for value in parameters.values()]
    operator = torch.ops.iou_losses.paired
    loss: Tensor = operator(pred, target, summed, with_gradient, formula.__name__, *formats, float(eps), *numbers)[0]
    return loss


def matrix_in_graph(
    similarity: Callable[..., Tensor], boxes1: Tensor, boxes2: Tensor, formats: tuple[str, str]
) -> Tensor:
    """Give the similarity of every box with every other, by the operator."""
    result: Tensor = torch.ops.iou_losses.matrix(boxes1, boxes2, f"{similarity.__name__}_matrix", *formats)
    return result
