"""The faults that `run.py` plants are still there to plant."""

from pathlib import Path

import pytest
from mutants import MUTANTS

PACKAGE = Path(__file__).parents[2] / "iou_losses"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.fault}")
def test_the_text_of_a_fault_occurs_once(mutant):
    assert (PACKAGE / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_every_fault_has_a_name_of_its_own():
    assert len({(mutant.file, mutant.fault) for mutant in MUTANTS}) == len(MUTANTS)
