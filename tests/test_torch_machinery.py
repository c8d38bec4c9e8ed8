"""The rest of PyTorch: compile, export, transforms, other devices."""

import pytest
import torch
from cases import ciou, every_case, every_loss, every_matrix, giou, ordinary_pairs, over
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# torch.func itself still scripts some decompositions.
pytestmark = pytest.mark.filterwarnings("ignore:`?torch.jit")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def boxes(n=20, dtype=torch.float32, seed=1):
    return ordinary_pairs(n, seed, dtype)


def close(a, b, tolerance=1e-6):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def assert_compiles(case, reduction, backend, sizes):
    compiled = torch.compile(case.build(reduction).eval(), backend=backend, fullgraph=True, dynamic=True)
    for n in sizes:
        pred, target = boxes(n)
        expected, expected_gradient = case.value_and_gradient(pred, target, reduction=reduction)
        pred.requires_grad_()
        value = compiled(pred, target)
        value.sum().backward()
        close(value, expected)
        close(pred.grad, expected_gradient)


@every_case
def test_compile_makes_one_graph_for_any_number_of_boxes(case):
    assert_compiles(case, "mean", "eager", [2, 7])


@every_matrix
def test_compile_of_the_function_with_weights_makes_one_graph(case):
    pred, target = boxes()
    compiled = torch.compile(case.loss, backend="eager", fullgraph=True)
    for options in ({"weight": torch.rand(20)}, {"weight": torch.rand(20, 4), "avg_factor": torch.tensor(3.0)}):
        close(compiled(pred, target, "mean", **options), case.loss(pred, target, "mean", **options))
    close(compiled(pred, target, fmt="cxcywh", eps=1e-7), case.loss(pred, target, fmt="cxcywh", eps=1e-7))


@pytest.mark.slow
@over([ciou])  # it has every part that the others have
def test_inductor_gives_the_same_values_and_gradients(case):
    assert_compiles(case, "mean", "inductor", [20, 33])


@every_matrix
def test_compile_of_a_matrix_makes_one_graph(case):
    pred, target = boxes()
    close(torch.compile(case.matrix, backend="eager", fullgraph=True)(pred, target[:7]), case.matrix(pred, target[:7]))


@every_loss
def test_export_serves_any_number_of_boxes(case):
    n = torch.export.Dim("n", min=2)
    program = torch.export.export(case.build("none").eval(), boxes(), dynamic_shapes=({0: n}, {0: n}))
    for size in (20, 5):
        close(program.module()(*boxes(size)), case.loss(*boxes(size)))


@every_loss
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_serves_any_number_of_boxes(case):
    traced = torch.jit.trace(lambda pred, target: case.loss(pred, target), boxes())
    close(traced(*boxes(5)), case.loss(*boxes(5)))


@every_case
def test_vmap_is_the_loss_of_each(case):
    pred, target = boxes()
    value = case.loss(pred, target)
    close(torch.vmap(case.loss)(pred, target), value)
    close(torch.vmap(case.loss)(pred.view(4, 5, 4), target.view(4, 5, 4)).flatten(), value)
    close(torch.vmap(case.loss, in_dims=(0, None))(pred, target[0]), case.loss(pred, target[0].expand(20, 4)))
    close(torch.vmap(lambda p, t: case.loss(p, t, "mean"))(pred[:, None], target[:, None]), value)


@every_case
def test_functional_gradients_are_those_of_backward(case):
    pred, target = boxes(dtype=torch.float64)
    _, by_pred, by_target = case.value_and_gradients(pred, target)
    total = lambda pred, target: case.loss(pred, target, "sum")  # noqa: E731
    close(torch.func.grad(total)(pred, target), by_pred, 1e-12)
    close(torch.func.grad(total, argnums=1)(pred, target), by_target, 1e-12)
    jacobian = torch.func.jacrev(case.loss)(pred, target)
    close(jacobian[range(20), range(20)], by_pred, 1e-12)
    close(torch.vmap(torch.func.grad(case.loss))(pred, target), by_pred, 1e-12)
    _, slope = torch.func.jvp(lambda pred: total(pred, target), (pred,), (torch.ones_like(pred),))
    close(slope, by_pred.sum(), 1e-12)


