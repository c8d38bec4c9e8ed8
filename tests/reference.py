"""The losses again, straight from their definitions, to hold the package against.

Nothing here comes from the package. A formula reads a `Two` and works on two kinds of numbers: float64 tensors, whose
gradients autograd gives, and fractions, whose values are exact, but for exponentials, roots and the like, which are
fractions that agree to as many digits as mpmath is set to. `sg` marks a factor that the gradient takes for a constant.
"""

import inspect
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


def square_if_point(w, h):
    point = (w == 0) & (h == 0)
    return where(point, 1, w), where(point, 1, h)


def fraction(number):
    """The fraction that mpmath's number is; 0 for one that is too small to write down."""
    number = mpmath.mpmathify(number)
    mantissa, exponent = number.man_exp  # of its magnitude
    return int(mpmath.sign(number)) * mantissa * Fraction(2) ** exponent if exponent > -10_000 else Fraction(0)


def transcendental(of_tensor, of_number):
    """A function of either kind of number."""

    def function(x):
        return of_tensor(x) if isinstance(x, Tensor) else fraction(of_number(mpmath.mpmathify(x)))

    return function


exp, log = transcendental(torch.exp, mpmath.exp), transcendental(torch.log, mpmath.log)


def power(base, exponent):
    """base^exponent for a base that is not negative; where the slope at 0 is infinite, it is 0."""
    if isinstance(base, Tensor):
        zero = base == 0
        return base**exponent if exponent >= 1 else where(zero, 0.0**exponent, where(zero, 1.0, base) ** exponent)
    if exponent == int(exponent):
        return base ** int(exponent)
    return fraction(mpmath.power(*map(mpmath.mpmathify, (base, exponent))))


def root(square):
    return power(square, 0.5)


def clamp(x, low, high):
    return x.clamp(low, high) if isinstance(x, Tensor) else min(max(x, Fraction(low)), Fraction(high))


def quotient(numerator, denominator, undefined=0):
    """The quotient, and `undefined` for 0/0."""
    if isinstance(denominator, Tensor):
        zero = denominator == 0
        return where(zero, undefined, numerator / where(zero, 1.0, denominator))
    return undefined if denominator == 0 else numerator / denominator


def turn(w, h, wg, hg):
    """atan(wg / hg) - atan(w / h), as the one angle between the two diagonals."""
    w, h = square_if_point(w, h)
    wg, hg = square_if_point(wg, hg)
    if isinstance(w, Tensor):
        w, h = w / maximum(w, h), h / maximum(w, h)
        wg, hg = wg / maximum(wg, hg), hg / maximum(wg, hg)
        return torch.atan2(wg * h - w * hg, wg * w + hg * h)
    return fraction(mpmath.atan2(*map(mpmath.mpmathify, (wg * h - w * hg, wg * w + hg * h))))


class Axis:
    """Two intervals, (x1, x2) of the prediction and (a1, a2) of the target, by their lengths.

    `lengths` holds each length that a program measures and rounds; `nudge`, if there is one, is the number of one of
    them and what it is multiplied by.
    """

    def __init__(self, x1, x2, a1, a2, nudge):
        self.lengths, self.by_target, self.nudge = [], [], nudge
        # The hull holds all four coordinates, of intervals that are inverted or not.
        start, end = minimum(minimum(x1, x2), minimum(a1, a2)), maximum(maximum(x1, x2), maximum(a1, a2))
        self.w, self.wg = self.measured(length(x2 - x1)), self.measured(length(a2 - a1))
        self.change, self.larger = self.measured(self.w - self.wg), self.measured(maximum(self.w, self.wg))
        self.low, self.high = self.measured(x1 - a1), self.measured(x2 - a2)
        self.offset = self.measured((self.low + self.high) / 2)
        self.hull = self.measured(end - start)
        # The inner edges, seen from the hull's start; between them lies the overlap, or the gap.
        self.first, self.last = self.measured(maximum(x1, a1) - start), self.measured(minimum(x2, a2) - start)
        self.signed = self.measured(minimum(x2, a2) - maximum(x1, a1))
        self.overlap = length(self.signed)
        self.wide = self.measured(a2 - a1)

    def measured(self, length):
        number, factor = self.nudge
        self.lengths.append(length * factor if number == len(self.lengths) else length)
        return self.lengths[-1]


