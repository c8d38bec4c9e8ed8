"""docs/promises.md: its table is what the probes give, and the tests that it names exist."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "promises.md").read_text()
sys.path.insert(0, str(ROOT / "benchmarks"))
pytest.importorskip("rich")
import promises  # noqa: E402

TABLE = PAGE.partition(promises.BEGIN)[2].partition(promises.END)[0]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/\S+::\w+)`", PAGE))))
def test_every_test_that_holds_a_promise_exists(name):
    path, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_the_table_has_a_row_for_each_probe_and_names_the_packages():
    assert ROWS[0][:2] == ["promise", "of"]
    assert ROWS[0][2].startswith("iou_losses ")
    assert [name.split()[0] for name in ROWS[0][3:6]] == ["torchvision", "ultralytics", "mmdetection"]
    assert [(row[0], row[1], row[-1]) for row in ROWS[2:]] == [
        (p.promise, p.of, f"`{p.test}`") for p in promises.PROBES
    ]


@pytest.mark.slow  # torch.compile
@pytest.mark.parametrize("number", range(len(promises.PROBES)), ids=[probe.find.__name__ for probe in promises.PROBES])
def test_this_package_keeps_its_promise(number):
    ours = next(promises.packages())
    assert promises.answer(promises.PROBES[number], ours) == ROWS[2 + number][2] == "yes"


def test_the_probes_find_what_they_are_for():
    # mmdetection's definition fails most of them, for what the page says of it.
    *_, definition = promises.packages()
    answers = {row[0]: row[5] for row in ROWS[2:]}
    quick = [probe for probe in promises.PROBES if "compile" not in probe.promise]
    found = {probe.promise: promises.answer(probe, definition) for probe in quick}
    assert {name: answer[:3] for name, answer in found.items()} == {name: answers[name][:3] for name in found}
    assert sum(answer.startswith("no: ") for answer in found.values()) > 5
