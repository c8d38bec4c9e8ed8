"""What is loaded and run: nothing from a network, no pickle, no code from text; and no pin that shuts out a fix."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("iou_losses", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

OFFLINE = """
import sys

def refuse(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.")):
        raise RuntimeError(f"{event} {arguments}")

sys.addaudithook(refuse)
import socket
try:
    socket.create_connection(("127.0.0.1", 9))
except RuntimeError:
    pass
else:
    raise SystemExit("the hook refuses nothing")

import torch
before = set(sys.modules)
import iou_losses
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - {"iou_losses"} - sys.stdlib_module_names
assert loaded <= {"torch"}, loaded

boxes = torch.tensor([[2.0, 3, 9, 8], [4, 1, 12, 7]], requires_grad=True)
target, scores = torch.tensor([[4.0, 1, 12, 7]] * 2), torch.tensor([0.5, 0.9])
for name, function in vars(iou_losses).items():
    if name.endswith("_loss"):
        options = {"image_size": (9, 9)} if name == "mpdiou_loss" else {}
        function(boxes, target, "sum", **options).backward()
iou_losses.nms(boxes.detach(), scores, 0.5)
iou_losses.best_match(boxes.detach(), target)
evaluation = iou_losses.AveragePrecision()
found = {"boxes": boxes.detach(), "scores": scores, "labels": torch.tensor([0, 0])}
evaluation.update([found], [{"boxes": target[:1], "labels": torch.tensor([0])}])
evaluation.compute()
"""


@pytest.mark.slow
def test_no_connection_is_opened_at_import_or_at_run_time_and_torch_is_all_it_needs():
    result = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


# Calls by which text or a file becomes code, and what it takes to make one harmless.
CODE = {"eval", "exec", "compile", "__import__", "execfile"}
UNPICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
DOWNLOADS = {"urllib", "requests", "httpx", "aiohttp", "socket", "ftplib", "huggingface_hub"}


def faults(source, *, of_package):
    """What the source calls or imports that it must not, each as `line: what`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            safe = any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords)
            if name == "torch.load" and not safe:
                yield f"{node.lineno}: torch.load without weights_only=True"
            if name.startswith("torch.hub.") or name in ("os.system", "os.popen"):
                yield f"{node.lineno}: {name}"
            if of_package and name in CODE:
                yield f"{node.lineno}: {name}"
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        forbidden = UNPICKLES | (DOWNLOADS | {"subprocess"} if of_package else set())
        yield from (f"{node.lineno}: import {name}" for name in modules if name.partition(".")[0] in forbidden)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import torch\ntorch.load('x')", 1),
        ("torch.load('x', weights_only=False)", 1),
        ("torch.load('x', weights_only=True)", 0),
        ("import pickle", 1),
        ("from joblib import load", 1),
        ("eval('1')\nexec('1')", 2),
        ("model.eval()", 0),
        ("import urllib.request\nfrom requests import get\nimport subprocess", 3),
        ("torch.hub.load('a', 'b')", 1),
        ("import ctypes\nimport torch.utils", 0),
    ],
)
def test_the_search_finds_what_it_is_for(source, count):
    assert len(list(faults(source, of_package=True))) == count


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_runs_text_or_loads_a_pickle(path):
    of_package = ROOT / "iou_losses" in path.parents
    assert not list(faults(path.read_text(), of_package=of_package))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_shows_how_to_load_a_pickle(path):
    text = path.read_text()
    assert not re.findall(r"torch\.load\((?!.*weights_only=True)|pickle\.loads?\(|weights_only=False", text)


TOOLS = {"docs"}  # which no user installs: a site that builds the same tomorrow


def shuts_out(requirement):
    """Whether some later version is excluded."""
    return any(specifier.operator in ("<", "<=", "==", "===", "~=") for specifier in Requirement(requirement).specifier)


def test_no_requirement_shuts_out_a_later_version():
    tomllib = pytest.importorskip("tomllib", reason="part of Python since 3.11")
    assert shuts_out("torch<3")
    assert shuts_out("torch~=2.6")
    assert not shuts_out("torch>=2.6,!=2.7.0")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = settings["project"]["optional-dependencies"]
    requirements = [*settings["build-system"]["requires"], *settings["project"]["dependencies"]]
    requirements += [each for name in extras.keys() - TOOLS for each in extras[name]]
    assert len(requirements) > 10
    assert not list(filter(shuts_out, requirements))
    assert "<" not in settings["project"]["requires-python"]
    assert [Requirement(each).name for each in settings["project"]["dependencies"]] == ["torch"]
