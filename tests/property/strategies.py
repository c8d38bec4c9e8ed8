"""Pairs of boxes for Hypothesis: intervals of every relation in x and in y, of every size.

A pair is drawn as two intervals along x and two along y, each of four numbers in ascending order, of which a relation
says which are whose. So each of the relations is exact, however large, small or ragged the numbers are, and a failing
batch shrinks to one pair of small numbers.
"""

import itertools
from typing import Any

import torch
from hypothesis import strategies as st

Interval = tuple[float, float]
# Which of four ascending numbers bound the prediction and which the target.
RELATIONS = {
    "apart": ((0, 1), (2, 3)),
    "overlapping": ((0, 2), (1, 3)),
    "inside": ((1, 2), (0, 3)),
    "touching": ((0, 1), (1, 2)),
    "one low edge": ((0, 1), (0, 2)),
    "one high edge": ((0, 2), (1, 2)),
    "identical": ((0, 1), (0, 1)),
    "collapsed inside": ((1, 1), (0, 2)),
    "collapsed on the edge": ((0, 0), (0, 1)),
    "collapsed outside": ((0, 0), (1, 2)),
    "both collapsed": ((0, 0), (1, 1)),
    "both collapsed to one": ((0, 0), (0, 0)),
    "inverted across": ((2, 0), (1, 3)),
    "inverted outside": ((1, 0), (2, 3)),
    "both inverted": ((3, 1), (2, 0)),
    "inverted and identical": ((1, 0), (1, 0)),
}
PROPER = tuple(itertools.islice(RELATIONS, 7))  # two intervals, each with a length
ORDERED = tuple(name for name in RELATIONS if "inverted" not in name)
# Binary orders of a unit along x and y: ordinary, thin or low, tiny, huge.
UNITS = ((0, 0), (-3, -3), (-20, 0), (0, -20), (-100, -100), (70, 70))
COARSE, RAGGED = 6, 21  # bits of a number: few, so that moves and conversions are exact; as many as float32 has


@st.composite
def on_a_grid(draw: Any, bits: int) -> list[float]:
    """Four different numbers in ascending order, whose sums and differences float32 holds."""
    gap = st.integers(1, 2**bits)
    start = draw(st.integers(-(2**bits), 2**bits))
    return list(itertools.accumulate([draw(gap), draw(gap), draw(gap)], initial=start))


def of_any_size(low: int, high: int) -> Any:
    """Four numbers in ascending order that are 0 or of a binary order in the range; nearly all differences round."""
    number = st.floats(-(2.0**high), 2.0**high, width=32).map(lambda x: x if abs(x) >= 2.0**low else 0.0)
    return st.lists(number, min_size=4, max_size=4).map(sorted)


@st.composite
def intervals(draw: Any, numbers: Any, relations: Any) -> tuple[Interval, Interval]:
    places = draw(numbers)
    first, second = ((places[low], places[high]) for low, high in RELATIONS[draw(st.sampled_from(relations))])
    return (second, first) if draw(st.booleans()) else (first, second)


@st.composite
def pairs(draw: Any, numbers: Any, relations: Any = tuple(RELATIONS), units: Any = ((0, 0),)) -> list[float]:
    """The prediction's four numbers and the target's."""
    along = intervals(numbers, relations)
    (x, a), (y, b) = draw(along), draw(along)
    by_x, by_y = draw(st.sampled_from(units))
    corners = (x[0], y[0], x[1], y[1], a[0], b[0], a[1], b[1])
    return [corner * 2.0**unit for corner, unit in zip(corners, (by_x, by_y) * 4, strict=True)]


def rows_of(row: Any) -> Any:
    """Up to 24 rows (a list of a length of its own tends to be short), in float64 that float32 holds."""
    rows = st.integers(1, 24).flatmap(lambda n: st.lists(row, min_size=n, max_size=n))
    return rows.map(lambda numbers: torch.tensor(numbers, dtype=torch.float64))


def batches(pair: Any) -> Any:
    """Pairs as predictions and targets (n, 4)."""
    return rows_of(pair).map(lambda numbers: numbers.split(4, dim=1))


coarse = batches(pairs(on_a_grid(COARSE)))
ragged = batches(pairs(on_a_grid(RAGGED), units=UNITS))
# All for which the package promises finite values and gradients.
anything = st.one_of(coarse, ragged, batches(pairs(of_any_size(-100, 100))))
# Without those of which float32 cannot hold a side, it being below its smallest number in units of the hull's longer
# side: a difference of two numbers of at least 2^-40 is at least 2^-63, a hull at most 2^61.
held = st.one_of(coarse, ragged, batches(pairs(of_any_size(-40, 60))))
# The same of any two boxes of a batch.
held_across = st.one_of(
    coarse, batches(pairs(on_a_grid(RAGGED), units=UNITS[:4])), batches(pairs(of_any_size(-40, 60)))
)
proper = batches(pairs(on_a_grid(COARSE), PROPER))
ordered = batches(pairs(on_a_grid(COARSE), ORDERED))


@st.composite
def approaches(draw: Any) -> list[float]:
    """A target about the origin, and a box on a straight way out: at a nearer place and at a farther one."""
    side, step = st.integers(1, 64), st.integers(0, 64)
    w, h, wg, hg = (draw(side) for _ in range(4))
    towards_x, towards_y, near, further = draw(step), draw(step), draw(st.integers(0, 8)), draw(st.integers(1, 8))

    def box(time: int) -> list[int]:
        x, y = time * towards_x, time * towards_y
        return [x - w, y - h, x + w, y + h]

    return [*box(near), *box(near + further), -wg, -hg, wg, hg]


@st.composite
def growths(draw: Any) -> list[float]:
    """A target about the origin, and in its midst a box of its shape: a larger one and a smaller one."""
    w, h, larger = draw(st.integers(1, 64)), draw(st.integers(1, 64)), draw(st.integers(2, 16))
    smaller = draw(st.integers(1, larger - 1))
    return [side * factor for factor in (larger, smaller, 16) for side in (-w, -h, w, h)]


def three_boxes(of: Any) -> Any:
    """The better box, the worse one and the target, (n, 4) each."""
    return rows_of(of).map(lambda numbers: numbers.split(4, dim=1))
