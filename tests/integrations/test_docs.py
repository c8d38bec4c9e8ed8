"""The code in docs/ecosystems.md runs, where it says nothing else, and is as short as promised."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ecosystems.md").read_text()
SECTIONS = {
    section.partition("\n")[0]: "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    for section in TEXT.split("\n## ")[1:]
}
LIBRARIES = {
    "torchvision": "torchvision",
    "ultralytics": "ultralytics",
    "transformers": "transformers",
    "mmdetection": "mmengine",
    "Several processes": "torch",
}


@pytest.mark.slow
@pytest.mark.parametrize("section", LIBRARIES)
def test_the_code_runs(section):
    pytest.importorskip(LIBRARIES[section])
    boxes = torch.rand(3, 4)
    names = {"pred": boxes, "target": boxes}
    exec(SECTIONS[section], names)
    made = names.get("model") or names.get("loss_bbox")
    assert made is not None or names["loss"] == 0


def test_every_section_is_short_and_the_recipe_is_marked():
    with_code = [section for section, code in SECTIONS.items() if code]
    assert with_code == [*list(LIBRARIES)[:4], "detectron2", "Several processes"]
    for section in LIBRARIES:
        assert len([line for line in SECTIONS[section].splitlines() if line.strip()]) <= 5
    assert "**Not run**" in TEXT.partition("## detectron2")[2].partition("```")[0]


def test_the_readme_shows_each_in_at_most_five_of_the_lines_that_run():
    section = (ROOT / "README.md").read_text().partition("## One call into a detector")[2].partition("\n## ")[0]
    calls = re.search(r"```python\n(.*?)\n```", section, re.DOTALL).group(1).split("\n\n")
    assert len(calls) == 3
    for call in calls:
        lines = call.splitlines()
        assert len(lines) <= 5
        assert any(all(f"\n{line}" in f"\n{code}" for line in lines) for code in SECTIONS.values())
    assert all(name in section for name in ("mmdetection", "detectron2", "ecosystems.md"))


def test_the_tested_versions_are_those_of_the_code():
    from iou_losses import integrations

    for name in ("torchvision_heads", "ultralytics", "transformers", "mmdet"):
        source = (Path(integrations.__file__).parent / f"{name}.py").read_text()
        assert re.search(r'TESTED = "(.*)"', source).group(1) in TEXT
