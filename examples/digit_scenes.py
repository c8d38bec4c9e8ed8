"""A small, real detection data set that needs no download: scenes of handwritten digits with tight boxes.

The digits are the 1,797 scans that scikit-learn ships, 8 x 8 pixels each. A scene puts one to four of them on a canvas,
each stretched to its own size and aspect, with a box tight around its ink. The digits of the "train" scenes and of the
"test" scenes are disjoint. Scene `i` of a seed is always the same scene, so a run can be repeated and an epoch never
has to repeat an image.

    python examples/digit_scenes.py          # what a scene and its boxes look like, as text
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset

import iou_losses

CANVAS = 96  # side of a scene in pixels
CLASSES = 10
SIDES = (14.0, 44.0)  # geometric mean of a digit's height and width, in pixels
LOG_ASPECT = 0.5  # height / width of the stretched scan lies between exp(-0.5) and exp(0.5)
MAX_DIGITS = 4
MAX_OVERLAP = 0.05  # IoU of two boxes of a scene
INK = 0.25  # a pixel at least this dark belongs to the digit

Target = dict[str, Tensor]


@cache
def load_split(split: str) -> tuple[Tensor, Tensor]:
    """Scans (n, 8, 8) with ink 1 on paper 0, and their labels (n,). A quarter of every class is kept for "test"."""
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    scans, labels = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    chosen = torch.from_numpy(train if split == "train" else test)
    images = torch.from_numpy(scans).float().reshape(-1, 8, 8) / 16
    return images[chosen], torch.from_numpy(labels)[chosen]


class DigitScenes(Dataset[tuple[Tensor, Target]]):
    """`length` scenes: an image (1, 96, 96) in [0, 1], and {"boxes": (n, 4) xyxy in pixels, "labels": (n,)}."""

    def __init__(self, split: str, length: int, seed: int = 0) -> None:
        self.scans, self.classes = load_split(split)
        self.length = length
        self.seed = seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Target]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        rng = np.random.default_rng((self.seed, index))
        canvas = torch.zeros(1, CANVAS, CANVAS)
        boxes, labels = torch.zeros(0, 4), []
        for _ in range(rng.integers(1, MAX_DIGITS + 1)):
            digit = int(rng.integers(len(self.scans)))
            patch = stretched(self.scans[digit], rng)
            place = free_place(patch, boxes, rng)
            if place is None:
                continue
            (x, y), box = place
            window = canvas[0, y : y + patch.shape[0], x : x + patch.shape[1]]
            torch.maximum(window, patch, out=window)
            boxes = torch.cat([boxes, box])
            labels.append(self.classes[digit])
        return canvas, {"boxes": boxes, "labels": torch.stack(labels)}


def stretched(scan: Tensor, rng: np.random.Generator) -> Tensor:
    """The scan at a random size and aspect."""
    side = rng.uniform(*SIDES)
    stretch = np.exp(rng.uniform(-LOG_ASPECT, LOG_ASPECT) / 2)
    size = (round(side * stretch), round(side / stretch))
    return interpolate(scan[None, None], size, mode="bilinear", align_corners=False)[0, 0]


def ink_box(patch: Tensor) -> Tensor:
    """The tight box (1, 4) of what is dark in an image (h, w)."""
    rows, columns = (patch >= INK).nonzero().unbind(1)
    return torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])[None].float()


def free_place(patch: Tensor, boxes: Tensor, rng: np.random.Generator) -> tuple[tuple[int, int], Tensor] | None:
    """A corner (x, y) for the patch, and its box there, that leaves the other boxes free; None if none was found."""
    height, width = patch.shape
    box = ink_box(patch)
    for _ in range(10):
        x, y = (int(rng.integers(CANVAS - side + 1)) for side in (width, height))
        moved = box + torch.tensor([x, y, x, y])
        if len(boxes) == 0 or iou_losses.box_iou(moved, boxes).max() <= MAX_OVERLAP:
            return (x, y), moved
    return None


def collate(samples: list[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[Target]]:
    """What torchvision's detectors take: a list of images and a list of targets."""
    images, targets = zip(*samples, strict=True)
    return list(images), list(targets)


def scene_loader(split: str, scenes: int, seed: int = 0, batch_size: int = 8) -> DataLoader:
    """Batches of scenes in order; every scene is new, so there is nothing to shuffle."""
    return DataLoader(DigitScenes(split, scenes, seed), batch_size, collate_fn=collate)


def main() -> None:
    """Print one scene."""
    image, target = DigitScenes("train", 1)[0]
    for row in image[0, ::4, ::2]:
        print("".join(" .:-=+*#%@"[int(value * 9)] for value in row))
    for box, label in zip(target["boxes"].tolist(), target["labels"].tolist(), strict=True):
        print(f"a {label} at {box}")


if __name__ == "__main__":
    main()
