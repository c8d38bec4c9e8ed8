"""The engine gets bare pointers: no tensor that a public call accepts makes it read or write beyond its memory.

What would crash runs in a child process, where a crash is a failed assertion.
"""

import contextlib
import ctypes
import faulthandler
import functools
import mmap
import multiprocessing
import sys
import warnings

import pytest
import torch
from awkward import awkward_pairs
from cases import CASES, every_loss, ordinary_pairs
from torch._subclasses.fake_tensor import FakeTensorMode

import iou_losses
from iou_losses import native
from iou_losses.native import jobs

pytestmark = [
    pytest.mark.skipif(iou_losses.native_isa() is None, reason="the engine is not built or turned off"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # since 3.12, of a process with threads
]
forks = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
fenced = pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="mprotect is POSIX")
PRED, TARGET = ordinary_pairs(37, 1, torch.float32)
SCORES = torch.linspace(0, 1, 37)

# Every public way to the engine but the losses, which `every_loss` names.
CALLS = {
    "box_iou": iou_losses.box_iou,
    "complete_box_iou": iou_losses.complete_box_iou,
    "paired_iou": iou_losses.paired_iou,
    "best_match": iou_losses.best_match,
    "match_boxes": lambda one, two: iou_losses.match_boxes(one, two, high=0.7, low=0.3),
    "nms": lambda one, two: iou_losses.nms(one, SCORES, 0.5),
    "nms of classes": lambda one, two: iou_losses.nms(two, SCORES, 0.5, labels=torch.arange(37) % 3),
    "soft_nms": lambda one, two: iou_losses.soft_nms(one, SCORES),
    "label_detections": lambda one, two: iou_losses.label_detections(one, SCORES, two),
    "detection_accuracy": iou_losses.detection_accuracy,
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def unaligned(boxes):
    """The boxes in memory that begins at an odd address."""
    size = boxes.element_size()
    memory = bytearray(boxes.numel() * size + 1)
    moved = torch.frombuffer(memory, dtype=boxes.dtype, offset=1, count=boxes.numel()).view(boxes.shape)
    assert moved.data_ptr() % size
    return moved.copy_(boxes)


# The same boxes in other memory.
VIEWS = {
    "transposed": lambda boxes: boxes.t().contiguous().t(),
    "every third row": lambda boxes: boxes.repeat_interleave(3, 0)[1::3],
    "from the middle of a larger tensor": lambda boxes: torch.cat([boxes, boxes, boxes])[len(boxes) : 2 * len(boxes)],
    "columns of a wider tensor": lambda boxes: torch.cat([boxes, boxes], -1)[:, 4:],
    "negative": lambda boxes: torch.complex(boxes, -boxes).conj().imag,
    "unaligned": unaligned,
    "parameter": torch.nn.Parameter,
    "wants a gradient": lambda boxes: boxes.clone().requires_grad_(),
    "inference": torch.inference_mode()(torch.clone),
}


def all_equal(found, expected):
    return torch.equal(found, expected) if isinstance(found, torch.Tensor) else all(map(torch.equal, found, expected))


@every_call
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_boxes_in_any_memory_give_the_same_bits(call, view):
    # By the formula where a gradient is wanted, whose last bits are its own.
    plain, seen = (PRED, TARGET), (view(PRED), view(TARGET))
    assert torch.equal(seen[0], PRED)
    with torch.no_grad():
        assert all_equal(call(*seen), call(*plain))


@every_call
def test_boxes_that_share_one_place_in_memory_are_read_from_there(call):
    one, other = PRED[:1].expand(37, 4), TARGET[:1, :1].expand(37, 4)
    assert all_equal(call(one, other), call(one.contiguous(), other.contiguous()))


def converts(dtype):
    """Whether torch has a way to this dtype and back."""
    try:
        PRED.to(dtype).double()
    except (RuntimeError, NotImplementedError):
        return False
    return True


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what is experimental, and what loses digits or an imaginary part
    DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype) and converts(d)}, key=str)


@every_call
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*omplex:UserWarning")
def test_a_dtype_is_converted_or_refused(call, dtype):
    boxes = [(PRED / 8).to(dtype), (TARGET / 8).to(dtype)]
    if dtype == torch.bool or dtype.is_complex:
        with pytest.raises(TypeError, match=str(dtype)):
            call(*boxes)
        return
    computed_in = torch.float32 if dtype.is_floating_point and dtype != torch.float64 else torch.float64
    assert all_equal(call(*boxes), call(*(each.to(computed_in) for each in boxes)))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4), (0, 2, 4)], ids=str)
