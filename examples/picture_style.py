"""One look for all pictures: light and dark, colours told apart without colour vision, files that stay small."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display needed

from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

BUDGET = 150_000  # bytes of a picture; a larger SVG becomes a PNG
WIDTH = 9.0  # inches: a page's width, on which 10 points are easily read
RESOLUTION = 144  # dots per inch of a PNG
COLORS = (256, 128)  # of a PNG; with fewer the colours of thin lines change
FIELD = "viridis_r"  # bright is low, and brightness alone tells its values apart
# After Okabe and Ito's palette, brighter on a dark page; each line has a pattern of its own, too.
LINES = {"iou": "-", "giou": (0, (6, 2)), "diou": (0, (3, 1.5)), "ciou": (0, (7, 1.5, 1.5, 1.5))}


@dataclass(frozen=True)
class Theme:
    """The colours of the pictures on one kind of page."""

    name: str
    page: str
    ink: str  # text and the target box
    faint: str  # grid and what is in the background
    losses: dict[str, str]  # colours of the four losses

    def line(self, loss: str) -> dict[str, Any]:
        """Return how the line of a loss looks; one that has no look of its own takes the next of the cycle."""
        return {"color": self.losses[loss], "linestyle": LINES[loss]} if loss in self.losses else {}


THEMES = (
    Theme(
        name="light",
        page="#ffffff",
        ink="#1f2328",
        faint="#c4cad1",
        losses={"iou": "#BF5300", "giou": "#0072B2", "diou": "#007F5B", "ciou": "#B0548A"},
    ),
    Theme(
        name="dark",
        page="#0d1117",
        ink="#e6edf3",
        faint="#49515c",
        losses={"iou": "#FF8A4C", "giou": "#56B4E9", "diou": "#2FCB9B", "ciou": "#E7A3CB"},
    ),
)


@contextmanager
def style(theme: Theme) -> Iterator[None]:
    """Draw in the theme while it is entered."""
    settings = {
        "figure.facecolor": theme.page,
        "axes.facecolor": theme.page,
        "savefig.facecolor": theme.page,
        "figure.constrained_layout.h_pad": 0.08,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(linestyle=[":", "-.", "--"]) * cycler(color=theme.losses.values()),
        "grid.color": theme.faint,
        "grid.linewidth": 0.5,
        "grid.alpha": 0.6,
        "lines.linewidth": 2.2,
        "lines.solid_capstyle": "round",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "svg.fonttype": "path",  # looks the same on every machine
        "svg.hashsalt": "iou_losses",  # the same bytes in every run
        "path.simplify_threshold": 0.5,
    }
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    with plt.rc_context(settings | dict.fromkeys(inked, theme.ink)):
        yield


def save(figure: Figure, folder: Path, name: str, budget: int = BUDGET) -> Path:
    """Write the figure as an SVG, or as a PNG where the SVG would be over the budget; close it."""
    try:
        content, suffix = vector(figure), "svg"
        if len(content) > budget:
            content, suffix = raster(figure, budget), "png"
    finally:
        plt.close(figure)
    path = folder / f"{name}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".png" if suffix == "svg" else ".svg").unlink(missing_ok=True)  # of an earlier run
    path.write_bytes(content)
    return path


def vector(figure: Figure) -> bytes:
    """Return the figure as an SVG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def raster(figure: Figure, budget: int) -> bytes:
    """Return the figure as a PNG of few colours, 256 where the budget allows: a third of the bytes of all colours."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=RESOLUTION)
    image = Image.open(buffer).convert("RGB")
    for colors in COLORS:
        buffer = io.BytesIO()
        image.quantize(colors).save(buffer, format="png", optimize=True)
        if buffer.tell() <= budget:
            break
    return buffer.getvalue()


def draw_in_themes(draw: Callable[[Theme], Figure], folder: Path, name: str, budget: int = BUDGET) -> list[Path]:
    """Draw a picture in all themes; returns where the files are."""
    paths = []
    for theme in THEMES:
        with style(theme):
            paths.append(save(draw(theme), folder, f"{name}-{theme.name}", budget))
    return paths


def outline(axis: Axes, box: list[float], color: str, **options: Any) -> None:
    """Draw a box xyxy."""
    x1, y1, x2, y2 = box
    axis.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, **{"fill": False, "edgecolor": color, **options}))


def plane(axis: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    """Make the axis an image's plane: square units, y downwards, no numbers."""
    axis.set(xlim=xlim, ylim=ylim[::-1], aspect="equal", xticks=[], yticks=[])
    axis.grid(False)
    axis.spines[:].set_visible(False)


def label(loss: str) -> str:
    """Return the name of a loss as people write it."""
    words = (word.upper() if "iou" in word or len(word) == 3 else word for word in loss.split("_"))
    return " ".join(words).replace("IOU", "IoU")
