"""The table of docs/losses.md: its rows, and the losses that their first cells write as Python does."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import iou_losses

DOCUMENT = Path(__file__).parents[1] / "docs" / "losses.md"
TABLE = re.compile(r"(?<=<!-- cost:begin -->\n).*?(?=<!-- cost:end -->)", re.DOTALL)
# The loss, the page that it links to, facts about it, and two costs, which the benchmark writes.
ROW = re.compile(r"^(?P<facts>\| \[`(?P<loss>.+?)`\]\((?P<page>losses/\w+\.md)\) \|.*\|)[^|]*\|[^|]*\|$", re.MULTILINE)


def built(call: str) -> iou_losses.BoxLoss:
    """Return the loss that a call of its module builds, such as `InnerIoULoss(CIoULoss(), ratio=0.7)`."""
    return value(ast.parse(call, mode="eval").body)


def value(node: ast.expr) -> Any:
    """Return what an expression gives: a call of one of the package's modules, or else a literal."""
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    module = getattr(iou_losses, ast.unparse(node.func))
    return module(*map(value, node.args), **{keyword.arg: value(keyword.value) for keyword in node.keywords})
