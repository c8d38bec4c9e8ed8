"""Errors in units of 1.0's last place, or of the value's where that is more, and the most seen so far."""

import torch
from torch import Tensor

ALLOWED = 8

_largest: dict[tuple[str, str, str], float] = {}  # by loss, engine or formula, dtype


def ulps(found: Tensor, exact: Tensor) -> Tensor:
    """How far the values are from the exact ones."""
    return (found.double() - exact).abs() / (torch.finfo(found.dtype).eps * exact.abs().clamp(min=1))


def assert_within(found: Tensor, exact: Tensor, name: str, way: str, pairs: tuple[Tensor, Tensor]) -> None:
    """Keep the largest error, and say which pair it is where it is too much."""
    assert found.isfinite().all(), f"{name} is not finite for {pairs}"
    error = ulps(found, exact)
    key = name, way, str(found.dtype).removeprefix("torch.")
    worst = int(error.argmax())
    _largest[key] = max(_largest.get(key, 0.0), error[worst].item())
    shown = [boxes[worst].tolist() for boxes in pairs]
    assert error[worst] <= ALLOWED, f"{shown}: {found[worst].item()!r}, not {exact[worst].item()!r}"


def report(verbose: bool) -> list[str]:
    """The largest error of each dtype, and of each loss where more is asked for."""
    rows = sorted(((error, *key) for key, error in _largest.items()), reverse=True)
    if not verbose:
        rows = [next(row for row in rows if row[3] == dtype) for dtype in sorted({row[3] for row in rows})]
    return [f"{dtype} {error:5.2f}  {name} ({way})" for error, name, way, dtype in rows]
