"""The pages keep their word: code runs, links lead somewhere, every public name is documented, once."""

import doctest
import math
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import iou_losses

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}
# Calls into libraries that the tests' extra does not bring: tests/integrations/test_docs.py looks after them.
INTEGRATIONS = "from iou_losses.integrations"


class Block(NamedTuple):
    page: str
    line: int
    heading: str
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page, text):
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()]
        heading = (re.findall(r"^#+ (.*)$", without_code(before), re.MULTILINE) or [""])[-1]
        yield Block(page, before.count("\n") + 2, heading, *match.groups())


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


BLOCKS = [block for page, text in TEXTS.items() for block in blocks_of(page, text)]


def over(language, condition):
    chosen = [block for block in BLOCKS if block.language == language and condition(block)]
    assert chosen
    return pytest.mark.parametrize("block", chosen, ids=str)


def presumed_by(block):
    """The data, and the public names, that a page which shows single calls takes for granted; else nothing."""
    if block.page != "docs/four_jobs.md":
        return {}
    corners = torch.tensor([[0.0, 0], [10, 0], [60, 60], [200, 10]])
    boxes, labels, scores = torch.cat([corners, corners + 50], -1), torch.tensor([0, 0, 1, 1]), torch.rand(4)
    objects = {"boxes": boxes[1:3], "labels": labels[1:3]}
    given = {
        "boxes": boxes,
        "anchors": boxes,
        "objects": objects["boxes"],
        "scores": scores,
        "classes": labels,
        "predictions": boxes,
        "object_labels": objects["labels"],
        "class_scores": torch.rand(4, 2),
    }
    if block.heading == "Score":
        given |= {"predictions": [{"boxes": boxes, "labels": labels, "scores": scores}], "targets": [objects]}
    return vars(iou_losses) | given


def needs_torchvision(block):
    if "torchvision" in block.code:
        pytest.importorskip("torchvision", reason="the page compares with torchvision, which is not installed")


@over("python", lambda block: INTEGRATIONS not in block.code and block.page != "docs/ecosystems.md")
def test_code_runs(block):
    needs_torchvision(block)
    exec(compile("\n" * (block.line - 1) + block.code, ROOT / block.page, "exec"), presumed_by(block))


@over("pycon", lambda block: True)
def test_what_a_session_prints_is_what_the_page_says(block):
    needs_torchvision(block)
    test = doctest.DocTestParser().get_doctest(block.code, {}, str(block), block.page, block.line - 1)
    said = []
    assert test.examples
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)


def anchors_of(text):
    """The ids that Markdown gives headings, and mkdocstrings what it documents."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    return {slug(heading) for heading in headings} | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def slug(heading):
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(TEXTS[page])):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if file.suffix == ".md" and anchor:
            assert anchor in anchors_of(file.read_text()), target


def test_every_picture_is_there_for_light_and_for_dark_pages():
    for page, text in TEXTS.items():
        light, dark = (re.findall(rf"!\[(.+)\]\((.*)-{mode}\.(\w+)#only-{mode}\)", text) for mode in ("light", "dark"))
        assert light == dark, page
        assert len(light) == text.count("#only-light"), page


def test_every_public_name_is_documented_once():
    public = {name for name in vars(iou_losses) if re.search(rf" as {name}$", SOURCE, re.MULTILINE)}
    documented = [
        name for text in TEXTS.values() for name in re.findall(r"^::: iou_losses\.(\w+)$", text, re.MULTILINE)
    ]
    assert len(public) > 60
    assert sorted(documented) == sorted(public)


SOURCE = Path(iou_losses.__file__).read_text()
TESTED = [
    float(number) for number in re.findall(r"\d+\.\d+", (ROOT / "tests" / "test_other_implementations.py").read_text())
]


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if "\n## Elsewhere\n" in text])
def test_numbers_of_other_implementations_are_those_that_are_tested(page):
    said = re.sub(r"arXiv:\S+", "", TEXTS[page].partition("\n## Elsewhere\n")[2])
    for number in re.findall(r"\d+\.\d{4,}", said):
        digits = len(number.partition(".")[2])
        assert any(math.isclose(float(number), round(known, digits), abs_tol=1e-9) for known in TESTED), number
