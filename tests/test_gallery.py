"""The pictures show what the package computes, are readable on light and dark pages, and stay small."""

import io
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import iou_losses

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
sys.path.insert(0, str(EXAMPLES))

import gallery  # noqa: E402
import gallery_boxes  # noqa: E402
import gallery_losses  # noqa: E402
import picture_style  # noqa: E402
from picture_style import THEMES, plt  # noqa: E402

FEW = gallery.pictures(points=4)
every_theme = pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)


@pytest.fixture
def draw():
    """Draw a picture in a theme; closes it in the end."""

    def draw_picture(name, theme):
        with picture_style.style(theme):
            return FEW[name](theme)

    yield draw_picture
    plt.close("all")


def texts(figure):
    """Every text of a figure that is not empty."""
    return [text.get_text() for text in figure.findobj(plt.Text) if text.get_text()]


def file_name(path, folder):
    """The name of a picture's file in a folder, without its suffix."""
    return path.relative_to(folder).with_suffix("").as_posix()


def luminance(color):
    """The relative luminance of WCAG 2."""
    numbers = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [number / 12.92 if number <= 0.04045 else ((number + 0.055) / 1.055) ** 2.4 for number in numbers]
    return sum(share * number for share, number in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(color, page):
    low, high = sorted((luminance(color), luminance(page)))
    return (high + 0.05) / (low + 0.05)


@every_theme
def test_colours_can_be_read_on_the_page(theme):  # WCAG 2 asks for 4.5, and for 7 in its strictest grade
    assert contrast(theme.ink, theme.page) >= 7
    for loss, color in theme.losses.items():
        assert contrast(color, theme.page) >= 4.5, loss


@every_theme
def test_losses_differ_in_their_line_pattern_too(theme):
    assert len({str(theme.line(loss)["linestyle"]) for loss in theme.losses}) == len(theme.losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_a_picture_is_drawn_on_light_and_dark_within_the_budget(name, tmp_path):
    paths = picture_style.draw_in_themes(FEW[name], tmp_path, name, gallery.budget(name))
    assert [file_name(path, tmp_path) for path in paths] == [f"{name}-light", f"{name}-dark"]
    for path in paths:
        assert 2_000 < path.stat().st_size <= gallery.budget(name)
    assert paths[0].read_bytes() != paths[1].read_bytes()


@every_theme
def test_the_first_picture_says_that_iou_is_stuck_and_giou_is_not(theme, draw):
    shown = texts(draw("why_giou", theme))
    assert "IoU loss: gradient exactly 0" in shown
    assert "GIoU loss: finds the target" in shown
    assert f"{gallery_boxes.STEPS:,} steps: IoU 0.00" in shown


def test_descent_goes_nowhere_with_iou_and_home_with_the_others():
    start, target = gallery_boxes.box(0, 0, 1, 0.8), gallery_boxes.box(1.9, 1.1, 3.1, 2.1)
    for loss in gallery_boxes.FOUR:
        boxes = gallery_boxes.trajectory(loss, start, target)
        torch.testing.assert_close(boxes[0], start[0])
        if loss == "iou":
            torch.testing.assert_close(boxes, start.expand_as(boxes))
        else:
            assert iou_losses.paired_iou(boxes[-1:], target).item() > 0.98


@pytest.mark.parametrize("loss", gallery_boxes.FOUR)
def test_a_field_has_arrows_where_there_is_a_gradient(loss):
    figure, axis = plt.subplots()
    gallery_boxes.draw_field(axis, gallery_boxes.LOSSES[loss])
    (arrows,) = [artist for artist in axis.collections if hasattr(artist, "U")]
    whole = 36  # 6 x 6
    assert (len(arrows.U) < whole / 2) if loss == "iou" else (len(arrows.U) == whole)
    plt.close(figure)


def test_the_same_picture_has_the_same_bytes():
    with picture_style.style(THEMES[0]):
        first, second = (picture_style.vector(FEW["threshold"](THEMES[0])) for _ in range(2))
    plt.close("all")
    assert first == second


@pytest.mark.parametrize(("budget", "suffix"), [(picture_style.BUDGET, ".svg"), (1_000, ".png")])
def test_an_svg_over_the_budget_becomes_a_png(budget, suffix, tmp_path):
    for earlier in ("svg", "png"):
        (tmp_path / f"line-light.{earlier}").touch()
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.plot([1, 2])
    path = picture_style.save(figure, tmp_path, "line-light", budget)
    assert path.suffix == suffix
    assert path.stat().st_size > 0
    assert list(tmp_path.iterdir()) == [path]
    assert not plt.fignum_exists(figure.number)


def test_a_png_over_the_budget_has_fewer_colours():
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.imshow(torch.arange(400).view(20, 20).numpy(), cmap="viridis")
    images = [Image.open(io.BytesIO(picture_style.raster(figure, budget))) for budget in (picture_style.BUDGET, 1_000)]
    plt.close(figure)
    many, few = (len(image.getcolors()) for image in images)
    assert few <= 128 < many <= 256


def test_every_picture_of_the_documentation_is_there_and_small():
    known = {f"{name}-{theme.name}" for name in FEW for theme in THEMES}
    paths = {path: file_name(path, PICTURES) for path in PICTURES.rglob("*.*")}
    assert set(paths.values()) == known
    assert len(paths) == len(known)  # no SVG beside its PNG
    assert all(path.stat().st_size <= gallery.budget(name) for path, name in paths.items())


def test_every_page_of_a_loss_shows_the_picture_of_its_losses():
    pages = {path.stem: path.read_text() for path in (DOCS / "losses").iterdir()}
    assert pages.keys() == gallery_losses.PAGES.keys()
    for page, losses in gallery_losses.PAGES.items():
        assert f"(../pictures/losses/{page}-light.png#only-light)" in pages[page]
        documented = re.findall(r"^::: iou_losses\.(\w+Loss)$", pages[page], re.MULTILINE)
        assert {type(loss).__name__ for loss in losses.values()} == set(documented), page


@pytest.mark.slow
@pytest.mark.parametrize("page", gallery_losses.PAGES)
def test_a_page_of_a_loss_has_a_field_for_each_of_its_losses_and_their_curves_beside_that_of_iou(page, draw):
    losses = gallery_losses.PAGES[page]
    *fields, passing = draw(f"losses/{page}", THEMES[0]).axes
    assert [axis.get_title() for axis in fields] == list(losses)
    curves = {line.get_label(): torch.tensor(line.get_ydata()) for line in passing.lines}
    assert list(curves) == ["IoU", *losses]
    boxes = gallery_boxes.slid(gallery_boxes.MOVING, torch.tensor(passing.lines[0].get_xdata()))
    target = gallery_losses.TARGETS.get(page, gallery_boxes.SQUARE).expand_as(boxes)
    torch.testing.assert_close(curves.pop("IoU"), 1 - iou_losses.paired_iou(boxes, target))
    for title, curve in curves.items():
        torch.testing.assert_close(curve, losses[title](boxes, target, reduction_override="none"))


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the gallery as a program; returns what it printed."""

    def run_gallery(*options):
        monkeypatch.setattr(sys, "argv", ["gallery.py", *map(str, options)])
        runpy.run_path(str(EXAMPLES / "gallery.py"), run_name="__main__")
        return capsys.readouterr().out

    return run_gallery


@pytest.mark.slow
def test_the_program_draws_what_it_is_asked_for(run, tmp_path):
    shown = run("--only", "threshold", "simulation_surfaces", "--points", 4, "--out", tmp_path / "new")
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert {name.partition("-")[0] for name in names} == {"threshold", "simulation_surfaces"}
    assert len(names) == 4
    assert all(name in shown for name in names)


@pytest.mark.parametrize(("option", "value"), [("--points", 2), ("--only", "everything")])
def test_the_program_refuses(option, value, run, capsys):
    with pytest.raises(SystemExit) as stop:
        run(option, value)
    assert stop.value.code == 2
    assert option in capsys.readouterr().err


def test_the_program_shows_its_help(run, capsys):
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert gallery.__doc__.split("\n")[0] in shown
    assert all(f"    {name} " in shown for name in FEW if not name.startswith("losses/"))
    assert "    losses/PAGE " in shown
