"""Pictures of where a loss takes a box: why IoU needs GIoU, fields around a target, trajectories."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from picture_style import FIELD, WIDTH, Theme, label, outline, plane, plt
from regression_simulation import LOSSES, Loss, corners, descend, rates
from torch import Tensor

import iou_losses

FOUR = ("iou", "giou", "diou", "ciou")
STEPS, SLOWER = 1000, 0.3  # of a trajectory, and its rates as a share of the simulation's: small enough to go straight
GOOD = 0.9  # the IoU that a trajectory's steps are counted to
LEFT = (1.0, 0.8, 0.6, 0.4, 0.2)  # shares of the first error at which a trajectory's box is drawn


def box(*coordinates: float) -> Tensor:
    """Return one box (1, 4)."""
    return torch.tensor([coordinates])


# A field: the target, the box whose centre is moved over the plane, and how far in each direction.
SQUARE, MOVING, REACH = box(-0.5, -0.5, 0.5, 0.5), box(-0.7, -0.35, 0.7, 0.35), 2.0


def slid(target: Tensor, offsets: Tensor) -> Tensor:
    """Return the box (n, 4), moved to the right by each offset."""
    return target + offsets[:, None] * torch.tensor([1.0, 0.0, 1.0, 0.0])


def slope(loss: Loss, boxes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return losses (n,) and their gradients (n, 4)."""
    boxes = boxes.detach().clone().requires_grad_()
    values = loss(boxes, targets)
    return values.detach(), torch.autograd.grad(values.sum(), boxes)[0]


def trajectory(loss: str, start: Tensor, target: Tensor) -> Tensor:
    """Return the box (STEPS + 1, 4) xyxy after each step of gradient descent on its centre and size."""
    boxes, target = [centred(start)], centred(target)
    for rate in rates(STEPS):
        boxes.append(descend(LOSSES[loss], boxes[-1], target, SLOWER * rate, "cxcywh"))
    return torch.cat(corners(torch.cat(boxes), "cxcywh"), dim=-1)


def centred(boxes: Tensor) -> Tensor:
    """Return boxes xyxy as centre and size."""
    low, high = boxes.split(2, dim=-1)
    return torch.cat(((low + high) / 2, high - low), dim=-1)


def draw_trajectory(axis: Axes, loss: str, start: Tensor, target: Tensor, theme: Theme) -> None:
    """Draw where a loss takes a box, ever bolder, and how well it fits its target in the end."""
    boxes, color = trajectory(loss, start, target), theme.losses[loss]
    error = (centred(boxes) - centred(target)).abs().sum(-1)
    outline(axis, target[0].tolist(), theme.ink, linewidth=5, alpha=0.35)
    for share in LEFT:
        step = int((error <= share * error[0]).int().argmax())  # the first; 0 where there is none
        outline(axis, boxes[step].tolist(), color, linewidth=1.2, alpha=1 - 0.7 * share)
    outline(axis, boxes[-1].tolist(), color, linewidth=2.4)
    path = centred(boxes)[:, :2]
    axis.plot(*path.T, color=color, linewidth=1.4, linestyle=":")
    axis.plot(*path[0], "o", color=color, markersize=5)
    both = torch.cat((start, target))
    (left, top), (right, bottom) = (both[:, :2].amin(0) - 0.3).tolist(), (both[:, 2:].amax(0) + 0.3).tolist()
    plane(axis, (left, right), (top, bottom))
    ious = iou_losses.paired_iou(boxes, target.expand_as(boxes))
    good = iou_losses.is_correct(ious, GOOD)
    steps = f"{int(good.int().argmax())} steps to IoU {GOOD}" if good.any() else f"{STEPS:,} steps: IoU {ious[-1]:.2f}"
    axis.set_xlabel(steps, color=color)


def why_giou(theme: Theme) -> Figure:
    """Draw why IoU needs GIoU: two boxes apart, with one loss and the other."""
    start, target = box(0.0, 0.0, 1.0, 0.8), box(1.9, 1.1, 3.1, 2.1)
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH, 3.2), width_ratios=(1.1, 1.1, 1), layout="constrained")
    for axis, loss in zip(axes, ("iou", "giou"), strict=False):
        draw_trajectory(axis, loss, start, target, theme)
        _, gradient = slope(LOSSES[loss], start, target)
        verdict = "finds the target" if gradient.any() else "gradient exactly 0"
        axis.set_title(f"{label(loss)} loss: {verdict}", color=theme.losses[loss])
    axes[0].text(*centred(target)[0, :2], "target", ha="center", va="center")
    axes[0].text(*centred(start)[0, :2] + torch.tensor([0.0, 0.22]), "prediction", ha="center", va="center", size=8)
    draw_sliding(axes[2], theme)
    return figure


