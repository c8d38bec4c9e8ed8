"""torch.compile: one graph, forward and backward, that serves any number of boxes without compiling again."""

import os
import shutil
from unittest import mock

import pytest
import torch
from cases import ciou, every_matrix, ordinary_pairs
from subjects import assert_same, boxes, every_subject_thoroughly, value_and_gradient

from iou_losses import native, native_isa

pytestmark = [pytest.mark.usefixtures("fresh_compiler"), pytest.mark.filterwarnings("ignore:`?torch.jit")]
SIZES = (20, 33, 7)
compiler = shutil.which(os.environ.get("CXX", "g++"))  # the one that inductor takes


@pytest.fixture(params=["engine", "formula"])
def engine(request):
    """With the engine's operator in the graph, and with the formula."""
    if request.param == "engine":
        if native_isa() is None:
            pytest.skip("the engine is not built or turned off")
        yield
    else:
        with mock.patch.object(native, "_library", None):
            yield


def assert_compiles(build, backend):
    criterion = build("mean")
    compiled = torch.compile(criterion, backend=backend, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in SIZES:
            assert_same(value_and_gradient(compiled, *boxes(n)), value_and_gradient(criterion, *boxes(n)))


@pytest.mark.slow
@every_subject_thoroughly
def test_forward_and_backward_are_one_graph_for_any_number_of_boxes(build, engine):
    assert_compiles(build, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(compiler is None, reason="inductor needs a C++ compiler")
@every_subject_thoroughly
def test_inductor_gives_the_same_values_and_gradients(build, engine):
    assert_compiles(build, "inductor")


def operators_of(function, *arguments):
    """The names of the operators that torch.compile finds in a function, which is called."""
    found = []

    def backend(graph, example_inputs):
        found.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    return found


in_graph = pytest.mark.skipif(
    native_isa() is None or not hasattr(torch.compiler, "is_exporting"), reason="needs the engine and a recent torch"
)


@in_graph
@pytest.mark.slow
def test_the_engine_is_one_operator_of_the_graph_with_the_bits_of_the_eager_call():
    pred, target = ordinary_pairs(50, 7, torch.float32)
    assert any("iou_losses.paired" in name for name in operators_of(ciou.loss, pred, target))
    compiled = torch.compile(ciou.loss, backend="aot_eager", fullgraph=True)
    for dtype in (torch.float32, torch.float64, torch.float16):
        leaf, other = pred.to(dtype, copy=True).requires_grad_(), target.to(dtype)
        (gradient,) = torch.autograd.grad(compiled(leaf, other).sum(), leaf)
        assert torch.equal(gradient, torch.autograd.grad(ciou.loss(leaf, other).sum(), leaf)[0])


@in_graph
@pytest.mark.slow
@pytest.mark.skipif(compiler is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_it_compiles_again_once_and_never_more_however_the_number_of_boxes_changes(reduction):
    compiled = torch.compile(ciou.build(reduction), fullgraph=True)
    graphs = []
    for n in (64, 1_024, 5_000, 100_000, 2, 7):  # inductor splits a sum above 4,096
        pred, target = ordinary_pairs(n, n, torch.float32)
        loss = compiled(pred.requires_grad_(), target)
        loss.sum().backward()
        torch.testing.assert_close(loss, ciou.loss(pred, target, reduction), rtol=1e-6, atol=0)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs == [1, 2, 2, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("factors", [(7.0, 3.0, 1.0, 2.0, 0.5, 1.0), (7, 3, 1, 2, 1)], ids=["floats", "integers"])
def test_it_compiles_again_once_however_avg_factor_changes(factors, engine):
    compiled = torch.compile(ciou.loss, backend="aot_eager", fullgraph=True)
    pred, target = ordinary_pairs(10, 3, torch.float32)
    for factor in factors:
        found = compiled(pred.requires_grad_(), target, "mean", avg_factor=factor)
        torch.testing.assert_close(found, ciou.loss(pred, target, "mean", avg_factor=factor))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


@pytest.mark.slow
def test_avg_factor_may_be_a_number_that_the_graph_computes(engine):
    def mean(pred, target, mask):
        return ciou.loss(pred, target, "mean", avg_factor=max(mask.sum().item(), 1))

    pred, target = ordinary_pairs(10, 4, torch.float32)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(mean, backend="aot_eager", fullgraph=True)
        for count in (4, 0):
            mask = torch.arange(10) < count
            torch.testing.assert_close(compiled(pred, target, mask), mean(pred, target, mask))


@pytest.mark.slow
def test_the_number_of_boxes_may_depend_on_data(engine):
    def mean(pred, target, mask):
        return ciou.loss(pred[mask], target[mask], "mean")

    pred, target = ordinary_pairs(10, 4, torch.float32)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(mean, backend="aot_eager", fullgraph=True)
        for count in (4, 0, 10):
            mask = torch.arange(10) < count
            torch.testing.assert_close(compiled(pred.requires_grad_(), target, mask), mean(pred, target, mask))


@pytest.mark.slow
def test_a_perfect_box_has_no_loss_however_small_avg_factor(engine):
    boxes, _ = ordinary_pairs(10, 5, torch.float32)
    assert torch.compile(ciou.loss, backend="aot_eager")(boxes, boxes, "mean", avg_factor=1e-39) == 0


@in_graph
@pytest.mark.slow
def test_a_graph_refuses_a_second_derivative_of_the_operator():
    pred, target = ordinary_pairs(10, 6, torch.float32)
    loss = torch.compile(ciou.loss, backend="eager", fullgraph=True)(pred.requires_grad_(), target, "sum")
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(loss, pred, create_graph=True)


@in_graph
def test_the_operators_read_nothing_that_is_not_there():
    pred, target = ordinary_pairs(10, 7, torch.float32)
    paired, matrix = torch.ops.iou_losses.paired, torch.ops.iou_losses.matrix
    for other in (target[:3], target.double(), target[:, :3]):
        with pytest.raises(ValueError, match="boxes"):
            paired(pred, other, False, True, "ciou_cost", "xyxy", "xyxy", 0.0)
    for other in (target.double(), target[:, :3]):
        with pytest.raises(ValueError, match="the engine has no iou_matrix of boxes"):
            matrix(pred, other, "iou_matrix", "xyxy", "xyxy")
    with pytest.raises(ValueError, match="the engine has no nonsense of boxes"):
        paired(pred, target, False, True, "nonsense", "xyxy", "xyxy", 0.0)


@in_graph
@pytest.mark.slow
def test_the_formula_is_in_the_graph_where_the_operator_does_not_serve():
    pred, target = ordinary_pairs(20, 8, torch.float32)
    wanted = target.clone().requires_grad_()
    for function in (
        lambda: ciou.loss(pred, wanted),
        lambda: torch.func.grad(lambda boxes: ciou.loss(boxes, target, "sum"))(pred),
        lambda: torch.func.vmap(ciou.loss)(pred, target),
    ):
        assert not any("iou_losses" in name for name in operators_of(function))
    for strict in (True, False):
        exported = torch.export.export(ciou.build("mean"), (pred, target), strict=strict)
        assert "iou_losses" not in exported.graph_module.code


@in_graph
@pytest.mark.slow
@every_matrix
def test_a_matrix_is_one_operator_of_the_graph_or_the_formula_where_a_gradient_is_wanted(case):
    pred, target = ordinary_pairs(30, 9, torch.float32)
    assert any("iou_losses.matrix" in name for name in operators_of(case.matrix, pred, target[:7]))
    compiled = torch.compile(case.matrix, backend="aot_eager", fullgraph=True, dynamic=True)
    for boxes1, boxes2 in ((pred, target[:7]), (pred[:3], target), (pred.reshape(3, 10, 4), target[:5])):
        assert torch.equal(compiled(boxes1, boxes2), case.matrix(boxes1, boxes2))
    assert not any("iou_losses" in name for name in operators_of(case.matrix, pred.requires_grad_(), target))
