"""Assertions that several tests share."""

from collections.abc import Callable

import torch
from torch import Tensor


def assert_rows(right: Tensor, found: Tensor, expected: Tensor, pairs: tuple) -> None:
    """Say which rows are not right, of which kinds of boxes, and show a few."""
    pred, target, kinds = pairs
    rows = (~right).nonzero().flatten().tolist()
    names = [kinds[row] for row in rows]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    shown = rows[:: len(rows) // 5 + 1]
    lines = [
        f"{pred[i].tolist()}, {target[i].tolist()}: {found[i].tolist()}, not {expected[i].tolist()}" for i in shown
    ]
    assert not rows, "\n".join([f"{len(rows)} of {len(right)} rows are wrong: {counts}", *lines])


def assert_gradients(
    found: Tensor,
    expected: Tensor,
    pairs: tuple,
    relative: float = 1e-4,
    floor: Tensor | float = 0.0,
    rows: Tensor | None = None,
    rounding: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> None:
    """Each number is right to `relative` of its row's largest, plus `floor`; of all rows or the given ones.

    Where that does not hold, `rounding` says for those predictions and targets how much more a definition needs that
    multiplies roundings.
    """
    error, allowed = (found - expected).abs(), relative * expected.abs().amax(-1, keepdim=True) + floor
    right = (error <= allowed).all(-1)
    right = right if rows is None else right | ~rows
    if rounding is not None and not right.all():
        wrong = ~right
        more = rounding(pairs[0][wrong], pairs[1][wrong])
        right[wrong] = (error[wrong] <= allowed[wrong] + more).all(-1)
    assert_rows(right, found, expected, pairs)


def rounding_floor(terms: Tensor, dtype: torch.dtype, roundings: int = 8) -> Tensor:
    """What adding up the terms of a gradient costs in a dtype, where they all but cancel."""
    limits = torch.finfo(dtype)
    return roundings * limits.eps / 2 * terms + limits.tiny
