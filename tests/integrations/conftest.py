"""What the tests of all integrations share: no network, and a way to take a library away."""

import importlib
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch

os.environ["YOLO_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "true"  # read when the libraries are imported
os.environ.setdefault("YOLO_CONFIG_DIR", str(Path(tempfile.gettempdir()) / "iou_losses_ultralytics"))
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
