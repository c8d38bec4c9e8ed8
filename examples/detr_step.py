"""Take training steps with a model of the DETR family of transformers and a box loss of this package.

    python examples/detr_step.py                          # a tiny RT-DETR with CIoU, a few seconds
    python examples/detr_step.py --model detr --loss giou

The models are small and start from random numbers, the data are digit scenes: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from digit_scenes import CANVAS, CLASSES, scene_loader
from torch import Tensor, nn
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
)

import iou_losses
from iou_losses.integrations.transformers import use_box_loss

# The models predict centre and size; the losses are told, so that nothing is rounded to corners.
LOSSES = {
    "iou": iou_losses.IoULoss(fmt="cxcywh"),
    "giou": iou_losses.GIoULoss(fmt="cxcywh"),
    "diou": iou_losses.DIoULoss(fmt="cxcywh"),
    "ciou": iou_losses.CIoULoss(fmt="cxcywh"),
}
STAGES = {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}
SIZES = {
    "d_model": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_layers": 2,
    "num_queries": 30,
    "num_labels": CLASSES,
}


def build_detr() -> nn.Module:
    """A small DETR."""
    backbone = ResNetConfig(**STAGES, out_features=["stage4"])
    return DetrForObjectDetection(DetrConfig(backbone_config=backbone, encoder_layers=1, auxiliary_loss=True, **SIZES))


def build_rt_detr() -> nn.Module:
    """A small RT-DETR."""
    return RTDetrForObjectDetection(
        RTDetrConfig(
            backbone_config=RTDetrResNetConfig(**STAGES, out_features=["stage2", "stage3", "stage4"]),
            encoder_hidden_dim=64,
            encoder_in_channels=[32, 32, 64],
            decoder_in_channels=[64, 64, 64],
            hidden_expansion=0.5,
            num_denoising=10,
            **SIZES,
        )
    )


MODELS = {"detr": build_detr, "rt_detr": build_rt_detr}


def labels_of(targets: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Boxes as the models take them: centre and size, in parts of the image."""
    return [
        {
            "class_labels": target["labels"],
            "boxes": torch.cat(
                [
                    (target["boxes"][:, :2] + target["boxes"][:, 2:]) / 2,
                    target["boxes"][:, 2:] - target["boxes"][:, :2],
                ],
                1,
            )
            / CANVAS,
        }
        for target in targets
    ]


def main() -> None:
    """Build, choose the loss, take the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="rt_detr", help="default: %(default)s")
    parser.add_argument("--loss", choices=LOSSES, default="ciou", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=21, help="of 8 scenes (default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = use_box_loss(MODELS[options.model](), LOSSES[options.loss]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step, (images, targets) in enumerate(scene_loader("train", options.steps * 8)):
        pixels = torch.stack(images).expand(-1, 3, -1, -1)
        output = model(pixel_values=pixels, labels=labels_of(targets))
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        if step % 5 == 0 or step == options.steps - 1:
            # The chosen loss keeps the name that the weights of the config go by.
            print(f"step {step:3}: total {output.loss.item():.4f}  box {output.loss_dict['loss_giou'].item():.4f}")


if __name__ == "__main__":
    main()
