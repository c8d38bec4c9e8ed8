"""Boxes: the formats users bring, and the geometry the formulas read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from iou_losses.elementary import extent, quotient, unit_scale

Corners = tuple[Tensor, Tensor]  # low (x1, y1) and high (x2, y2), each of shape (..., 2)

# The four numbers of a box, as two halves, to its corners.
FORMATS: dict[str, Callable[[Tensor, Tensor], Corners]] = {
    "xyxy": lambda low, high: (low, high),
    "xywh": lambda low, size: (low, low + size),
    "cxcywh": lambda centre, size: (centre - size / 2, centre + size / 2),
    "ltrb": lambda before, after: (-before, after),
    "xyxy_inclusive": lambda low, last: (low, last + 1),
}
SIZED = ("xywh", "cxcywh")  # a position and a size


def corners_of(boxes1: Tensor, boxes2: Tensor, fmt1: str, fmt2: str) -> tuple[Corners, Corners]:
    """Return the corners of two sets of boxes, each in its own format, from one common origin.

    A size that the user gave holds more digits than the difference of two corners far from the
    origin, so boxes that bring their sizes are moved beside the origin first.
    """
    first1, first2 = boxes1[..., :2], boxes2[..., :2]
    if fmt1 in SIZED and fmt2 in SIZED:
        origin = first2.detach()
        first1, first2 = first1 - origin, first2 - origin
    return FORMATS[fmt1](first1, boxes1[..., 2:]), FORMATS[fmt2](first2, boxes2[..., 2:])


class Pair:
    """Two boxes as a formula sees them: differences of coordinates, times one power of two.

    The power of two brings the larger side of the hull to [0.5, 1), so no product overflows or
    vanishes for the size of the boxes alone. Every quantity has x and y in its last axis. What
    only some losses read is a property, computed when they do.

    With `by_axis` x and y each have a power of two of their own, which areas and their ratios allow.
    """

    def __init__(self, box1: Corners, box2: Corners, eps: float = 0.0, *, by_axis: bool = False) -> None:
        self.box1, self.box2, self.eps = box1, box2, eps
        (low1, high1), (low2, high2) = box1, box2
        # Over all four corner values, so that an inverted box stays inside its hull.
        top = torch.maximum(torch.maximum(low1, high1), torch.maximum(low2, high2))
        bottom = torch.minimum(torch.minimum(low1, high1), torch.minimum(low2, high2))
        hull = top - bottom
        self.scale = unit_scale(hull.detach()) if by_axis else unit_scale(hull.detach().amax(-1, keepdim=True))
        self.hull = hull * self.scale
        self.size1 = extent(high1 - low1) * self.scale
        self.size2 = extent(high2 - low2) * self.scale
        self.overlap = extent(torch.minimum(high1, high2) - torch.maximum(low1, low2)) * self.scale

    @property
    def offset(self) -> Tensor:
        """From the second centre to the first; differences first: map coordinates keep their digits."""
        (low1, high1), (low2, high2) = self.box1, self.box2
        return ((low1 - low2) + (high1 - high2)) * (self.scale / 2)

    @property
    def corner_offsets(self) -> Corners:
        """From the corners of the second box to those of the first."""
        (low1, high1), (low2, high2) = self.box1, self.box2
        return (low1 - low2) * self.scale, (high1 - high2) * self.scale

    @property
    def signed_overlap(self) -> Tensor:
        """The overlap, negative where there is a gap."""
        (low1, high1), (low2, high2) = self.box1, self.box2
        return (torch.minimum(high1, high2) - torch.maximum(low1, low2)) * self.scale

    @property
    def change(self) -> Tensor:
        """From the second size to the first.

        By offsets of the corners where these are less than a size, so that nearly equal boxes keep
        their digits; an inverted box has no size.
        """
        low, high = self.corner_offsets
        near = low.abs() + high.abs() < torch.minimum(self.size1, self.size2)
        return torch.where(near, high - low, self.size1 - self.size2)

    @property
    def inner_edges(self) -> Tensor:
        """The sum of both inner edges, which bound the overlap or the gap, from the low corner of the hull."""
        (low1, high1), (low2, high2) = self.box1, self.box2
        bottom = torch.minimum(torch.minimum(low1, high1), torch.minimum(low2, high2))
        first, last = torch.maximum(low1, low2) - bottom, torch.minimum(high1, high2) - bottom
        return (first + last) * self.scale

    @property
    def by_axis(self) -> Pair:
        """The same boxes, x and y in units of their own."""
        return Pair(self.box1, self.box2, self.eps, by_axis=True)

    @property
    def same(self) -> Tensor:
        """Whether all coordinates are equal, inverted or not."""
        (low1, high1), (low2, high2) = self.box1, self.box2
        return ((low1 == low2) & (high1 == high2)).all(-1)

    def padded(self, measure: Tensor, units: int = 2) -> Tensor:
        """Return the measure and the user's `eps`, which is in the units of the boxes and is scaled like it.

        `units` is what it measures: 2 an area, 1 a length, 0 a pure number.
        """
        if not self.eps:
            return measure
        whole = measure.dim() == self.scale.dim()
        scale = self.scale if whole else self.scale[..., 0]
        eps: Tensor | float = self.eps
        for _ in range(units):
            eps = eps * scale
            scale = scale if whole else self.scale[..., -1]  # an area is one along x and one along y
        return measure + eps

    def ratio(self, numerator: Tensor, denominator: Tensor, units: int = 2, undefined: Tensor | float = 0) -> Tensor:
        """Return the `quotient`, with `eps` in the denominator."""
        denominator = self.padded(denominator, units)
        return quotient(numerator, denominator, undefined, balanced=numerator.requires_grad)
