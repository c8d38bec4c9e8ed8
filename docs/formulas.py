"""How the docstrings become pages: a Griffe extension that mkdocs.yml names.

Formulas (`.. math::`) become MathML while the pages are built, so that a browser shows them without a script and
without a network. The package's public names in backticks become links, and so do papers on arXiv.
"""

import re
from textwrap import dedent
from typing import Any

import griffe
from latex2mathml.converter import convert

FORMULAS = re.compile(r"^\.\. math::(.*(?:\n(?: .*)?)*)", re.MULTILINE)
# A word is one name and not a product of letters. Commands and the words that belong to them are left alone.
WORD = re.compile(r"(?<![\\A-Za-z])(?<!\\begin{)(?<!\\end{)(?<!\\text{)[A-Za-z]{2,}")
NAME = re.compile(r"(?<!`)`(\w+)`(?!`)")
PAPER = re.compile(r"arXiv:(\d+\.\d+)")
# Griffe takes the first words of "Returns" for a type, and the others for notes that one folds.
PROSE = re.compile(r"^(Returns|Properties|Reference|Limits|Deviations):\n((?: .*\n?|\n)+)", re.MULTILINE)


class Pages(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object of a loaded package."""
        if obj.docstring:
            text = FORMULAS.sub(as_mathml, obj.docstring.value)
            text = NAME.sub(lambda name: as_link(name, obj), text)
            text = PAPER.sub(r"[\g<0>](https://arxiv.org/abs/\1)", text)
            text = PROSE.sub(lambda section: f"**{section[1]}:**\n{dedent(section[2])}", text)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)


def as_mathml(block: re.Match[str]) -> str:
    """Return the formulas of a block, which empty lines separate, as HTML that Markdown leaves alone."""
    formulas = re.split(r"\n\s*\n", dedent(block[1]).strip())
    shown = (convert(WORD.sub(r"\\text{\g<0>}", latex), display="block") for latex in formulas)
    return f'<div class="formula">{"".join(shown)}</div>\n\n'


def as_link(name: re.Match[str], obj: griffe.Object) -> str:
    """Return a link to what the package calls so, or the name as it is."""
    package = obj.package
    public = name[1] != obj.name and name[1] in package.members and package[name[1]].is_alias
    return f"[{name[0]}][{package.path}.{name[1]}]" if public else name[0]
