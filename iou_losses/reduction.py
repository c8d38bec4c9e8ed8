"""From one loss per box to what the user asked for: weighting and reduction, once for all losses."""

from __future__ import annotations

from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str, avg_factor: float | Tensor | None) -> None:
    """Raise a `ValueError` for an unknown reduction, or an `avg_factor` that contradicts it."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    if avg_factor is None:
        return
    if reduction == "sum":
        raise ValueError("avg_factor divides a mean; it cannot be used with reduction='sum'")
    if isinstance(avg_factor, Tensor):
        if avg_factor.dim() != 0:
            raise ValueError(f"avg_factor must be a number or a 0-d tensor, got shape {tuple(avg_factor.shape)}")
    elif not avg_factor >= 0:
        raise ValueError(f"avg_factor must be a number of boxes, 0 or more, got {avg_factor!r}")


def weighted(loss: Tensor, weight: Tensor) -> Tensor:
    """Multiply the loss (...) by a weight per box (...) or per coordinate (..., 4)."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a tensor, got {type(weight).__name__}")
    if weight.is_complex():
        raise TypeError(f"weight must be real, got {weight.dtype}")
    per_coordinate = (*loss.shape, 4)
    if weight.shape != loss.shape and weight.shape != per_coordinate:
        raise ValueError(
            f"weight must have the shape of the loss {tuple(loss.shape)} or of the boxes {per_coordinate}, "
            f"got {tuple(weight.shape)}"
        )
    if weight.device != loss.device:
        raise ValueError(f"weight is on {weight.device}, the boxes are on {loss.device}")
    weight = weight.to(loss.dtype)
    return loss * (weight if weight.shape == loss.shape else weight.mean(-1))


def reducing_factor(
    boxes: Tensor, reduction: str, weight: Tensor | None, avg_factor: float | Tensor | None
) -> float | None:
    """Return what the sum of the losses is to be multiplied by, None where it takes more than a number."""
    if reduction == "none" or weight is not None or isinstance(avg_factor, Tensor):
        return None
    count = boxes.numel() // 4 if avg_factor is None else avg_factor
    return 1.0 if reduction == "sum" else 1 / count if count else 0.0


def reduce(loss: Tensor, reduction: str, weight: Tensor | None, avg_factor: float | Tensor | None) -> Tensor:
    """Weigh and reduce one loss per box; without boxes the sum and the mean are 0 and still on the graph."""
    if weight is not None:
        loss = weighted(loss, weight)
    if reduction == "none":
        return loss
    return total_or_mean(loss.sum(), loss.numel(), reduction, avg_factor)


def total_or_mean(total: Tensor, count: int, reduction: str, avg_factor: float | Tensor | None) -> Tensor:
    """Make the sum of so many losses what the reduction asks for."""
    if reduction == "sum":
        return total
    if isinstance(avg_factor, Tensor):
        nothing = avg_factor == 0  # where, not if: reading it would wait for the device
        return (total / avg_factor.masked_fill(nothing, 1)).masked_fill(nothing, 0)
    if avg_factor is None:  # without boxes the total is 0; a condition would make a graph for a number of boxes
        return total / max(count, 1)
    return total / avg_factor if avg_factor != 0 else total * 0