def test_without_boxes_nothing_is_read(shape):
    nothing, some = torch.zeros(shape), torch.zeros(*shape[:-2], 3, 4)
    for case in CASES:
        for reduction in ("none", "mean", "sum"):
            assert not case.loss(nothing, nothing, reduction).count_nonzero()
    for matrix in (case.matrix for case in CASES if case.matrix):
        for one, two in ((nothing, nothing), (nothing, some), (some, nothing)):
            assert matrix(one, two).shape == (*shape[:-2], one.shape[-2], two.shape[-2])
            assert iou_losses.best_match(one, two, matrix).values.shape == one.shape[:-1]


class Holds(torch.Tensor):
    """A subclass that says it has boxes and has no memory."""

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return arguments[0]


class Lies(torch.Tensor):
    """A subclass that says it has the shape and the format of other boxes."""

    canvas_size = (9, 9)
    format = type("Format", (), {"value": "XYXY"})
    shape = property(lambda self: torch.Size((1000, 4)))


def escaped(boxes):
    """What a function saw inside of vmap, after it is over."""
    seen = []
    torch.vmap(lambda inside: (seen.append(inside), inside)[1])(boxes[None])
    return seen[0]


def fake(boxes):
    with FakeTensorMode() as mode:
        return mode.from_tensor(boxes)


# Tensors that have no memory, or not the memory that their shape promises. One whose storage was taken away by
# `untyped_storage().resize_(0)` is none of them: torch's own operators crash on it.
STRANGE = {
    "sparse": torch.Tensor.to_sparse,
    "compressed": torch.Tensor.to_sparse_csr,
    "oneDNN": torch.Tensor.to_mkldnn,
    "meta": lambda boxes: boxes.to("meta"),
    "nested": lambda boxes: torch.nested.nested_tensor([boxes, boxes]),
    "jagged": lambda boxes: torch.nested.nested_tensor([boxes, boxes], layout=torch.jagged),
    "quantized": lambda boxes: torch.quantize_per_tensor(boxes, 0.1, 0, torch.quint8),
    "zeros without memory": lambda boxes: torch._efficientzerotensor(tuple(boxes.shape)),
    "functional": torch._to_functional_tensor,
    "escaped from vmap": escaped,
    "fake": fake,
    "holds nothing": lambda boxes: Holds(boxes.shape),
    "lies about its shape": lambda boxes: boxes[:2].as_subclass(Lies),
    "uninitialized": lambda boxes: torch.nn.UninitializedParameter(),
}
every_strange = pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)


def survives(attempts):
    """Try the calls in a child process; whatever they raise there is well, a crash is not."""
    child = multiprocessing.get_context("fork").Process(target=try_each, args=(attempts,))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def try_each(attempts):
    torch.set_num_threads(1)  # those of the parent are not there
    for attempt in attempts:
        with contextlib.suppress(Exception):
            attempt()


def with_boxes(strange):
    boxes = strange(PRED)
    for call in (*CALLS.values(), *(case.loss for case in CASES)):
        yield lambda call=call: call(boxes, TARGET)
        yield lambda call=call: call(PRED, boxes)


def with_scores(strange):
    nms = functools.partial(iou_losses.nms, threshold=0.5)
    for call in (iou_losses.soft_nms, nms):
        yield lambda call=call: call(PRED, strange(SCORES))
        yield lambda call=call: call(PRED, SCORES, labels=strange(SCORES).long())
        yield lambda call=call: call(PRED, SCORES, labels=strange((9 * SCORES).long()))
    yield lambda: iou_losses.label_detections(PRED, strange(SCORES), TARGET)
    yield lambda: iou_losses.ciou_loss(PRED, TARGET, "mean", weight=strange(SCORES))


@forks
@pytest.mark.filterwarnings("ignore")  # prototypes of torch that say so
@every_strange
def test_a_strange_tensor_is_served_by_torch_or_refused(strange):
    survives([*with_boxes(strange), *with_scores(strange)])


@every_loss
def test_the_default_device_is_not_where_the_engine_writes(case):
    expected = case.value_and_gradient(PRED, TARGET)
    with torch.device("meta"):
        assert all_equal(case.value_and_gradient(PRED, TARGET), expected)


@forks
def test_a_default_device_without_memory_crashes_no_call():
    meta = lambda: torch.set_default_device("meta")  # noqa: E731
    survives([meta, *(functools.partial(call, PRED, TARGET) for call in CALLS.values())])


@pytest.mark.parametrize("name", ["box_iou", "complete_box_iou", "paired_iou", "best_match", "match_boxes"])
def test_a_result_is_where_the_boxes_are(name):
    expected = CALLS[name](PRED, TARGET)
    with torch.device("meta"):
        assert all_equal(CALLS[name](PRED, TARGET), expected)


