"""ONNX: the exported formula in another runtime, for any number of boxes and for boxes of every kind."""

import pytest
import torch
from awkward import awkward_pairs
from cases import ciou, diou, giou, iou
from subjects import assert_same, boxes, every_subject_thoroughly
from torch import nn

pytest.importorskip("onnx", reason="needs onnx, onnxscript and onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnx, onnxscript and onnxruntime")
runtime = pytest.importorskip("onnxruntime", reason="needs onnx, onnxscript and onnxruntime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore"),  # the exporter's own, which differ with every version of it
]
N, M = (torch.export.Dim(name, min=2) for name in ("n", "m"))


class Positional(nn.Module):
    """The exporter names its inputs by the forward method: these two."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, pred, target):
        return self.function(pred, target)


def in_onnxruntime(function, pred, target, names):
    dynamic = dict(zip(("pred", "target"), ({0: name} for name in names), strict=True))
    program = torch.onnx.export(
        Positional(function).eval(), (pred, target), dynamo=True, dynamic_shapes=dynamic, verbose=False
    )
    model = program.model_proto.SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    first, second = (node.name for node in session.get_inputs())

    def run(pred, target):
        (result,) = session.run(None, {first: pred.numpy(), second: target.numpy()})
        return torch.from_numpy(result)

    return run


@every_subject_thoroughly
def test_a_loss_is_the_same_in_onnxruntime(build):
    criterion = build("none")
    run = in_onnxruntime(criterion, *boxes(20), (N, N))
    for n in (20, 5, 300):
        assert_same(run(*boxes(n, 2)), criterion(*boxes(n, 2)))
    pred, target, _ = awkward_pairs(3000, 3)
    expected = criterion(pred, target)
    assert_same(run(pred, target), expected, 1e-5)
    assert torch.equal(run(pred, target).isfinite(), expected.isfinite())


@pytest.mark.parametrize(
    "case", [ciou, *(pytest.param(c, marks=pytest.mark.thorough) for c in (iou, giou, diou))], ids=str
)
def test_a_matrix_is_the_same_in_onnxruntime(case):
    pred, target = boxes(50)
    run = in_onnxruntime(case.matrix, pred[:20], target[:7], (N, M))
    for n, m in ((20, 7), (3, 50)):
        assert_same(run(pred[:n], target[:m]), case.matrix(pred[:n], target[:m]))