@every_case
def test_second_derivatives_are_finite_and_the_same_by_every_way(case):
    pred, target = boxes(5, torch.float64)
    total = lambda pred: case.loss(pred, target, "sum")  # noqa: E731
    hessian = torch.func.hessian(total)(pred)
    assert hessian.isfinite().all()
    assert hessian.count_nonzero()
    close(torch.autograd.functional.hessian(total, pred), hessian, 1e-12)
    for dtype in (torch.float32, torch.float64):
        leaf = pred.to(dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(case.loss(leaf, target.to(dtype), "sum"), leaf, create_graph=True)
        gradient.sum().backward()
        close(leaf.grad.double(), hessian.sum((0, 1)), 1e-5 if dtype == torch.float32 else 1e-12)


@every_loss
def test_anomaly_mode_finds_nothing(case):
    pred = torch.tensor([[5.0, 5, 9, 5], [5, 5, 5, 5], [4, 4, 10, 8], [9, 9, 1, 1]], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        case.loss(pred, torch.tensor([[4.0, 4, 10, 8]] * 4)).sum().backward()
    assert pred.grad.isfinite().all()


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_changes_nothing(case, dtype):
    pred, target = boxes()
    expected = case.value_and_gradient(pred, target)
    with torch.autocast("cpu", dtype=dtype):
        found = case.value_and_gradient(pred, target)
        matrix = case.matrix(pred, target) if case.matrix else None
    assert all(map(torch.equal, found, expected))
    assert matrix is None or torch.equal(matrix, case.matrix(pred, target))


@every_loss
def test_meta_tensors_have_shapes_alone(case):
    pred, target = (boxes.to("meta").requires_grad_() for boxes in boxes())
    value = case.loss(pred, target)
    assert (value.shape, value.device.type) == ((20,), "meta")
    value.sum().backward()
    assert pred.grad.shape == (20, 4)
    assert case.target_is_constant or target.grad.shape == (20, 4)
    assert case.build().to("meta")(pred, target, torch.ones(20, device="meta")).shape == ()
    assert case.matrix is None or case.matrix(pred, target[:3]).shape == (20, 3)


@every_loss
def test_without_gradients_the_values_are_the_same(case):
    pred, target = boxes()
    expected, _ = case.value_and_gradient(pred, target)
    with torch.no_grad():
        close(case.loss(pred.clone().requires_grad_(), target), expected)
    with torch.inference_mode():
        close(case.loss(pred, target), expected)
        close(case.loss(pred.clone(), target.clone(), "mean"), expected.mean())
    assert not case.loss(pred, target).requires_grad


@every_case
def test_a_parameter_learns(case):
    target = torch.tensor([[2.0, 2, 8, 8]])
    pred = nn.Parameter(torch.tensor([[1.0, 1, 6, 7]]))
    criterion, optimizer = case.build().eval(), torch.optim.SGD([pred], lr=0.5)
    before = criterion(pred, target).item()
    for _ in range(50):
        optimizer.zero_grad()
        criterion(pred, target).backward()
        optimizer.step()
    assert criterion(pred, target).item() < 0.75 * before


@every_loss
def test_backward_twice_and_with_any_weight(case):
    pred, target = boxes()
    leaf, weight = pred.clone().requires_grad_(), torch.randn(20)
    _, gradient = case.value_and_gradient(pred, target)
    value = case.loss(leaf, target)
    for _ in range(2):
        (found,) = torch.autograd.grad(value, leaf, weight, retain_graph=True)
        close(found, gradient * weight[:, None])
    value.sum().backward()
    close(leaf.grad, gradient)


@every_loss
def test_gradients_of_several_outputs_may_be_taken_at_once(case):
    pred, target = boxes()
    leaf = pred.clone().requires_grad_()
    value = case.loss(leaf, target)
    (jacobian,) = torch.autograd.grad(value, leaf, torch.eye(20), is_grads_batched=True)
    close(jacobian[range(20), range(20)], case.value_and_gradient(pred, target)[1])
    assert jacobian.count_nonzero() <= 80


class CountOperators(TorchDispatchMode):
    """Counts what would be launches on a GPU: operators that are not views."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.count += not function.is_view
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(("case", "most"), [(giou, 155), (ciou, 220)], ids=["giou", "ciou"])
def test_forward_and_backward_take_few_operators(case, most):
    pred, target = boxes()
    pred.requires_grad_()
    one = torch.ones(())
    with CountOperators() as operators:
        case.loss(pred, target, "mean").backward(one)
    assert 50 < operators.count <= most
