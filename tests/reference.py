"""The losses again, straight from their definitions, to hold the package against.

Nothing here comes from the package. A formula reads a `Two` and works on two kinds of numbers: float64 tensors, whose
gradients autograd gives, and fractions, whose values are exact, but for arctangents and the like, which are fractions
that agree to as many digits as mpmath is set to. `sg` marks a factor that the gradient takes for a constant.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import torch
from torch import Tensor

mpmath.mp.dps = 60

Formula = Callable[..., Any]  # formula(two, sg, **hyper)


def minimum(a, b):
    return torch.minimum(a, b) if isinstance(a, Tensor) else min(a, b)


def maximum(a, b):
    return torch.maximum(a, b) if isinstance(a, Tensor) else max(a, b)


def where(condition, yes, no):
    if isinstance(condition, Tensor):
        return torch.where(condition, torch.as_tensor(yes, dtype=torch.float64), no)
    return yes if condition else no


def length(difference):
    """A negative length is 0; at 0 the slope is 1."""
    return where(difference < 0, 0.0, difference) if isinstance(difference, Tensor) else max(difference, 0)


def upright_if_point(w, h):
    point = (w == 0) & (h == 0)
    return where(point, 0, w), where(point, 1, h)


def fraction(number):
    """The fraction that mpmath's number is; 0 for one that is too small to write down."""
    mantissa, exponent = mpmath.mpmathify(number).man_exp
    return mantissa * Fraction(2) ** exponent if exponent > -10_000 else Fraction(0)


def turn(w, h, wg, hg):
    """atan(wg / hg) - atan(w / h), as the one angle between the two diagonals."""
    w, h = upright_if_point(w, h)
    wg, hg = upright_if_point(wg, hg)
    if isinstance(w, Tensor):
        w, h = w / maximum(w, h), h / maximum(w, h)
        wg, hg = wg / maximum(wg, hg), hg / maximum(wg, hg)
        return torch.atan2(wg * h - w * hg, wg * w + hg * h)
    return fraction(mpmath.atan2(*map(mpmath.mpmathify, (wg * h - w * hg, wg * w + hg * h))))


class Two:
    """Prediction (x1, y1, x2, y2) and target (a1, b1, a2, b2), in the words of the papers."""

    def __init__(self, x1, y1, x2, y2, a1, b1, a2, b2, eps=0):
        self.eps = eps
        self.w, self.h, self.wg, self.hg = length(x2 - x1), length(y2 - y1), length(a2 - a1), length(b2 - b1)
        self.iw = length(minimum(x2, a2) - maximum(x1, a1))
        self.ih = length(minimum(y2, b2) - maximum(y1, b1))
        # The hull holds all four corners of both boxes, inverted or not.
        self.cw = maximum(maximum(x1, x2), maximum(a1, a2)) - minimum(minimum(x1, x2), minimum(a1, a2))
        self.ch = maximum(maximum(y1, y2), maximum(b1, b2)) - minimum(minimum(y1, y2), minimum(b1, b2))
        self.dx, self.dy = ((x1 - a1) + (x2 - a2)) / 2, ((y1 - b1) + (y2 - b2)) / 2
        self.intersection = self.iw * self.ih
        self.union = self.w * self.h + self.wg * self.hg - self.intersection
        self.hull = self.cw * self.ch
        same = (x1 == a1) & (y1 == b1) & (x2 == a2) & (y2 == b2)
        self.iou = self.divide(self.intersection, self.union, where(same, 1, self.iw * 0))

    def divide(self, numerator, denominator, undefined=0):
        """The quotient with `eps` in the denominator, and `undefined` for 0/0."""
        denominator = denominator + self.eps
        if isinstance(denominator, Tensor):
            zero = denominator == 0
            return where(zero, undefined, numerator / where(zero, 1.0, denominator))
        return undefined if denominator == 0 else numerator / denominator


def iou(two, sg):
    return 1 - two.iou


def giou(two, sg):
    # 1 - IoU + (C - U) / C; written like this it keeps the digits of U where C is very much larger.
    return 1 - two.iou + (1 - two.divide(two.union + two.eps, two.hull, 1))


def diou(two, sg):
    return 1 - two.iou + two.divide(two.dx**2 + two.dy**2, two.cw**2 + two.ch**2)


def ciou(two, sg, iou_threshold=0.0):
    pi = math.pi if isinstance(two.w, Tensor) else fraction(mpmath.pi)
    v = 4 / pi**2 * turn(two.w, two.h, two.wg, two.hg) ** 2
    alpha = where(two.iou < iou_threshold, 0, two.divide(v, (1 - two.iou) + v))
    return diou(two, sg) + sg(alpha) * v


def exact(formula: Formula, pred: list[float], target: list[float], eps: float = 0.0, **hyper: Any) -> Fraction:
    """The loss of one pair."""
    return formula(Two(*(Fraction(number) for number in (*pred, *target, eps))), lambda factor: factor, **hyper)


def slopes(formula: Formula, pred: list[float], target: list[float], **hyper: Any) -> list[float]:
    """The gradient of one pair by the prediction, from differences of exact values.

    The constants of the gradient are those of the pair itself. The steps are so small, and the arithmetic so wide,
    that no digit is lost; a kink gives the average of its two sides.
    """
    place, step, constants = [Fraction(number) for number in (*pred, *target)], Fraction(1, 10**60), []

    def at(i: int, offset: Fraction) -> Fraction:
        moved, known = [number + offset * (j == i) for j, number in enumerate(place)], iter(constants)
        return formula(Two(*moved), lambda factor: next(known), **hyper)

    with mpmath.workdps(200):
        formula(Two(*place), lambda factor: constants.append(factor) or factor, **hyper)
        return [float((at(i, step) - at(i, -step)) / (2 * step)) for i in range(4)]


class Truth(NamedTuple):
    value: Tensor
    by_pred: Tensor
    by_target: Tensor
    terms: Tensor  # of the shape of the gradients: the largest of the terms that a gradient is the sum of
    two: Two


def truth(formula: Formula, pred: Tensor, target: Tensor, **hyper: Any) -> Truth:
    """The losses of boxes (N, 4) in float64 and their gradients."""
    boxes = [boxes.detach().double().requires_grad_() for boxes in (pred, target)]
    two = Two(*boxes[0].unbind(-1), *boxes[1].unbind(-1))
    value = formula(two, Tensor.detach, **hyper)
    # A coordinate moves its own box's side, the overlap, the hull and the offset: one term each.
    along_x, along_y = (two.w, two.wg, two.iw, two.cw, two.dx), (two.h, two.hg, two.ih, two.ch, two.dy)
    terms = [
        torch.stack([term.abs() for term in _gradient(value, lengths) if term is not None]).amax(0)
        for lengths in (along_x, along_y)
    ]
    return Truth(value.detach(), *_gradient(value, boxes), torch.stack(terms * 2, -1), two)


def _gradient(value: Tensor, by: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value.sum(), by, retain_graph=True, allow_unused=True)