class Two:
    """Prediction (x1, y1, x2, y2) and target (a1, b1, a2, b2), in the words of the papers."""

    def __init__(self, x1, y1, x2, y2, a1, b1, a2, b2, eps=0, nudge=(-1, 1)):
        self.eps, (number, factor) = eps, nudge
        self.x = x = Axis(x1, x2, a1, a2, nudge)
        self.y = y = Axis(y1, y2, b1, b2, (number - len(x.lengths), factor))
        self.w, self.h, self.wg, self.hg = x.w, y.w, x.wg, y.wg
        self.iw, self.ih, self.cw, self.ch, self.dx, self.dy = x.overlap, y.overlap, x.hull, y.hull, x.offset, y.offset
        self.intersection = self.iw * self.ih
        self.union = self.w * self.h + self.wg * self.hg - self.intersection
        self.hull = self.cw * self.ch
        same = (x1 == a1) & (y1 == b1) & (x2 == a2) & (y2 == b2)
        self.same = where(same, 1, self.iw * 0)
        self.iou = self.divide(self.intersection, self.union, self.same)
        self.areas, self.fading, self.angles = [self.intersection, self.union, self.hull], [], []

    def divide(self, numerator, denominator, undefined=0):
        """The quotient with `eps` in the denominator, be that an area, a length or a number."""
        return quotient(numerator, denominator + self.eps, undefined)

    def fade(self, factor):
        """Remember a factor of the gradient that may be too small for a dtype."""
        self.fading.append(factor)
        return factor

    def held(self, dtype):
        """Whether a dtype holds the areas, in units of the hull's longer side squared, and all that fades."""
        tiny = 4 * torch.finfo(dtype).tiny
        smallest = tiny * torch.maximum(self.cw, self.ch) ** 2
        held = [(area == 0) | (area >= smallest) for area in self.areas]
        held += [(factor == 0) | (factor >= tiny) for factor in self.fading]
        return torch.stack(held).all(0)


def iou(two, sg, mode="linear"):
    if mode == "log":
        return -log(where(two.iou < 1e-6, 1e-6, two.iou))
    return 1 - two.fade(two.iou**2) if mode == "square" else 1 - two.iou


def giou(two, sg):
    return 1 - two.iou + empty_share(two)


def empty_share(two):
    # (C - U) / C; written like this it keeps the digits of U where C is very much larger.
    return 1 - two.divide(two.union + two.eps, two.hull, 1)


def diou(two, sg):
    return 1 - two.iou + distance(two)


def distance(two):
    return two.divide(two.dx**2 + two.dy**2, two.cw**2 + two.ch**2)


def aspect(two):
    """CIoU's v, and its alpha before that is a constant."""
    pi = math.pi if isinstance(two.w, Tensor) else fraction(mpmath.pi)
    two.angles.append(turn(two.w, two.h, two.wg, two.hg))
    v = 4 / pi**2 * two.angles[-1] ** 2
    return v, two.divide(v, length(1 - two.iou) + v)


def ciou(two, sg, iou_threshold=0.0):
    v, alpha = aspect(two)
    return diou(two, sg) + sg(where(two.iou < iou_threshold, 0, alpha)) * v


def eiou(two, sg):
    # The lengths are divided before they are squared, so eps joins the lengths.
    sizes = two.divide(two.x.change, two.cw) ** 2 + two.divide(two.y.change, two.ch) ** 2
    return diou(two, sg) + sizes


def focal_eiou(two, sg, gamma=0.5):
    return sg(power(two.iou, gamma)) * eiou(two, sg)


def extended_iou(two, sg, smooth=0.1):
    (x1, x2), (y1, y2) = (two.x.first, two.x.last), (two.y.first, two.y.last)
    gap_x, gap_y = two.x.signed - two.iw, two.y.signed - two.ih  # 0 or negative, and 0 on both sides of a touch
    x_min, x_max, y_min, y_max = x1 + gap_x, x2 - gap_x, y1 + gap_y, y2 - gap_y
    intersection = x2 * y2 + x_min * y_min - x1 * y_max - x_max * y1
    union = two.w * two.h + two.wg * two.hg - intersection
    two.areas.append(abs(intersection))
    return smooth_l1(1 - two.divide(intersection, union, two.same), smooth)


def smooth_l1(x, beta):
    return where(x < beta, x**2 / (2 * beta), x - beta / 2)