def draw_sliding(axis: Axes, theme: Theme) -> None:
    """Draw both losses of a box that slides away from its equal."""
    offsets = torch.linspace(0, 3, 121)
    target = box(0.0, 0.0, 1.0, 1.0)
    axis.axvspan(1, 3, color=theme.faint, alpha=0.3, linewidth=0)
    for loss in ("giou", "iou"):
        values = LOSSES[loss](slid(target, offsets), target.expand(len(offsets), 4), fmt="xyxy")
        axis.plot(offsets, values, **theme.line(loss))
        axis.text(2.95, values[-1] + 0.06, label(loss), color=theme.losses[loss], ha="right", weight="bold")
    axis.text(2, 0.12, "boxes apart:\nIoU is flat", ha="center")
    axis.text(0.5, 1.75, "overlap", ha="center")
    axis.set(xlim=(0, 3), ylim=(0, 2), xlabel="distance, in widths of the box", title="loss as boxes part")


def draw_field(
    axis: Axes, loss: Loss, target: Tensor = SQUARE, limits: tuple[float, float] | None = None
) -> ContourSet:
    """Draw the loss of `MOVING` by where its centre is, and where gradient descent takes the centre."""
    cells = 49
    line = torch.linspace(-REACH, REACH, cells)
    where = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)
    boxes = (MOVING + where.repeat(1, 1, 2)).flatten(0, 1)
    values, gradients = slope(loss, boxes, target.expand(len(boxes), 4))
    values, pull = values.view(cells, cells), -(gradients[:, :2] + gradients[:, 2:]).view(cells, cells, 2)
    low, high = limits or (values.min().item(), values.max().item() * 1.0001)
    levels = torch.linspace(low, high, 17)
    filled = axis.contourf(line, line, values, levels=levels, cmap=FIELD)
    where, pull = where[4::8, 4::8], torch.nn.functional.normalize(pull[4::8, 4::8], dim=-1)
    moved = pull.norm(dim=-1) > 0
    arrows = {"width": 0.014, "headwidth": 4, "headlength": 4, "headaxislength": 3.6, "scale": 9, "pivot": "mid"}
    axis.quiver(*where[moved].T, *pull[moved].T, angles="xy", color="white", edgecolor="black", linewidth=0.4, **arrows)
    outline(axis, target[0].tolist(), "white", linewidth=2)
    plane(axis, (-REACH, REACH), (-REACH, REACH))
    return filled


def fields(theme: Theme) -> Figure:
    """Draw the fields of the four losses."""
    figure, axes = plt.subplots(1, 4, figsize=(WIDTH, 3.5), layout="constrained")
    for axis, loss in zip(axes, FOUR, strict=True):
        filled = draw_field(axis, LOSSES[loss], limits=(0, 2))
        axis.set_title(label(loss))
    figure.colorbar(filled, ax=axes, location="bottom", shrink=0.4, aspect=30, ticks=(0, 1, 2), label="loss")
    return figure


def trajectories(theme: Theme) -> Figure:
    """Draw how each of the four losses moves a box that is apart, and one that is inside of its target."""
    pairs = (
        (box(0.0, 0.0, 0.6, 1.2), box(1.7, 1.1, 3.0, 1.8)),
        (box(0.35, 0.3, 0.75, 1.1), box(0.0, 0.0, 2.0, 1.2)),
    )
    figure, axes = plt.subplots(2, 4, figsize=(WIDTH, 4.1), layout="constrained")
    for row, (start, target) in zip(axes, pairs, strict=True):
        for axis, loss in zip(row, FOUR, strict=True):
            draw_trajectory(axis, loss, start, target, theme)
    for axis, loss in zip(axes[0], FOUR, strict=True):
        axis.set_title(label(loss), color=theme.losses[loss])
    return figure
