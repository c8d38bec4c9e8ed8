"""The pictures of the simulation: how the error falls, and where it stays."""

from __future__ import annotations

import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation
from picture_style import FIELD, WIDTH, Theme, label, plt
from torch import Tensor

COLUMNS = 4
LOWEST, HIGHEST = -3, 1  # powers of ten of the errors that are told apart


def draw_curves(panels: dict[str, dict[str, Tensor]], theme: Theme) -> Figure:
    """Draw each loss's mean error against the step, a panel for each setting."""
    size = (WIDTH, 4)
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=True):
        for name, curve in curves.items():
            known = f"{label(name)}  {curve[-1]:.3g}"
            axis.plot(range(1, len(curve) + 1), curve, label=known, **theme.line(name))
        axis.set(title=title, xlabel="step of gradient descent", yscale="log", xlim=(0, None))
        axis.legend(loc="lower left", title="loss, final error")
    axes[0, 0].set_ylabel("mean L1 error of centre and size")
    return figure


def draw_surfaces(surfaces: dict[str, Tensor], points: Tensor, theme: Theme) -> Figure:
    """Draw the mean final error over the plane of anchor points (n, 2), a panel for each loss."""
    columns = min(COLUMNS, len(surfaces))
    rows = -(-len(surfaces) // columns)
    size = (WIDTH, 0.9 + rows * WIDTH / columns)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    triangles, levels = Triangulation(*points.T.numpy()), torch.logspace(LOWEST, HIGHEST, 17)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (name, surface) in zip(axes.flat, surfaces.items(), strict=False):
        shown = surface.clamp(levels[0].item(), levels[-1].item())
        filled = axis.tricontourf(triangles, shown, levels=levels, cmap=FIELD, norm=LogNorm())
        axis.set(title=label(name), aspect="equal")
    ticks = {"ticks": [10**power for power in range(LOWEST, HIGHEST + 1)], "format": "%g"}
    figure.colorbar(filled, ax=axes, label="mean final L1 error", location="bottom", shrink=0.5, aspect=40, **ticks)
    return figure
