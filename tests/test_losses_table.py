"""docs/losses.md lists every public loss, and says of each what its case says."""

import re
import sys
from pathlib import Path

import pytest
import test_other_implementations
from cases import CASES, GOLDEN_PAIRS

import iou_losses
from iou_losses import BoxLoss

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import losses_table  # noqa: E402

TEXT = losses_table.DOCUMENT.read_text()
AT_A_GLANCE, WHICH, ELSEWHERE, _ = re.split(r"\n## .*\n", TEXT)


def rows(section):
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def names(row):
    return set(re.findall(r"`(\w+)`", row["loss"]))


PUBLIC = {kind for kind in vars(iou_losses).values() if isinstance(kind, type) and issubclass(kind, BoxLoss)} - {
    BoxLoss
}
CASE_OF = {repr(case.build()): case for case in CASES}
LINKS = [(match["loss"], match["page"]) for match in losses_table.ROW.finditer(TEXT)]
TABLE = [(row, losses_table.built(loss)) for row, (loss, _) in zip(rows(AT_A_GLANCE), LINKS, strict=True)]
COMBINED = [(row, module) for row, module in TABLE if isinstance(getattr(module, "base", None), BoxLoss)]
ALONE = [pair for pair in TABLE if pair not in COMBINED]


def over(table):
    return pytest.mark.parametrize(
        ("row", "module"), table, ids=[row["loss"].partition("]")[0].strip("[`") for row, _ in table]
    )


def test_every_public_loss_has_a_row_and_advice():
    assert {type(module) for _, module in TABLE} == PUBLIC
    assert set().union(*map(names, rows(WHICH))) == {kind.__name__ for kind in PUBLIC}


@over(TABLE)
def test_a_row_is_a_loss_that_works(row, module):
    assert module(*GOLDEN_PAIRS).isfinite()


@pytest.mark.parametrize(("loss", "page"), LINKS)
def test_a_row_links_to_the_page_of_its_loss(loss, page):
    assert f"\n::: iou_losses.{type(losses_table.built(loss)).__name__}\n" in (ROOT / "docs" / page).read_text()


@over(ALONE)
def test_a_row_says_what_its_case_says(row, module):
    case = CASE_OF[repr(module)]
    low, high = re.match(r"\[(.*), (.*?)\]", row["range"]).groups()
    assert (float(low), float(high)) == case.range
    assert row["symmetric"] == ("yes" if case.symmetric else "no")
    assert row["scale free"] == ("yes" if case.scale_free else "no")
    assert (row["a disjoint pair gets"] == "no gradient") == (case.disjoint == "flat")
    assert case.paper.removeprefix("arXiv:") in row["paper"]


@over(COMBINED)
def test_a_combinator_says_that_it_is_its_bases(row, module):
    assert "base's" in row["range"]
    assert row["symmetric"] == row["scale free"] == "the base's"


@over(TABLE)
def test_a_paper_is_the_one_that_the_docstring_cites_and_not_older_than_its_number(row, module):
    documents = " ".join(kind.__doc__ for kind in (type(module), getattr(type(module), "function", None)) if kind)
    for number in re.findall(r"abs/(\d+\.\d+)", row["paper"]):
        assert number in documents
        assert 2000 + int(number[:2]) <= int(row["year"]) <= 2001 + int(number[:2])


@over(TABLE)
def test_a_cost_is_a_number_or_not_measured_yet(row, module):
    assert all(re.fullmatch(r"-|\d+\.\d", row[column]) for column in ("cost", "cost, formula"))


def test_writing_the_costs_leaves_everything_else_as_it_is():
    pytest.importorskip("torchvision", reason="what measures the costs compares with it")
    from family_cost import filled

    (table,) = losses_table.TABLE.findall(TEXT)
    note = table.strip().rpartition("\n\n")[2]
    costs = {loss: (row["cost"], row["cost, formula"]) for (row, _), (loss, _) in zip(TABLE, LINKS, strict=True)}
    assert filled(table, costs, note) == table
    changed = filled(table, costs | {"CIoULoss()": ("7.7", "8.8")}, note).splitlines()
    (line,) = set(changed) - set(table.splitlines())
    assert line.startswith("| [`CIoULoss()`](losses/ciou.md) | 2020 |")
    assert line.endswith("| 7.7 | 8.8 |")


def test_what_others_do_differently_is_tested_and_no_such_test_is_left_out():
    listed = [row["test"].strip("`") for row in rows(ELSEWHERE)]
    tests = [name for name in vars(test_other_implementations) if name.startswith("test_")]
    assert listed == tests
    assert set().union(*map(names, rows(ELSEWHERE))) <= {kind.__name__ for kind in PUBLIC}
