"""The engine where the system has no threads left."""

import contextlib
import os
import threading
from pathlib import Path

import awkward
import pytest
import torch
from awkward import awkward_pairs
from cases import iou

import iou_losses

resource = pytest.importorskip("resource")  # Unix
pytestmark = [
    pytest.mark.skipif(iou_losses.native_isa() is None, reason="the engine is not built or turned off"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the size of the process"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer wants more memory"),
]


@contextlib.contextmanager
def no_more_threads():
    """Leave room for small things, not for the stack of one more thread."""
    before, over = resource.getrlimit(resource.RLIMIT_AS), threading.Event()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), before[1]))
    try:
        with contextlib.suppress(RuntimeError):
            while True:  # until what threads have left behind is used up
                threading.Thread(target=over.wait, daemon=True).start()
        yield
    finally:
        over.set()
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_rows_are_computed_where_no_thread_is_to_be_had():
    pred, target, _ = awkward_pairs(140_000, 8, (awkward.near,))
    expected = iou.loss(pred, target, "sum").item()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with no_more_threads():
            with pytest.raises(RuntimeError, match="new thread"):
                threading.Thread(target=print).start()
            found = iou.loss(pred, target, "sum").item()
    finally:
        torch.set_num_threads(threads)
    assert found == pytest.approx(expected, rel=1e-6)
