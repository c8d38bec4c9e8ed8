"""Pairs of boxes of every awkward kind, for any test: `awkward_pairs(n)` gives predictions, targets and their kinds.

Each kind is a function of a number of pairs and a seeded generator, and gives float64 boxes that float32 holds
exactly.
"""

import torch


def uniform(generator, *shape, low=0.0, high=1.0):
    return (low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)).float().double()


def box(corner, size):
    return torch.cat([corner, corner + size], -1).float().double()


def chance(generator, *shape, p=0.5):
    return torch.rand(*shape, generator=generator) < p


def powers(generator, *shape, low=-60, high=60):
    """Sizes of any binary order from `low` to `high`."""
    return uniform(generator, *shape, low=1, high=2) * torch.exp2(
        torch.randint(low, high, shape, generator=generator).double()
    )


def ordinary(n, g):
    """Boxes in an image of 700 pixels, overlapping or not."""
    return [box(uniform(g, n, 2, high=400), uniform(g, n, 2, low=1, high=300)) for _ in range(2)]


def near(n, g):
    """Ordinary boxes that overlap well."""
    pred, _ = ordinary(n, g)
    size = (pred[:, 2:] - pred[:, :2]).repeat(1, 2)
    return pred, (pred + size * uniform(g, n, 4, low=-0.2, high=0.2)).float().double()


def inverted(n, g):
    """One axis or both, of one box or both."""
    boxes = torch.stack(ordinary(n, g)).reshape(2, n, 2, 2)
    flip = chance(g, 2, n, 1, 2)
    return tuple(torch.where(flip, boxes.flip(2), boxes).reshape(2, n, 4))


def collapsed(n, g):
    """To a line or a point, of one box or both, inside, outside or on the edge of its partner."""
    boxes = torch.stack(ordinary(n, g)).reshape(2, n, 2, 2)
    flat = chance(g, 2, n, 1, 2).expand(2, n, 2, 2)
    boxes = torch.where(flat, boxes[:, :, :1], boxes)
    return tuple(boxes.reshape(2, n, 4))


def identical(n, g):
    pred = box(uniform(g, n, 2, low=-100, high=100), powers(g, n, 2, low=-10, high=10))
    return pred, pred.clone()


def identical_any_size(n, g):
    size = powers(g, n, 2)
    pred = box(size.amin(-1, keepdim=True) * torch.randint(-1, 2, (n, 2), generator=g), size)
    return pred, pred.clone()


def nearly_identical(n, g):
    """Some of the four numbers are off by up to three steps of float32."""
    pred = box(uniform(g, n, 2, low=1, high=100), powers(g, n, 2, low=-5, high=10)).float()
    steps = torch.randint(-3, 4, (n, 4), generator=g, dtype=torch.int32)
    target = (pred.view(torch.int32) + steps).view(torch.float32)
    return pred.double(), target.double()


def thin(n, g):
    """A millionth as wide or as high or both, so far that some have no width left in float32."""
    pred, target = ordinary(n, g)
    size = lambda boxes: (boxes[:, 2:] - boxes[:, :2]) * torch.exp2(-20.0 * chance(g, n, 2))  # noqa: E731
    return box(pred[:, :2], size(pred)), box((pred + target)[:, :2] / 2, size(target))


def shared_edges(n, g):
    """Each of the four numbers is the target's with probability 1/2."""
    pred, target = near(n, g)
    return pred, torch.where(chance(g, n, 4), pred, target)


def touching(n, g):
    """The target begins where the prediction ends: in x, in y, in both, or in neither."""
    pred, target = ordinary(n, g)
    size = target[:, 2:] - target[:, :2]
    corner = torch.where(chance(g, n, 2), pred[:, 2:], target[:, :2])
    return pred, box(corner, size)


def nested(n, g):
    """One box inside the other, sometimes with the same centre."""
    pred, _ = ordinary(n, g)
    size = pred[:, 2:] - pred[:, :2]
    inner = box(pred[:, :2] + size * torch.where(chance(g, n, 1), 0.25, uniform(g, n, 2, high=0.5)), size / 2)
    swap = chance(g, n, 1)
    return torch.where(swap, inner, pred), torch.where(swap, pred, inner)


def crossing(n, g):
    """A wide box across a tall one."""
    corner = uniform(g, n, 2, high=10)
    wide = box(corner, torch.tensor([300.0, 1]) * uniform(g, n, 2, low=1, high=2))
    tall = box(corner + torch.tensor([100.0, -100]), torch.tensor([1.0, 300]) * uniform(g, n, 2, low=1, high=2))
    return wide, tall


def far_apart(n, g):
    """A thousand to a million sides apart in x, anywhere in y."""
    pred, target = ordinary(n, g)
    return pred, (target + powers(g, n, 1, low=10, high=20) * torch.tensor([1.0, 0, 1, 0]).double()).float().double()


def any_size(n, g):
    """Sides from 2^-60 to 2^60, mixed within a pair; beside each other, nested, touching or sharing corners."""
    sizes = powers(g, 2, n, 2)
    smallest = sizes.amin((0, 2), keepdim=True)[0]
    multiple = torch.randint(-3, 4, (2, n, 2), generator=g) * chance(g, 2, n, 2)
    return box(smallest * multiple[0], sizes[0]), box(smallest * multiple[1], sizes[1])


def any_size_apart(n, g):
    """Sides from 2^-60 to 2^60, mixed within a pair, on opposite sides of the origin in x, y or both."""
    sizes = powers(g, 2, n, 2)
    side = torch.where(chance(g, n, 2), -1.0, 0.0).double()
    return box(side * sizes[0], sizes[0]), box((-1 - side) * sizes[1], sizes[1])


KINDS = (
    ordinary,
    near,
    inverted,
    collapsed,
    identical,
    identical_any_size,
    nearly_identical,
    thin,
    shared_edges,
    touching,
    nested,
    crossing,
    far_apart,
    any_size,
    any_size_apart,
)


def awkward_pairs(n, seed=0, kinds=KINDS):
    """Predictions and targets (n, 4) in float32, and the name of each pair's kind."""
    generator = torch.Generator().manual_seed(seed)
    each = -(-n // len(kinds))
    pairs = [kind(each, generator) for kind in kinds]
    pred, target = (torch.cat(boxes)[:n].float() for boxes in zip(*pairs, strict=True))
    return pred, target, [kind.__name__ for kind in kinds for _ in range(each)][:n]
