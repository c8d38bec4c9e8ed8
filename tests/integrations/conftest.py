"""What the tests of all integrations share: one thread, no network, and a way to take a library away."""

import atexit
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# Read when the libraries are imported, torch among them, and by the processes that tests start.
os.environ.update(OMP_NUM_THREADS="1", YOLO_OFFLINE="true", HF_HUB_OFFLINE="1")
if "YOLO_CONFIG_DIR" not in os.environ:  # ultralytics' settings, in place of the user's
    os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp(prefix="iou_losses_")
    atexit.register(shutil.rmtree, os.environ["YOLO_CONFIG_DIR"], ignore_errors=True)

import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))  # the digit scenes


@pytest.fixture(autouse=True)
def _same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture
def import_without(monkeypatch):
    """Import an integration anew, as if a library were not installed."""

    def attempt(integration: str, library: str):
        for name in list(sys.modules):
            if name.startswith(f"iou_losses.integrations.{integration}") or name.partition(".")[0] == library:
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        return importlib.import_module(f"iou_losses.integrations.{integration}")

    return attempt
