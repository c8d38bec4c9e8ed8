"""Elementary functions of the formulas, each finite in value and slope where the textbook's is not."""

from __future__ import annotations

import torch
from torch import Tensor


def extent(difference: Tensor) -> Tensor:
    """Return a length: 0 for an inverted box, NaN for NaN, and slope 1 at 0, so that a line can grow."""
    return difference.masked_fill(difference < 0, 0)


def unit_scale(hull: Tensor) -> Tensor:
    """Return the power of two that brings the larger side of the hull to [0.5, 1)."""
    limits = torch.finfo(hull.dtype)
    side = hull.amax(-1, keepdim=True).clamp(limits.tiny, limits.max / 8)
    return torch.frexp(side).mantissa / side


def quotient(
    numerator: Tensor, denominator: Tensor, undefined: Tensor | float = 0, *, balanced: bool = False
) -> Tensor:
    """Divide truly, and give `undefined` with slope 0 where the denominator vanishes.

    That is where it is below the smallest normal number: 1/denormal overflows. The denominator
    is made safe before the division, so neither value nor gradient is ever 0/0. NaN stays NaN.
    `balanced` rounds the slopes of both alike, so that those of equal boxes cancel exactly.
    """
    vanishes = denominator < torch.finfo(denominator.dtype).tiny
    denominator = denominator.masked_fill(vanishes, 1)
    if balanced:
        value = denominator.detach()
        numerator, denominator = numerator / value, denominator / value  # over exactly 1
    fraction = numerator / denominator
    if isinstance(undefined, Tensor):
        return torch.where(vanishes, undefined, fraction)
    return fraction.masked_fill(vanishes, undefined)


def area(size: Tensor) -> Tensor:
    """Return x times y."""
    return size[..., 0] * size[..., 1]


def squared_length(vector: Tensor) -> Tensor:
    """Return x^2 + y^2."""
    return (vector * vector).sum(-1)


def angle(size: Tensor) -> Tensor:
    """Return atan(w / h), by shares of w + h: no square can underflow and h may be 0."""
    share = quotient(size[..., 0], size[..., 0] + size[..., 1])
    return torch.atan2(share, 1 - share)


def root(square: Tensor) -> Tensor:
    """Return the square root, with slope 0 at 0 in place of an infinite one."""
    vanishes = square < torch.finfo(square.dtype).tiny
    return square.masked_fill(vanishes, 1).sqrt().masked_fill(vanishes, 0)


def power(base: Tensor, exponent: float) -> Tensor:
    """Return base^exponent for base >= 0, with slope 0 at 0 where it would be infinite."""
    if exponent == 0 or exponent >= 1:
        return base.pow(exponent)
    vanishes = base <= 0
    return base.masked_fill(vanishes, 1).pow(exponent).masked_fill(vanishes, 0)


def saturation(x: Tensor) -> Tensor:
    """Return 1 - exp(-x)."""
    return 1 - torch.exp(-x)  # not expm1: its slope is taken from the result and loses the tail


def smooth_l1(x: Tensor, beta: float) -> Tensor:
    """Return the smooth L1 norm of x >= 0: a parabola below beta, a line above."""
    return torch.where(x < beta, x * x * (0.5 / beta), x - 0.5 * beta)
