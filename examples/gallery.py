"""Draws the pictures of README and documentation, each for light and for dark pages, from what the package computes.

    python examples/gallery.py                            # all, into docs/pictures; about two minutes
    python examples/gallery.py --only why_giou threshold  # some
    python examples/gallery.py --out out --points 20      # elsewhere, with a short simulation

    why_giou             two boxes apart: IoU's gradient is 0, GIoU's brings them together
    fields               the loss around a target and where its gradient takes a box, for IoU, GIoU, DIoU, CIoU
    trajectories         gradient descent of a box that is apart, and of one that is inside of its target
    offsets              the loss against the offset for pairs of 2 to 400 pixels
    epsilon              what an absolute epsilon does to small boxes
    threshold            what a threshold makes of a box that slides
    simulation           how the error falls in the DIoU paper's simulation, see regression_simulation.py
    simulation_surfaces  where in the plane it stays
    losses/PAGE          for each page of docs/losses: the fields of its losses, and their curves as a box slides past

The files are `NAME-light.svg` and `NAME-dark.svg`, or `.png` where an SVG would be large. A picture that does not
change keeps its bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from gallery_boxes import FOUR, fields, trajectories, why_giou
from gallery_curves import epsilon, offsets, threshold
from gallery_losses import PAGE_BUDGET, PAGES, loss_page
from matplotlib.figure import Figure
from picture_style import BUDGET, Theme, draw_in_themes
from regression_simulation import LOSSES, NAMES, PER_POINT, Outcome, anchor_points, simulate
from rich.console import Console
from rich.progress import track
from simulation_pictures import draw_curves, draw_surfaces

import iou_losses

Picture = Callable[[Theme], Figure]

SLIP = "giou_unclamped"  # shown where the paper's code descends


@cache  # the same in every theme
def simulated(loss: str, fmt: str, points: int) -> Outcome:
    """Return the simulation of a loss."""
    return simulate(LOSSES[loss], anchor_points(points, seed=0), fmt)


def simulation(points: int, theme: Theme) -> Figure:
    """Draw how the error falls, in both coordinates."""
    panels = {"xyxy": FOUR, "cxcywh": (*FOUR, SLIP)}
    count = points * PER_POINT
    curves = {
        NAMES[fmt]: {loss: simulated(loss, fmt, points).curve / count for loss in losses}
        for fmt, losses in panels.items()
    }
    return draw_curves(curves, theme)


def simulation_surfaces(points: int, theme: Theme) -> Figure:
    """Draw where the error stays."""
    surfaces = {loss: simulated(loss, "xyxy", points).surface / PER_POINT for loss in FOUR}
    return draw_surfaces(surfaces, anchor_points(points, seed=0), theme)


def pictures(points: int) -> dict[str, Picture]:
    """Return what is drawn, the simulation with so many points."""
    drawn = (why_giou, fields, trajectories, offsets, epsilon, threshold)
    simulations = (simulation, simulation_surfaces)
    return (
        {draw.__name__: draw for draw in drawn}
        | {draw.__name__: partial(draw, points) for draw in simulations}
        | {f"losses/{page}": partial(loss_page, page) for page in PAGES}
    )


def budget(name: str) -> int:
    """Return how many bytes a picture may have."""
    return PAGE_BUDGET if name.startswith("losses/") else BUDGET


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(pictures(0))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="(default: all)")
    parser.add_argument("--points", type=int, default=1000, help="of the simulation (default: %(default)s)")
    folder = Path(__file__).resolve().parents[1] / "docs" / "pictures"
    parser.add_argument("--out", type=Path, default=folder, help="folder (default: docs/pictures)")
    options = parser.parse_args()
    if options.points < 3:
        parser.error("--points must be at least 3, which span a surface")
    return options


def main() -> None:
    """Draw, and say what came out."""
    options = parse_options()
    torch.set_num_threads(1)  # the pictures' bits do not depend on the machine's cores
    console, drawn = Console(), pictures(options.points)
    for name in track(options.only, "pictures", console=console):
        for path in draw_in_themes(drawn[name], options.out, name, budget(name)):
            console.print(f"{path.relative_to(options.out)!s:34}{path.stat().st_size / 1000:6.0f} kB", highlight=False)
    console.print(f"in {options.out}, computed by {iou_losses.native_isa() or 'the formulas in torch'}")


if __name__ == "__main__":
    main()
