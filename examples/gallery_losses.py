"""The picture of each loss, for its page: where it takes a box, and what it costs a box that slides past its target."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gallery_boxes import FOUR, MOVING, SQUARE, box, draw_field, slid
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from picture_style import WIDTH, Theme, outline, plt
from regression_simulation import Loss
from torch import Tensor

from iou_losses import (
    AlphaIoULoss,
    BoundedIoULoss,
    BoxLoss,
    CIoULoss,
    DIoULoss,
    EIoULoss,
    ExtendedIoULoss,
    FocalEIoULoss,
    FocalerIoULoss,
    GCDLoss,
    GIoULoss,
    InnerIoULoss,
    InterpIoULoss,
    IoULoss,
    MPDIoULoss,
    NWDLoss,
    PIoULoss,
    SCALoss,
    ShapeIoULoss,
    SIoULoss,
    UnifiedIoULoss,
    WIoULoss,
)

PAGE_BUDGET = 40_000  # bytes of a picture: there are forty of them
TOP, FAR = 4.0, 3.0  # where the curves end; the logarithm of the IoU goes on to 13.8


def unified(progress: float) -> UnifiedIoULoss:
    """Return Unified-IoU at some time of a training."""
    loss = UnifiedIoULoss(CIoULoss())
    loss.progress = progress
    return loss


# What is drawn for docs/losses/PAGE.md, each with its title. Lengths are in sides of the square target.
PAGES: dict[str, dict[str, BoxLoss]] = {
    "iou": {"linear": IoULoss(), "square": IoULoss(mode="square"), "log": IoULoss(mode="log")},
    "giou": {"GIoU": GIoULoss()},
    "diou": {"DIoU": DIoULoss()},
    "ciou": {"CIoU": CIoULoss(), "CIoU, threshold 0.5": CIoULoss(iou_threshold=0.5)},
    "eiou": {"EIoU": EIoULoss(), "Focal-EIoU": FocalEIoULoss()},
    "extended_iou": {"Extended IoU": ExtendedIoULoss()},
    "siou": {"SIoU": SIoULoss()},
    "alpha_iou": {
        "IoU, alpha 3": AlphaIoULoss(),
        "CIoU, alpha 3": AlphaIoULoss(base="ciou"),
        "CIoU, alpha 0.5": AlphaIoULoss(base="ciou", alpha=0.5),
    },
    "wiou": {"WIoU, version 1": WIoULoss(), "version 3": WIoULoss(version=3)},
    "mpdiou": {"MPDIoU, image of side 6": MPDIoULoss(image_size=(6, 6)), "of side 20": MPDIoULoss(image_size=(20, 20))},
    "shape_iou": {"Shape-IoU, scale 0": ShapeIoULoss(), "scale 1": ShapeIoULoss(scale=1.0)},
    "piou": {"PIoU, version 1": PIoULoss(), "version 2": PIoULoss(version=2)},
    "nwd": {"NWD, K = 1": NWDLoss(constant=1.0), "K = 0.3": NWDLoss(constant=0.3)},
    "gcd": {"GCD": GCDLoss()},
    "sca": {"SCA": SCALoss()},
    "bounded_iou": {"Bounded IoU": BoundedIoULoss()},
    "interp_iou": {"InterpIoU": InterpIoULoss(), "dynamic": InterpIoULoss(coefficient="dynamic")},
    "inner_iou": {"IoU, ratio 0.7": InnerIoULoss(IoULoss(), 0.7), "IoU, ratio 1.5": InnerIoULoss(IoULoss(), 1.5)},
    "focaler_iou": {
        "IoU, 0 to 0.95": FocalerIoULoss(IoULoss()),
        "IoU, 0.2 to 0.5": FocalerIoULoss(IoULoss(), 0.2, 0.5),
    },
    "unified_iou": {"CIoU, ratio 2": unified(0.0), "ratio 0.5": unified(1.0)},
}
# Targets of the same area and another shape, where a loss looks at that.
TARGETS = {"ciou": box(-0.25, -1.0, 0.25, 1.0), "shape_iou": box(-1.0, -0.25, 1.0, 0.25)}


def per_box(loss: BoxLoss) -> Loss:
    """Return the loss as a function of boxes; a running mean stays where it is."""
    return partial(loss.eval(), reduction_override="none")


def loss_page(page: str, theme: Theme) -> Figure:
    """Draw the losses of a page: a field of each, and their curves."""
    losses = {title: per_box(loss) for title, loss in PAGES[page].items()}
    target = TARGETS.get(page, SQUARE)
    looks = [theme.line(like) for like in sorted(FOUR, key=lambda like: like != page)]  # a loss of the four has its own
    widths = [1.0] * len(losses) + [1.4]
    figure, axes = plt.subplots(1, len(widths), figsize=(WIDTH, 2.9), width_ratios=widths, layout="constrained")
    for axis, (title, loss) in zip(axes, losses.items(), strict=False):
        draw_field(axis, loss, target)
        outline(axis, MOVING[0].tolist(), "white", linestyle=":")
        axis.set_title(title)
    axes[0].set_xlabel("loss by the dotted box's\ncentre (bright is low),\narrows against its gradient", fontsize=9)
    draw_passing(axes[-1], losses, target, looks, theme)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=len(widths))
    return figure


def draw_passing(
    axis: Axes, losses: dict[str, Loss], target: Tensor, looks: list[dict[str, Any]], theme: Theme
) -> None:
    """Draw what losses cost the box as it slides past the target, along x, and what IoU costs it."""
    offsets = torch.linspace(-FAR, FAR, 241)
    boxes, targets = slid(MOVING, offsets), target.expand(len(offsets), 4)
    axis.plot(offsets, per_box(IoULoss())(boxes, targets), "-", color=theme.ink, alpha=0.35, linewidth=5, label="IoU")
    for (title, loss), look in zip(losses.items(), looks, strict=False):
        axis.plot(offsets, loss(boxes, targets), **look, label=title)
    axis.set(xlim=(-FAR, FAR), ylim=(0, min(TOP, axis.dataLim.y1 * 1.05)), xlabel="offset; the target's area is 1")
    axis.set_title("sliding past the target")
