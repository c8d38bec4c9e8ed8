"""Elementary functions of the formulas, each finite in value and slope where the textbook's is not."""

from __future__ import annotations

import torch
from torch import Tensor


def extent(difference: Tensor) -> Tensor:
    """Return a length: 0 for an inverted box, NaN for NaN, and slope 1 at 0, so that a line can grow."""
    return difference.masked_fill(difference < 0, 0)


def unit_scale(side: Tensor) -> Tensor:
    """Return the power of two that brings a side to [0.5, 1)."""
    limits = torch.finfo(side.dtype)
    side = side.clamp(limits.tiny, limits.max / 8)
    if not torch.compiler.is_compiling():
        return torch.frexp(side).mantissa / side
    # ONNX has no frexp. The gap below a number that fills all digits is a power of two; the products
    # are exact, so that it does not matter whether they are fused with the sums.
    side = side.clamp(max=limits.max * limits.eps / 8)
    filled = side + side / limits.eps
    below = filled - filled * (limits.eps / 2)
    return 0.5 / (filled - below)


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


def turn(size1: Tensor, size2: Tensor) -> Tensor:
    """Return atan(w2 / h2) - atan(w1 / h1), as the one angle between the two diagonals."""
    diagonal1, diagonal2 = diagonal(size1), diagonal(size2)
    crossed = diagonal1[..., 1] * diagonal2[..., 0] - diagonal1[..., 0] * diagonal2[..., 1]
    return torch.atan2(crossed, (diagonal1 * diagonal2).sum(-1))


def diagonal(size: Tensor) -> Tensor:
    """Return the size times a power of two, so that no product underflows; that of a square for a point."""
    side = size.detach().amax(-1, keepdim=True)
    return (size * unit_scale(side)).masked_fill(side < torch.finfo(size.dtype).tiny, 1)


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
