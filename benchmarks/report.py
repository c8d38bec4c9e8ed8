"""Results for people: tables on the terminal and in Markdown, the picture, and the machine they belong to."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display needed

import rich.table
import torch
import torchvision
from jobs import Record, Table
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from rich.console import Console

import iou_losses

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

# Okabe and Ito's colours and a marker each: told apart without colour vision, too.
STYLES: dict[str, dict[str, Any]] = {
    "ours, native": {"color": "#D55E00", "marker": "o", "linewidth": 2.5},
    "ours, compiled": {"color": "#E69F00", "marker": "s"},
    "ours, formula": {"color": "#CC79A7", "marker": "^"},
    "torchvision": {"color": "#0072B2", "marker": "D"},
    "torchvision, compiled": {"color": "#56B4E9", "marker": "v"},
    "ultralytics": {"color": "#009E73", "marker": "P", "linestyle": ":"},
    "fvcore": {"color": "#666666", "marker": "X", "linestyle": ":"},
}


def machine(device: str) -> dict[str, Any]:
    """Name what the numbers were measured on."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "threads": torch.get_num_threads(),
        "engine": iou_losses.native_isa(),
        "iou_losses": iou_losses.__version__,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "date": date.today().isoformat(),
    }


def processor() -> str:
    """Return the model of the processor: Linux knows more than the platform module."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return model[1] if model else platform.processor() or platform.machine()


def described(name: dict[str, Any]) -> str:
    """Return the machine in one line."""
    processors = f"{name['processor']}, {name['threads']} of {name['cores']} cores"
    versions = ", ".join(f"{package} {name[package]}" for package in ("iou_losses", "torch", "torchvision"))
    parts = (name["gpu"], processors, f"engine {name['engine'] or 'not built'}", versions, name["date"])
    return "; ".join(part for part in parts if part)


def shown(value: Any) -> str:
    """Return a number with the digits that mean something."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value < 1000:
        return f"{value:#.3g}".rstrip(".")
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def cells(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table; not every record need have every column."""
    head = list(dict.fromkeys(key for record in records for key in record))
    return head, [[shown(record[key]) if key in record else "-" for key in head] for record in records]


def show(table: Table, console: Console) -> None:
    """Print a table."""
    head, rows = cells(table.records)
    grid = rich.table.Table(*head, title=table.title)
    for column in grid.columns[1:]:
        column.justify = "right"
    for row in rows:
        grid.add_row(*row)
    console.print(grid, table.note, "")


def compact(records: Sequence[Record]) -> list[Record]:
    """Bring the timings of one thing into one line: the contenders side by side, what the first one reaches behind."""
    lines = []
    for (call, boxes), group in groupby(records, key=lambda record: (record["call"], record["boxes"])):
        contenders = list(group)
        line = {"call": call, "boxes": boxes}
        for record in contenders:
            line[record["by"]] = f"{shown(record['microseconds'])} ({shown(record['times torchvision'])}x)"
        first = contenders[0]
        unit = next(key for key in first if key.startswith("ns per "))
        line |= {f"{first['by']}: {key}": first[key] for key in (unit, "GB/s")}
        line |= {"bare copy": first["copy microseconds"], "bytes moved": first["bytes moved"]}
        lines.append(line)
    return lines


def markdown(tables: Iterable[Table], title: str, command: str, picture: str | None) -> str:
    """Return all tables in Markdown."""
    parts = [f"`{command}` on {title}."]
    if picture:
        parts.append(f"![Nanoseconds per box against the number of boxes]({picture})")
    for table in tables:
        timed = "microseconds" in table.records[0]
        head, rows = cells(compact(table.records) if timed else table.records)
        rule = ["---", *["---:"] * (len(head) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
        note = f"{table.note} Microseconds, and how many times as fast as torchvision." if timed else table.note
        parts += [f"### {table.title}", note, "\n".join(lines)]
    return "\n\n".join(parts)


def between_markers(path: Path, text: str | None = None) -> None:
    """Put the text between the two markers of a file; without a text only make sure that they are there."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} must have the lines {BEGIN} and {END}")
    if text is not None:
        path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def plot(records: Sequence[Record], title: str, path: Path) -> None:
    """Draw what a box costs against the number of boxes, a panel for each loss."""
    calls = list(dict.fromkeys(record["call"] for record in records))
    figure, axes = plt.subplots(1, len(calls), figsize=(4.2 * len(calls), 5), sharey=True, squeeze=False)
    for axis, call in zip(axes.flat, calls, strict=True):
        draw_costs(axis, [record for record in records if record["call"] == call])
        axis.set(title=call, xlabel="boxes", xscale="log", yscale="log")
    axes[0, 0].set_ylabel("forward + backward, ns per box")
    entries = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=4, frameon=False)
    figure.text(0.5, 0.995, title, ha="center", va="top", fontsize=7)
    figure.tight_layout(rect=(0, 0.12, 1, 0.97))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_costs(axis: Axes, records: Sequence[Record]) -> None:
    """Draw a line for each contender, and the copy as the limit."""
    for by in dict.fromkeys(record["by"] for record in records):
        points = [(number(record), record["ns per box"]) for record in records if record["by"] == by]
        axis.plot(*zip(*points, strict=True), label=by, **STYLES[by])
    limit = {number(record): record["copy microseconds"] * 1e3 / number(record) for record in records}
    axis.plot(limit.keys(), limit.values(), "k--", label="bare copy of the same bytes")
    axis.grid(alpha=0.3)


def number(record: Record) -> int:
    """Return the number of boxes of a record."""
    return int(record["boxes"].replace(",", ""))