class Fence:
    """Memory between two pages that nobody may touch."""

    def __init__(self, size):
        self.size, self.pages = size, -(-size // mmap.PAGESIZE)
        self.memory = mmap.mmap(-1, (self.pages + 2) * mmap.PAGESIZE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + mmap.PAGESIZE
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for page in (self.start - mmap.PAGESIZE, self.start + self.pages * mmap.PAGESIZE):
            assert protect(page, mmap.PAGESIZE, 0) == 0

    def tensor(self, like, at_end):
        """A tensor of this shape and dtype that ends, or begins, at a fence."""
        size = like.numel() * like.element_size()
        offset = mmap.PAGESIZE + (self.pages * mmap.PAGESIZE - size if at_end else 0)
        if not size:
            return like
        return torch.frombuffer(self.memory, dtype=like.dtype, offset=offset, count=like.numel()).view(like.shape)


@forks
@fenced
def test_the_fence_is_one():
    beyond = Fence(8)
    assert beyond.tensor(torch.zeros(2), True).sum() == 0
    fence = beyond.start + beyond.pages * mmap.PAGESIZE
    child = multiprocessing.get_context("fork").Process(target=write_to, args=(fence,))
    child.start()
    child.join(60)
    assert child.exitcode < 0


def write_to(address):
    faulthandler.disable()  # the crash is wanted, its report is not
    ctypes.memset(address, 0, 1)


SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 1025)


def beside_a_fence(fences, tensors, at_end):
    placed = [fence.tensor(each, at_end) for fence, each in zip(fences, tensors, strict=True)]
    for there, each in zip(placed, tensors, strict=True):
        there.copy_(each)
    return placed


def run_every_kernel():
    """Call the library with inputs and outputs beside a fence, and compare with the public call."""
    fences = [Fence(1 << 22) for _ in range(4)]
    formulas = {case: formula for case in CASES for formula in [formula_of(case)] if formula is not None}
    for dtype in (torch.float32, torch.float64):
        for n in SIZES:
            pred, target = (boxes[:n].to(dtype) for boxes in awkward_pairs(1025, 4)[:2])
            for at_end in (True, False):
                for case, call in formulas.items():
                    check_paired(call, fences, pred, target, at_end, str(case))
                check_matrices(fences, pred[:65], target[:33], at_end)


def formula_of(case):
    """The engine's call for this loss, as the package makes it; None where there is none."""
    calls = []
    run = native.paired
    native.paired = lambda call, pred, target: (calls.append(call), run(call, pred, target))[1]
    try:
        case.loss(PRED, TARGET)
    finally:
        native.paired = run
    return calls[-1] if calls else None


def check_paired(call, fences, pred, target, at_end, name):
    kernel = native.entry_point(call.formula.__name__, pred.dtype)
    expected = call._replace(kernel=kernel).run(pred, target, True)
    empty = [torch.zeros_like(each) for each in expected]
    pred, target, loss, gradient = beside_a_fence(fences, (pred, target, *empty), at_end)
    kernel(call.pack(pred, target, loss, gradient))
    assert torch.equal(loss.nan_to_num(), expected[0].nan_to_num()), name
    assert torch.equal(gradient.nan_to_num(), expected[1].nan_to_num()), name


def check_matrices(fences, one, two, at_end):
    for public, formula in jobs.FORMULAS:
        expected = public(one, two)
        kernel = native.matrix_kernel(formula, one, two)
        placed = beside_a_fence(fences[:3], (one, two, torch.zeros_like(expected)), at_end)
        kernel(native.MATRIX.pack(1, len(one), len(two), *[each.data_ptr() for each in placed], 0, 0, 1))
        assert torch.equal(placed[2].nan_to_num(), expected.nan_to_num())
        best = iou_losses.best_match(one, two, public)
        placed = beside_a_fence(fences, (one, two, best.values, best.indices), at_end)
        kernel = native.entry_point(f"{formula.__name__}_best", one.dtype)
        kernel(jobs.BEST.pack(1, len(one), len(two), *[each.data_ptr() for each in placed], 0, 0, 1))
        assert torch.equal(placed[3], best.indices)
        keep = torch.zeros(len(one), dtype=torch.bool)
        counts = torch.tensor([len(one)])
        expected = jobs.suppress(jobs.kernel("suppress", public, one, one), one, counts, "xyxy", 0.5)
        counts, boxes, keep = beside_a_fence(fences[:3], (counts, one, keep), at_end)
        kernel = native.entry_point(f"{formula.__name__}_suppress", one.dtype)
        kernel(jobs.SUPPRESS.pack(1, *[each.data_ptr() for each in (counts, boxes, keep)], 0, 0.5))
        assert torch.equal(keep, expected)


def _run_every_kernel():
    torch.set_num_threads(1)
    run_every_kernel()


@forks
@fenced
@pytest.mark.slow
def test_no_kernel_touches_what_lies_beyond_its_arguments():
    child = multiprocessing.get_context("fork").Process(target=_run_every_kernel)
    child.start()
    child.join(300)
    assert child.exitcode == 0
