"""torch.compile: one graph, forward and backward, that serves any number of boxes without compiling again."""

import os
import shutil

import pytest
import torch
from subjects import assert_same, boxes, every_subject_thoroughly, value_and_gradient

pytestmark = [pytest.mark.usefixtures("fresh_compiler"), pytest.mark.filterwarnings("ignore:`?torch.jit")]
SIZES = (20, 33, 7)
compiler = shutil.which(os.environ.get("CXX", "g++"))  # the one that inductor takes


def assert_compiles(build, backend):
    criterion = build("mean")
    compiled = torch.compile(criterion, backend=backend, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in SIZES:
            assert_same(value_and_gradient(compiled, *boxes(n)), value_and_gradient(criterion, *boxes(n)))


@pytest.mark.slow
@every_subject_thoroughly
def test_forward_and_backward_are_one_graph_for_any_number_of_boxes(build):
    assert_compiles(build, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(compiler is None, reason="inductor needs a C++ compiler")
@every_subject_thoroughly
def test_inductor_gives_the_same_values_and_gradients(build):
    assert_compiles(build, "inductor")