def siou(two, sg, theta=4.0):
    sharpness = 2 - quotient(2 * abs(two.dx * two.dy), two.dx**2 + two.dy**2)  # 2 - sin(2a)
    shares = two.divide(two.dx, two.cw) ** 2, two.divide(two.dy, two.ch) ** 2
    distance = sum(1 - exp(-sharpness * share) for share in shares)
    return 1 - two.iou + (distance + shape(two, theta, 1, 1)) / 2


def shape(two, theta, by_w, by_h):
    """How the sides differ."""
    w = two.divide(abs(two.x.change), two.x.larger)
    h = two.divide(abs(two.y.change), two.y.larger)
    return (1 - exp(-by_w * w)) ** theta + (1 - exp(-by_h * h)) ** theta


def alpha_iou(two, sg, alpha=3.0, base="iou"):
    penalties = []
    if base == "giou":
        penalties = [empty_share(two)]
    if base in ("diou", "ciou"):
        penalties = [distance(two)]
    if base == "ciou":
        v, constant = aspect(two)
        penalties.append(sg(constant) * v)
    return 1 - two.fade(power(two.iou, alpha)) + sum(two.fade(power(two.fade(p), alpha)) for p in penalties)


def wiou(two, sg, version=1, mean=1.0, gamma=0.5, alpha=1.9, delta=3.0):
    loss = exp(two.divide(two.dx**2 + two.dy**2, sg(two.cw**2 + two.ch**2))) * (1 - two.iou)
    degree = length(1 - two.iou) / mean
    if version == 2:
        return sg(power(degree, gamma)) * loss
    if version == 3:
        return sg(degree / delta * exp((delta - degree) * log(alpha + 0 * degree))) * loss
    return loss


def mpdiou(two, sg, image_size):
    distances = two.x.low**2 + two.y.low**2 + two.x.high**2 + two.y.high**2
    return 1 - two.iou + distances / (image_size[0] ** 2 + image_size[1] ** 2)


def shape_iou(two, sg, scale=0.0):
    w, h = power(two.wg, scale), power(two.hg, scale)
    ww, hh = quotient(2 * w, w + h, 1), quotient(2 * h, w + h, 1)  # a point has no shape
    distance = two.divide(hh * two.dx**2 + ww * two.dy**2, two.cw**2 + two.ch**2)
    return 1 - two.iou + distance + shape(two, 4, hh, ww) / 2


def piou(two, sg, version=1, lambda_=1.3):
    along_x = two.divide(abs(two.x.low) + abs(two.x.high), two.wg)
    along_y = two.divide(abs(two.y.low) + abs(two.y.high), two.hg)
    p = (along_x + along_y) / 4
    loss = 1 - two.iou + 1 - two.fade(exp(-(p**2)))
    x = lambda_ * two.fade(exp(-p))
    return loss if version == 1 else 3 * x * exp(-(x**2)) * loss


def nwd(two, sg, constant=12.8):
    square = two.dx**2 + two.dy**2 + (two.x.change**2 + two.y.change**2) / 4
    return 1 - two.fade(exp(-root(square) / constant))


def sca(two, sg, distance_weight=1.0):
    overlaps = two.divide(two.x.signed, two.cw, 1) + two.divide(two.y.signed, two.ch, 1)
    distances = root(two.x.low**2 + two.y.low**2) + root(two.x.high**2 + two.y.high**2)
    return 2 - overlaps + distance_weight * two.divide(distances, root(two.cw**2 + two.ch**2))


def bounded_iou(two, sg, beta=0.2, factor=2.0):
    def cost(axis):
        reach = factor * abs(axis.offset)
        # 1 - max(0, (wg - reach) / (wg + reach)) and 1 - min(w / wg, wg / w)
        place = two.divide(minimum(2 * reach, axis.wg + reach), axis.wg + reach)
        return smooth_l1(place, beta) + smooth_l1(two.divide(abs(axis.change), axis.larger), beta)

    return cost(two.x) + cost(two.y)


def interp_iou(two, sg, coefficient=0.98):
    if coefficient == "dynamic":
        coefficient = sg(clamp(1 - two.iou, 0.6, 0.99))
    (w, iw), (h, ih) = interpolated(two.x, 1 - coefficient), interpolated(two.y, 1 - coefficient)
    intersection = iw * ih
    union = w * h + two.wg * two.hg - intersection
    two.areas += [intersection, union]
    return 1 - two.iou + 1 - two.divide(intersection, union, two.same)


