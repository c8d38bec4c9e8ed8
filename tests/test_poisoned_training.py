"""A training with poisoned targets ends as without them by the recipe of docs/poisoned_data.md, and in NaN without."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from cases import every_case
from torch import nn

PAGE = (Path(__file__).parents[1] / "docs" / "poisoned_data.md").read_text()
RECIPE = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
STEPS, IMAGES, SHARE = 40, 8, 0.01
INF, NAN = float("inf"), float("nan")


def by_the_recipe(criterion):
    names = {}
    exec(RECIPE, names)
    names["criterion"] = criterion
    return names["box_loss"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, inputs):
        centre, size = self.layers(inputs).chunk(2, -1)
        size = nn.functional.softplus(size)
        return torch.cat([centre - size, centre + size], -1)


def batches():
    """For each step the inputs and boxes of some images; some images, and every tenth step, have none."""
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        counts = torch.randint(0, 10, (IMAGES,), generator=generator) * (step % 10 != 9)
        corner, size = torch.rand(2, int(counts.sum()), 2, generator=generator, dtype=torch.float64)
        boxes = torch.cat([corner, corner + size + 0.1], -1)
        yield boxes, boxes.clone()


def not_a_number(box):
    return box[0], box[1], NAN, box[3]


def infinite(box):
    return box[0], -INF, box[2], box[3]


def inverted(box):
    return box[2], box[1], box[0], box[3]


def collapsed(box):
    return box[0], box[1], box[0], box[3]


def poisoned(kinds):
    """The batches, with a box in a hundred poisoned by each kind in turn; and which boxes are not."""
    turns, count = itertools.cycle(kinds), 0
    for inputs, boxes in batches():
        sound = torch.ones(len(boxes), dtype=torch.bool)
        for i in range(len(boxes)):
            count += 1
            if count * SHARE % 1 == 0:
                boxes[i] = torch.tensor(next(turns)(boxes[i].tolist()), dtype=boxes.dtype)
                sound[i] = False
        yield inputs, boxes, sound


def trained(loss, steps):
    """The weights after a training from the same start, in one row."""
    torch.manual_seed(0)
    model = Model().double()
    for inputs, boxes in steps:
        gradients = torch.autograd.grad(loss(model(inputs), boxes), tuple(model.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= 0.01 * gradient
    return nn.utils.parameters_to_vector(model.parameters()).detach()


EVERY_KIND = (not_a_number, infinite, inverted, collapsed)


def test_the_training_meets_every_kind_of_poison():
    sound = torch.cat([sound for _, _, sound in poisoned(EVERY_KIND)])
    assert (~sound).sum() >= 3 * len(EVERY_KIND)
    assert (~sound).double().mean() == pytest.approx(SHARE, rel=0.1)
    assert any(len(boxes) == 0 for _, boxes in batches())


@every_case
def test_by_the_recipe_the_weights_are_those_of_the_sound_boxes(case):
    steps = list(poisoned(EVERY_KIND))
    found = trained(by_the_recipe(case.build()), [(inputs, boxes) for inputs, boxes, _ in steps])
    expected = trained(case.build(), [(inputs[sound], boxes[sound]) for inputs, boxes, sound in steps])
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert not torch.equal(found, trained(case.build(), []))


@every_case
def test_without_the_recipe_the_weights_are_lost(case):
    weights = trained(case.build(), [step[:2] for step in poisoned(EVERY_KIND)])
    assert weights.isnan().all()


@every_case
def test_inverted_collapsed_and_no_boxes_need_no_recipe(case):
    weights = trained(case.build(), [step[:2] for step in poisoned([inverted, collapsed])])
    assert weights.isfinite().all()
