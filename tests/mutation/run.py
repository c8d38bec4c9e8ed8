"""Plant known faults one at a time, in a copy of the package, and show that the tests catch every one.

The tree itself is never changed. The copy without a fault has to pass first. A fault in C++ is compiled into a small
library of the losses that it is in, with g++, for one instruction set. Exit status 1 if a fault survives.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mutants import MUTANTS, Mutant
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

ROOT = Path(__file__).parents[2]
# An editable install finds the tree before the path is asked for the copy.
PYTEST = """
import sys
editable = ("_editable", "__editable__")
sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith(editable)]
import iou_losses, pytest
assert iou_losses.__file__.startswith(sys.argv[1]), f"{iou_losses.__file__} is not in the copy"
assert (iou_losses.native_isa() is not None) == (sys.argv[2] == "engine"), iou_losses.native_isa()
sys.exit(pytest.main(sys.argv[3:]))
"""
COMPILE = "g++ -O1 -std=c++17 -shared -fPIC -pthread -fvisibility=hidden -ffp-contract=off -fno-math-errno"
INCLUDES = ('#include "family.h"', '#include "matrix.h"', '#include "paired.h"')
LIBRARY = "kernels_generic.so"


class Copy:
    """The package and its tests in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.native = folder, folder / "iou_losses" / "native"
        ignore = shutil.ignore_patterns("*.so", "__pycache__", "integrations", "mutation")
        for name in ("iou_losses", "tests", "docs"):  # some tests read the documentation
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def compile(self, mutants: Sequence[Mutant]) -> None:
        """Build a library of what the mutants need, or none."""
        (self.native / LIBRARY).unlink(missing_ok=True)
        exports = {f"PAIRED({loss}, true)" for mutant in mutants for loss in mutant.paired.split()}
        exports |= {f"MATRIX({name})" for mutant in mutants for name in mutant.matrix.split()}
        if not exports:
            return
        source = self.native / "csrc" / "needed.cpp"
        source.write_text("\n".join([*INCLUDES, *sorted(exports), ""]))
        run([*COMPILE.split(), source.name, "-o", str(self.native / LIBRARY)], cwd=source.parent, check=True)

    def first_failure(self, tests: Sequence[str], engine: bool) -> str | None:
        """Run the tests up to the first that fails, and name it; None if all pass."""
        environment = os.environ | {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutant of the same second and length would pass for the last one
            "IOU_LOSSES_NATIVE": str(int(engine)),
        }
        way = "engine" if engine else "formulas"
        options = ["-x", "-q", "-rfE", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-o", "addopts="]
        command = [sys.executable, "-c", PYTEST, str(self.folder), way, *options, "-m", "not slow", *tests]
        result = run(command, cwd=self.folder / "tests", env=environment)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
        if result.returncode == 1 and failed:
            return failed[1]
        if result.returncode:
            raise SystemExit(f"pytest {shlex.join(tests)} could not run:\n{result.stdout}{result.stderr}")
        return None

    def mutated(self, mutant: Mutant) -> str:
        text = (self.folder / "iou_losses" / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file} has {text.count(mutant.old)} times, not once: {mutant.old!r}")
        return text.replace(mutant.old, mutant.new)

    def killer(self, mutant: Mutant) -> str | None:
        """Plant the fault, name the test that sees it, and mend the copy."""
        path = self.folder / "iou_losses" / mutant.file
        text = path.read_text()
        path.write_text(self.mutated(mutant))
        try:
            self.compile([mutant])
            return self.first_failure(shlex.split(mutant.tests), mutant.engine)
        finally:
            path.write_text(text)


def run(command: Sequence[str], check: bool = False, **options: object) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if check and result.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result


def check_unmutated(copy: Copy, chosen: Sequence[Mutant], say: Callable[[str], None]) -> None:
    """Every fault can be planted, and every test that is to fail passes without it."""
    for mutant in chosen:
        copy.mutated(mutant)
    for engine in (False, True):
        mutants = [mutant for mutant in chosen if mutant.engine == engine]
        copy.compile(mutants)
        files = sorted({word for mutant in mutants for word in mutant.tests.split() if word.endswith(".py")})
        if files:
            say(f"without a fault, by the {'engine' if engine else 'formulas'}: {' '.join(files)}")
            failed = copy.first_failure(files, engine)
            if failed:
                raise SystemExit(f"{failed} fails without any fault")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="take only the mutants whose fault or file holds one of these")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.words or any(word in f"{m.fault} {m.file}" for word in options.words)]
    console = Console()
    if options.list:
        console.print(*(f"{mutant.file}: {mutant.fault}" for mutant in chosen), sep="\n", highlight=False, markup=False)
        return 0
    columns = [Column(name, overflow="fold") for name in ("fault", "in", "killed by", "s")]
    table = Table(*columns, title=f"{len(chosen)} mutants")
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder).resolve())
        check_unmutated(copy, chosen, console.print)
        for mutant in track(chosen, "planting faults", console=console):
            start = time.monotonic()
            killer = copy.killer(mutant)
            survivors += killer is None
            console.print(f"{mutant.file}: {mutant.fault}: {killer or 'SURVIVES'}", markup=False, highlight=False)
            seconds = f"{time.monotonic() - start:.0f}"
            table.add_row(
                mutant.fault, mutant.file, killer or "SURVIVES", seconds, style=None if killer else "bold red"
            )
    console.print(table)
    console.print(f"{len(chosen) - survivors} of {len(chosen)} faults are seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
