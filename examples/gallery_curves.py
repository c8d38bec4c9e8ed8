"""Pictures of what a loss costs: by pixels, by an epsilon, by a threshold."""

from __future__ import annotations

import torch
from gallery_boxes import box, slid
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from picture_style import WIDTH, Theme, label, outline, plane, plt
from torch import Tensor

import iou_losses

SIDES = (2, 8, 32, 128, 400)  # pixels
PIXEL = 1 / 1280  # of an image whose side is 1


def offsets(theme: Theme) -> Figure:
    """Draw the loss against the offset for pairs of equal boxes of many sizes."""
    moves = torch.logspace(-1, 3, 161)
    figure, axes = plt.subplots(1, 4, figsize=(WIDTH, 2.9), sharey=True, layout="constrained")
    for axis, name in zip(axes, ("iou", "giou", "diou", "nwd"), strict=True):
        loss = getattr(iou_losses, f"{name}_loss")
        for side, color in zip(SIDES, (*theme.losses.values(), theme.ink), strict=True):
            target = box(0.0, 0.0, side, side)
            values = loss(slid(target, moves), target.expand(len(moves), 4))
            axis.plot(moves, values, "-", color=color, linewidth=1.8, label=f"{side}")
        axis.set(title=label(name), xscale="log", xlim=(0.1, 1000), xlabel="offset, px")
    axes[0].set_ylabel("loss")
    figure.legend(
        *axes[0].get_legend_handles_labels(), title="side of both boxes, px", loc="outside lower center", ncols=5
    )
    return figure


def epsilon(theme: Theme) -> Figure:
    """Draw what an absolute epsilon does to small boxes: perfect pairs that cost, gradients that vanish."""
    sides = torch.logspace(-5, 0, 101, dtype=torch.float64)
    target = sides[:, None] * torch.tensor([0.0, 0.0, 1.0, 1.0])
    shifted = sides[:, None] * torch.tensor([0.1, 0.1, 1.1, 1.1])
    figure, (value, gradient) = plt.subplots(1, 2, figsize=(WIDTH, 3.3), layout="constrained")
    exact = gradient_length(shifted, target, 0.0)
    for eps, name, color in (
        (0.0, "eps = 0, the default here", theme.losses["giou"]),
        (1e-7, "eps = 1e-7, torchvision's", theme.losses["iou"]),
        (1e-6, "eps = 1e-6", theme.losses["ciou"]),
    ):
        look = {"color": color, "linestyle": "-" if eps == 0 else (0, (6, 2)) if eps == 1e-7 else ":", "label": name}
        value.plot(sides, iou_losses.iou_loss(target, target, eps=eps), **look)
        gradient.plot(sides, gradient_length(shifted, target, eps) / exact, **look)
    for axis, height in ((value, 0.85), (gradient, 0.15)):
        axis.set(xscale="log", xlim=(1e-5, 1), ylim=(-0.04, 1.08), xlabel="side of the box, of an image of side 1")
        axis.axvline(PIXEL, color=theme.ink, linewidth=0.8)
        axis.text(1.3 * PIXEL, height, "1 of 1,280 pixels", va="center")
    value.set_title("IoU loss of a perfect pair", loc="left")
    gradient.set_title("gradient of a pair off by a tenth, share left", loc="left")
    figure.legend(*value.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def gradient_length(boxes: Tensor, target: Tensor, eps: float) -> Tensor:
    """Return the length of IoU loss's gradient."""
    boxes = boxes.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(iou_losses.iou_loss(boxes, target, "sum", eps), boxes)
    return gradient.norm(dim=-1)


def threshold(theme: Theme) -> Figure:
    """Draw what a threshold makes of a box that slides off its target."""
    target = box(0.0, 0.0, 100.0, 100.0)
    stops = torch.tensor([0.0, 10, 25, 33, 34, 50, 100])
    figure = plt.figure(figsize=(WIDTH, 4.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.7))
    for axis, offset in zip(above.subplots(1, len(stops)), stops, strict=True):
        draw_verdict(axis, slid(target, offset[None]), target, offset.item(), theme)
    axis = below.subplots()
    moves = torch.linspace(0, 110, 221)
    moved, targets = slid(target, moves), target.expand(len(moves), 4)
    ious = iou_losses.paired_iou(moved, targets)
    axis.plot(moves, ious, "-", color=theme.ink, label="IoU")
    for limit, loss in ((0.5, "giou"), (0.75, "ciou")):
        hit = iou_losses.is_correct(ious, limit)
        axis.plot(moves, hit.float(), drawstyle="steps-mid", label=f"1 for a hit at {limit:g}", **theme.line(loss))
        axis.hlines(limit, 0, moves[hit].max(), color=theme.losses[loss], linewidth=0.8)
    axis.set(xlim=(0, 110), ylim=(-0.03, 1.05), xlabel="how far a box of 100 px has slid, px")
    axis.legend(loc="center right")
    return figure


def draw_verdict(axis: Axes, moved: Tensor, target: Tensor, offset: float, theme: Theme) -> None:
    """Draw a box on its target, and whether it is a hit at 0.5."""
    iou = iou_losses.paired_iou(moved, target)
    hit = iou_losses.is_correct(iou, 0.5).item()
    color = theme.losses["giou" if hit else "iou"]
    plane(axis, (-12, 212), (-12, 112))
    outline(axis, target[0].tolist(), theme.ink, linewidth=5, alpha=0.35)
    outline(axis, moved[0].tolist(), color, linewidth=2, linestyle="-" if hit else (0, (4, 2)))
    axis.set_title(f"{offset:g} px: {iou.item():.3f}\n{'hit' if hit else 'miss'}", color=color, fontsize=9)
