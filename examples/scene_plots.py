"""A picture of what a detector found: true and predicted boxes, and how well each prediction fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display needed

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor
from torchvision.ops import nms

import iou_losses

# Sky blue and vermilion of Okabe and Ito's palette, broad and narrow: told apart without colour vision, too.
TRUE = {"color": "#56B4E9", "linewidth": 4.0}
PREDICTED = {"color": "#D55E00", "linewidth": 1.4}
COLUMNS = 4


def draw_scenes(
    images: list[Tensor],
    targets: list[dict[str, Tensor]],
    predictions: list[dict[str, Tensor]],
    path: Path,
    title: str,
) -> None:
    """Save a grid of scenes, each predicted box with its class and the IoU to the true box it fits best."""
    rows = -(-len(images) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(3 * COLUMNS, 3 * rows + 0.8), squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    for axis, image, target, prediction in zip(axes.flat, images, targets, predictions, strict=False):
        axis.imshow(image[0].numpy(), cmap="gray_r", vmin=0, vmax=1.8, extent=(0, image.shape[2], image.shape[1], 0))
        draw_boxes(axis, target["boxes"], TRUE)
        boxes, labels = distinct(prediction)
        draw_boxes(axis, boxes, PREDICTED)
        best = iou_losses.box_iou(boxes, target["boxes"]).amax(1)
        for box, label, iou in zip(boxes.tolist(), labels.tolist(), best.tolist(), strict=True):
            write_at(axis, box, f"{label}: IoU {iou:.2f}", image.shape[2])
    legend = [Line2D([], [], label="true box", **TRUE), Line2D([], [], label="predicted box: class, IoU", **PREDICTED)]
    figure.legend(handles=legend, loc="lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def distinct(prediction: dict[str, Tensor], min_score: float = 0.3) -> tuple[Tensor, Tensor]:
    """Boxes and labels of the likely predictions, the likeliest class alone where several share a place."""
    keep = nms(prediction["boxes"], prediction["scores"], iou_threshold=0.5)
    keep = keep[prediction["scores"][keep] >= min_score]
    return prediction["boxes"][keep], prediction["labels"][keep]


def draw_boxes(axis: Axes, boxes: Tensor, style: dict[str, Any]) -> None:
    """Outline boxes (n, 4) xyxy."""
    for x1, y1, x2, y2 in boxes.tolist():
        axis.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, clip_on=False, **style))


def write_at(axis: Axes, box: list[float], text: str, width: int) -> None:
    """Write above a box, or below it where there is no room above, within the scene's width."""
    x1, y1, _, y2 = box
    above = y1 > 8
    axis.text(
        min(x1, width - 34),
        y1 - 1 if above else y2 + 1,
        text,
        fontsize=8,
        color=PREDICTED["color"],
        verticalalignment="bottom" if above else "top",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
    )
