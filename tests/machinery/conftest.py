"""Lets the tests of PyTorch's machinery read the rows of tests/cases.py, and gives each a compiler without memories."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
