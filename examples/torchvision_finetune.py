"""Fine-tune a torchvision detector with a box loss of this package: a plain loop, one line for the loss.

    python examples/torchvision_finetune.py                           # SSDLite with CIoU, under a minute
    python examples/torchvision_finetune.py --model fcos_resnet50_fpn --loss giou
    python examples/torchvision_finetune.py --weights my_weights.pth  # start from a state_dict of yours

The data are digit scenes, nothing is downloaded. Without `--weights` the model starts from random numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from digit_scenes import CLASSES, scene_loader
from torch import Tensor, nn
from torchvision.models import detection

import iou_losses
from iou_losses.integrations.torchvision import use_box_loss

LOSSES = {
    "iou": iou_losses.IoULoss(),
    "giou": iou_losses.GIoULoss(),
    "diou": iou_losses.DIoULoss(),
    "ciou": iou_losses.CIoULoss(),
}
MODELS = (
    "ssdlite320_mobilenet_v3_large",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fcos_resnet50_fpn",
    "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
)


def build_model(name: str, weights: Path | None) -> nn.Module:
    """A model for ten digits and background, from a state_dict where one is given."""
    sides = {} if name.startswith("ssd") else {"min_size": 128, "max_size": 128}
    model: nn.Module = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=CLASSES + 1, **sides)
    if weights is not None:
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model


def batches(steps: int) -> Iterator[tuple[list[Tensor], list[dict[str, Tensor]]]]:
    """Batches of scenes in colour, with class 0 left for the background."""
    for images, targets in scene_loader("train", steps * 8):
        yield (
            [image.expand(3, -1, -1) for image in images],
            [{"boxes": target["boxes"], "labels": target["labels"] + 1} for target in targets],
        )


def train(model: nn.Module, steps: int) -> None:
    """Take the steps and print the terms of some of them."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    model.train()
    for step, (images, targets) in enumerate(batches(steps)):
        losses = model(images, targets)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        if step % 5 == 0 or step == steps - 1:
            print(f"step {step:3}: ", *(f"{name} {loss.item():.4f}" for name, loss in losses.items()), flush=True)


def main() -> None:
    """Build, choose the loss, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help="default: %(default)s")
    parser.add_argument("--loss", choices=LOSSES, default="ciou", help="default: %(default)s")
    parser.add_argument("--weights", type=Path, help="a state_dict to start from")
    parser.add_argument("--steps", type=int, default=21, help="of 8 scenes (default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = use_box_loss(build_model(options.model, options.weights), LOSSES[options.loss])
    train(model, options.steps)


if __name__ == "__main__":
    main()