def interpolated(axis, rest):
    """The prediction's side and the overlap when the prediction has this share of its way to the target left."""
    low, high = rest * axis.low, rest * axis.high  # not by corners, which nearly meet the target's
    wide, overlap = 1 * axis.wide, 1 * axis.wide
    axis.by_target += [wide, overlap]
    return length(wide + high - low), length(overlap + minimum(high, 0 * high) - maximum(low, 0 * low))


def gcd(two, sg):
    square = 0
    for axis in (two.x, two.y):
        for side in (axis.w, axis.wg):
            square = square + two.divide(axis.offset, side) ** 2 + two.divide(axis.change / 2, side) ** 2
    return 1 - two.fade(exp(-root(square / 2)))


def exact(formula: Formula, pred: list[float], target: list[float], eps: float = 0.0, **hyper: Any) -> Fraction:
    """The loss of one pair."""
    two = Two(*(Fraction(number) for number in (*pred, *target, eps)))
    return formula(two, lambda factor: factor, **fractions(formula, hyper))


def fractions(formula: Formula, hyper: dict[str, Any]) -> dict[str, Any]:
    """The formula's hyper-parameters, those given and its own, as exact numbers."""
    own = {name: p.default for name, p in inspect.signature(formula).parameters.items() if p.default is not p.empty}
    return {name: Fraction(value) if isinstance(value, float) else value for name, value in (own | hyper).items()}


def slopes(formula: Formula, pred: list[float], target: list[float], **hyper: Any) -> list[float]:
    """The gradient of one pair by the prediction, from differences of exact values.

    The constants of the gradient are those of the pair itself. The steps are so small, and the arithmetic so wide,
    that no digit is lost; a kink gives the average of its two sides.
    """
    place, step, constants = [Fraction(number) for number in (*pred, *target)], Fraction(1, 10**60), []
    hyper = fractions(formula, hyper)

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
    terms: Tensor  # of the shape of both gradients: the largest of the terms that they are the sums of
    two: Two


def truth(formula: Formula, pred: Tensor, target: Tensor, nudge: Any = (-1, 1), **hyper: Any) -> Truth:
    """The losses of boxes (N, 4) in float64 and their gradients."""
    boxes = [boxes.detach().double().requires_grad_() for boxes in (pred, target)]
    two = Two(*boxes[0].unbind(-1), *boxes[1].unbind(-1), nudge=nudge)
    value = formula(two, Tensor.detach, **hyper)
    return Truth(value.detach(), *_gradient(value, boxes), _terms(value, two), two)


def _terms(value: Tensor, two: Two) -> Tensor:
    """The largest of what lengths and angles add to the slopes, by each of the coordinates of both boxes."""

    def of(axis: Axis, diagonal: Tensor, lengths: list[Tensor]) -> Tensor:
        angles = [slope / diagonal.clamp(min=1e-300) for slope in _gradient(value, two.angles)] if two.angles else []
        return torch.stack([*_gradient(value, lengths), *angles]).abs().amax(0)

    sides, sides_g = torch.maximum(two.w, two.h), torch.maximum(two.wg, two.hg)
    pred = [of(axis, sides, axis.lengths) for axis in (two.x, two.y)]
    target = [of(axis, sides_g, axis.lengths + axis.by_target) for axis in (two.x, two.y)]
    return torch.stack([torch.stack(terms * 2, -1) for terms in (pred, target)]).detach()


def _gradient(value: Tensor, by: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value.sum(), by, retain_graph=True, allow_unused=True, materialize_grads=True)


def rounding(formula: Formula, pred: Tensor, target: Tensor, dtype: torch.dtype, **hyper: Any) -> Tensor:
    """How far both gradients (2, N, 4) of the definition itself move when each length is off by a few roundings."""

    def gradients(*nudge: float) -> Tensor:
        return torch.stack(truth(formula, pred, target, nudge, **hyper)[1:3])

    def move(number: int) -> Tensor:
        return torch.maximum(*((gradients(number, 1 + s) - still).abs() for s in (step, -step)))

    step, still = 4 * torch.finfo(dtype).eps, gradients(-1, 1)
    return torch.stack([move(number) for number in range(2 * LENGTHS)]).sum(0)


LENGTHS = len(Axis(0, 1, 0, 1, (-1, 1)).lengths)
