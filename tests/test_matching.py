"""Matching: the best partner in bounded memory, labels by two thresholds, one-to-one assignment."""

import itertools
import math
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from awkward import awkward_pairs
from optional import matcher, tv_tensors

import iou_losses
from iou_losses import (
    as_metric,
    assign,
    best_match,
    box_iou,
    complete_box_iou,
    distance_box_iou,
    eiou_loss,
    generalized_box_iou,
    match,
    match_boxes,
    matching_cost,
    metric,
    native,
    siou_loss,
)

FOUR = (box_iou, generalized_box_iou, distance_box_iou, complete_box_iou)
FORMATS = ("xyxy", "xywh", "cxcywh", "ltrb", "xyxy_inclusive")
every_metric = pytest.mark.parametrize("similarity", FOUR, ids=lambda f: f.__name__)


def formula(similarity):
    """The same metric, unknown to the engine."""
    return lambda boxes1, boxes2, fmt="xyxy": similarity(boxes1, boxes2, fmt)


def boxes(n, seed=0, span=100.0, side=40.0, dtype=torch.float32):
    random = torch.rand(2, n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cat([random[0] * span, random[0] * span + random[1] * side + 1], 1).to(dtype)


def grid(n, seed=0, dtype=torch.float32):
    """Boxes with whole coordinates: many equal similarities."""
    random = torch.randint(0, 6, (2, n, 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([random[0], random[0] + random[1] + 1], 1).to(dtype)


@pytest.fixture(params=["engine", "formula"])
def engine(request):
    """With the native engine and without."""
    if request.param == "formula":
        with mock.patch.object(native, "_library", None):
            yield
    else:
        yield


@pytest.fixture
def small_tiles():
    with mock.patch.object(iou_losses.matching, "PAIRS", 64):
        yield


def assert_best(found, matrix):
    values, indices = matrix.max(-1)
    assert torch.equal(found.values, values)
    assert torch.equal(found.indices, indices)


# best_match


@every_metric
@pytest.mark.parametrize("shape", [(1, 1), (5, 700), (16, 3), (700, 5), (513, 1030)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_best_match_is_that_of_the_whole_matrix_to_the_bit(similarity, shape, dtype, engine):
    boxes1, boxes2 = boxes(shape[0], 1, dtype=dtype), boxes(shape[1], 2, dtype=dtype)
    assert_best(best_match(boxes1, boxes2, similarity), similarity(boxes1, boxes2))


@every_metric
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_gives_the_best_of_its_matrix(similarity, fmt, engine):
    boxes1, boxes2 = boxes(600, 3), boxes(40, 4)
    for few, many in ((boxes2, boxes1), (boxes1, boxes2)):
        assert_best(best_match(few, many, similarity, fmt=fmt), similarity(few, many, fmt=fmt))


@every_metric
def test_awkward_boxes_have_the_best_of_their_matrix(similarity, engine):
    pred, target, _ = awkward_pairs(900, seed=5)
    assert_best(best_match(pred[::3], target[::2], similarity), similarity(pred[::3], target[::2]))


def test_of_equal_similarities_the_first_wins(engine):
    boxes1, boxes2 = grid(300), grid(200, 1)
    for few, many in ((boxes2[:9], boxes1), (boxes1, boxes2)):
        rows = box_iou(few, many).tolist()
        assert best_match(few, many).indices.tolist() == [row.index(max(row)) for row in rows]
        assert sum(row.count(max(row)) > 1 for row in rows) > len(rows) / 9


def test_leading_dimensions_broadcast(engine):
    boxes1, boxes2 = boxes(600).reshape(3, 1, 200, 4), boxes(40).reshape(2, 20, 4)
    found = best_match(boxes1, boxes2)
    assert found.values.shape == (3, 2, 200)
    assert_best(found, box_iou(boxes1, boxes2))


def test_without_a_partner_there_is_minus_infinity_and_minus_1(engine):
    found = best_match(boxes(3), torch.zeros(0, 4))
    assert found.values.tolist() == [-math.inf] * 3
    assert found.indices.tolist() == [-1] * 3
    assert best_match(torch.zeros(2, 0, 4), boxes(3)).indices.shape == (2, 0)
    assert best_match(torch.zeros(2, 5, 4), torch.zeros(2, 0, 4)).values.shape == (2, 5)


@every_metric
def test_nan_is_never_the_best(similarity, engine):
    boxes1, boxes2 = boxes(50), boxes(30, 1)
    padded = torch.cat([torch.full((1, 4), math.nan), boxes2, torch.full((7, 4), math.nan)])
    expected = similarity(boxes1, boxes2).max(-1)
    found = best_match(boxes1, padded, similarity)
    torch.testing.assert_close(found.values, expected.values)
    assert torch.equal(found.indices, expected.indices + 1)
    assert best_match(padded[:1], boxes1, similarity) == (-math.inf, -1)


def test_small_floats_and_integers_are_computed_as_the_matrix_is(engine):
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        boxes1, boxes2 = boxes(70).to(dtype), boxes(20, 1).to(dtype)
        assert_best(best_match(boxes1, boxes2), box_iou(boxes1, boxes2))


def test_boxes_bring_their_own_format(engine):
    corners = tv_tensors.BoundingBoxes(boxes(30), format="XYXY", canvas_size=(200, 200))
    sized = boxes(20, 1)
    sized[:, 2:] -= sized[:, :2]
    sized = tv_tensors.BoundingBoxes(sized, format="XYWH", canvas_size=(200, 200))
    assert_best(best_match(corners, sized), box_iou(corners, sized))
    assert_best(best_match(sized, corners), box_iou(sized, corners))
    assert_best(best_match(corners, sized, formula(box_iou)), box_iou(corners, sized))
    assert torch.equal(
        match_boxes(corners, sized, high=0.5, low=0.3), match(box_iou(corners, sized), high=0.5, low=0.3)
    )


@pytest.mark.parametrize("similarity", [as_metric(siou_loss), as_metric(eiou_loss), formula(box_iou)])
def test_any_metric_gives_the_best_of_its_matrix_tile_by_tile(similarity, small_tiles):
    for n, m in ((50, 11), (3, 100), (90, 2)):
        boxes1, boxes2 = boxes(n), boxes(m, 1)
        assert_best(best_match(boxes1, boxes2, similarity), similarity(boxes1, boxes2))
    batch = boxes(120).reshape(4, 30, 4)
    assert_best(best_match(batch, boxes(50, 2), similarity), similarity(batch, boxes(50, 2)))


def test_no_tile_is_larger_than_it_should_be(small_tiles):
    sizes = []

    def metric(boxes1, boxes2, fmt):
        result = box_iou(boxes1, boxes2, fmt)
        sizes.append(result.numel())
        return result

    for batch, n, m in ((1, 50, 11), (1, 3, 1000), (4, 100, 2), (1, 1000, 1)):
        best_match(boxes(batch * n).reshape(batch, n, 4), boxes(m), metric)
    assert max(sizes) <= 64


@every_metric
def test_the_gradient_is_that_of_the_matrix(similarity):
    boxes1, boxes2 = boxes(40, dtype=torch.float64), boxes(30, 1, dtype=torch.float64)

    def gradients(call):
        both = boxes1.clone().requires_grad_(), boxes2.clone().requires_grad_()
        return torch.autograd.grad(call(*both).square().sum(), both)

    expected = gradients(lambda a, b: similarity(a, b).max(-1).values)
    whole = gradients(lambda a, b: best_match(a, b, similarity).values)
    with mock.patch.object(iou_losses.matching, "PAIRS", 64):
        tiled = gradients(lambda a, b: best_match(a, b, similarity).values)
    for found in (whole, tiled):
        for gradient, right in zip(found, expected, strict=True):
            torch.testing.assert_close(gradient, right)


def test_a_tiled_gradient_keeps_no_tile_of_the_matrix(small_tiles):
    boxes1, kept = boxes(64).requires_grad_(), {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        values = best_match(boxes1, boxes(64, 1), formula(box_iou)).values
    assert sum(kept.values()) < 64 * 64 * 4
    values.sum().backward()
    assert boxes1.grad.isfinite().all()


def test_negated_strided_and_expanded_boxes_are_read_right(engine):
    plain = boxes(60)
    strided = torch.empty(60, 8)[:, ::2].copy_(plain)
    negated = torch.complex(torch.zeros_like(plain), -plain).conj().imag
    assert negated.is_neg()
    for other in (strided, negated, plain.expand(3, 60, 4)[1]):
        assert_best(best_match(other, plain[:20]), box_iou(plain, plain[:20]))
        assert_best(best_match(plain[:20], other), box_iou(plain[:20], plain))


def test_two_threads_give_what_one_gives():
    boxes1, boxes2 = boxes(4_000), boxes(100, 1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = best_match(boxes1, boxes2, complete_box_iou)
        torch.set_num_threads(3)
        three = best_match(boxes1, boxes2, complete_box_iou)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one.values, three.values)
    assert torch.equal(one.indices, three.indices)


def test_wrong_arguments_of_best_match_say_what_is_allowed():
    with pytest.raises(ValueError, match=r"\(3, 5\)"):
        best_match(torch.zeros(3, 5), torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"leading dimensions"):
        best_match(torch.zeros(4), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="'xyxy'"):
        best_match(torch.zeros(3, 4), torch.zeros(3, 4), fmt="yxyx")
    with pytest.raises(ValueError, match=r"shape \(3, 2\) for these boxes, got \(3,\)"):
        best_match(torch.zeros(3, 4), torch.zeros(2, 4), lambda a, b, fmt: a[:, 0])
    with pytest.raises(TypeError, match="list"):
        best_match([[0, 0, 1, 1]], torch.zeros(3, 4))


# match and match_boxes


def torchvision_match(similarity, high, low, force_best):
    return matcher.Matcher(high, low, allow_low_quality_matches=force_best)(similarity)


@pytest.mark.parametrize("force_best", [True, False])
@pytest.mark.parametrize("thresholds", [(0.7, 0.3), (0.5, 0.4), (0.5, 0.5), (0.9, 0.0)])
@pytest.mark.parametrize("make", [boxes, grid])
def test_match_is_torchvisions_matcher(thresholds, force_best, make):
    high, low = thresholds
    for seed in range(10):
        similarity = box_iou(make(12, seed), make(150, seed + 100))
        expected = torchvision_match(similarity, high, low, force_best)
        options = {"high": high, "low": low, "force_best": force_best}
        assert torch.equal(match(similarity, floor=-math.inf, **options), expected)
        if similarity.amax(1).min() > 0:
            assert torch.equal(match(similarity, **options), expected)


def test_match_is_torchvisions_matcher_on_any_numbers():
    for seed in range(20):
        similarity = torch.randn(6, 40, generator=torch.Generator().manual_seed(seed)).round(decimals=1)
        for force_best in (True, False):
            found = match(similarity, high=0.7, low=-0.4, force_best=force_best, floor=-math.inf)
            assert torch.equal(found, torchvision_match(similarity, 0.7, -0.4, force_best))


def test_the_three_kinds_of_candidates():
    similarity = torch.tensor([[0.8, 0.7, 0.69, 0.3, 0.29, 0.0]])
    assert match(similarity, high=0.7, low=0.3).tolist() == [0, 0, -2, -2, -1, -1]


def test_all_candidates_that_tie_for_an_objects_best_are_forced():
    similarity = torch.tensor([[0.2, 0.1, 0.2, 0.0]])
    assert match(similarity, high=0.7, low=0.3).tolist() == [0, -1, 0, -1]
    assert match(similarity, high=0.7, low=0.3, force_best=False).tolist() == [-1] * 4


def test_a_forced_candidate_takes_its_own_best_object():
    similarity = torch.tensor([[0.9, 0.0], [0.2, 0.1]])  # the second object's best candidate is the first object's
    assert match(similarity, high=0.7, low=0.3).tolist() == [0, -1]


def test_of_objects_equally_similar_the_first_is_taken():
    assert match(torch.tensor([[0.5], [0.8], [0.8]]), high=0.7, low=0.3).tolist() == [1]


def test_an_object_that_touches_nothing_forces_nothing_unless_the_floor_is_lowered():
    similarity = torch.tensor([[0.8, 0.1, 0.0], [0.0, 0.0, 0.0]])
    assert match(similarity, high=0.7, low=0.3).tolist() == [0, -1, -1]
    assert match(similarity, high=0.7, low=0.3, floor=-math.inf).tolist() == [0, 0, 0]
    assert torchvision_match(similarity, 0.7, 0.3, True).tolist() == [0, 0, 0]
    far_apart = torch.tensor([[-0.9, -0.2, -0.3]])  # GIoU
    assert match(far_apart, high=0.7, low=0.3, floor=-1.0).tolist() == [-1, 0, -1]


def test_a_padded_batch_is_each_of_its_images():
    counts, candidates = (3, 0, 5, 1), 60
    batch, mask = torch.full((4, 5, candidates), 0.99), torch.zeros(4, 5, dtype=torch.bool)
    for image, count in enumerate(counts):
        batch[image, :count] = box_iou(boxes(count, image), boxes(candidates, 9))
        mask[image, :count] = True
    found = match(batch, high=0.5, low=0.2, mask=mask)
    for image, count in enumerate(counts):
        assert torch.equal(found[image], match(batch[image, :count], high=0.5, low=0.2))


def test_empty_matrices_have_no_positives():
    assert match(torch.zeros(0, 3), high=0.7, low=0.3).tolist() == [-1, -1, -1]
    assert match(torch.zeros(2, 4, 0), high=0.7, low=0.3).shape == (2, 0)
    assert match_boxes(torch.zeros(0, 4), boxes(3), high=0.7, low=0.3).tolist() == [-1, -1, -1]
    assert match_boxes(boxes(3), torch.zeros(0, 4), high=0.7, low=0.3).shape == (0,)


def test_nan_is_no_similarity():
    similarity = torch.tensor([[math.nan, 0.8, math.nan], [0.6, math.nan, math.nan]])
    assert match(similarity, high=0.7, low=0.3).tolist() == [1, 0, -1]
    assert match(similarity, high=0.7, low=0.3, floor=-math.inf).tolist() == [1, 0, -1]


def test_match_reads_no_value_on_the_host():
    with torch.device("meta"):  # has shapes and no values
        similarity, mask = torch.zeros(2, 5, 30), torch.ones(2, 5, dtype=torch.bool)
    assert match(similarity, high=0.7, low=0.3, mask=mask).shape == (2, 30)


def test_match_compiles_without_a_break():
    similarity = box_iou(boxes(5), boxes(30, 1))
    compiled = torch.compile(lambda s: match(s, high=0.5, low=0.3), fullgraph=True, backend="eager")
    assert torch.equal(compiled(similarity), match(similarity, high=0.5, low=0.3))


@every_metric
@pytest.mark.parametrize("make", [boxes, grid])
def test_match_boxes_is_match_of_the_matrix(similarity, make, engine):
    objects, candidates = make(7), make(300, 1)
    options = {"high": 0.6, "low": 0.2, "floor": -2.0}
    expected = match(similarity(objects, candidates), **options)
    assert torch.equal(match_boxes(objects, candidates, metric=similarity, **options), expected)
    with mock.patch.object(iou_losses.matching, "PAIRS", 64):
        assert torch.equal(match_boxes(objects, candidates, metric=similarity, **options), expected)


def test_match_boxes_forces_though_rounding_depends_on_the_place_in_a_tile(small_tiles):
    """As it does in torch, whose vectorised functions leave the last elements of a row to scalar ones."""

    def metric(boxes1, boxes2, fmt):
        return box_iou(boxes1, boxes2, fmt) * (1 - 1e-6 * torch.arange(len(boxes2)))

    objects = torch.arange(5.0)[:, None] * 100 + torch.tensor([0.0, 0, 50, 50])
    candidates = objects.repeat_interleave(40, 0) + boxes(200, span=8)[:, :2].repeat(1, 2)
    labels = match_boxes(objects, candidates, high=1.0, low=0.3, metric=metric)
    assert labels.reshape(5, 40).amax(1).tolist() == [0, 1, 2, 3, 4]


def test_match_boxes_takes_padded_batches(small_tiles):
    objects, candidates = boxes(20).reshape(4, 5, 4), boxes(50, 1)
    mask = torch.arange(5) < torch.tensor([[3], [0], [5], [1]])
    found = match_boxes(objects, candidates, high=0.5, low=0.2, mask=mask)
    assert torch.equal(found, match(box_iou(objects, candidates), high=0.5, low=0.2, mask=mask))


@pytest.mark.parametrize("call", [match, lambda s, **options: match_boxes(s[..., :4], s[..., :4], **options)])
def test_wrong_arguments_of_match_say_what_is_allowed(call):
    similarity = torch.rand(3, 5)
    with pytest.raises(ValueError, match=r"low at most high, got 0\.8 and 0\.7"):
        call(similarity, high=0.7, low=0.8)
    with pytest.raises(ValueError, match="finite"):
        call(similarity, high=math.inf, low=0.8)
    with pytest.raises(ValueError, match="floor"):
        call(similarity, high=0.7, low=0.3, floor=math.nan)
    with pytest.raises(ValueError, match=r"\(3,\).*got \(5,\)"):
        call(similarity, high=0.7, low=0.3, mask=torch.ones(5, dtype=torch.bool))
    with pytest.raises(TypeError, match="int64"):
        call(similarity, high=0.7, low=0.3, mask=torch.ones(3, dtype=torch.int64))


def test_match_wants_a_floating_matrix():
    with pytest.raises(TypeError, match="int64"):
        match(torch.zeros(3, 5, dtype=torch.int64), high=0.7, low=0.3)
    with pytest.raises(TypeError, match="list"):
        match([[0.0]], high=0.7, low=0.3)
    with pytest.raises(ValueError, match=r"\(5,\)"):
        match(torch.zeros(5), high=0.7, low=0.3)


# assign and matching_cost


def cheapest(cost):
    """The lowest total of all one-to-one assignments, by trying them."""
    few, many = sorted(cost.shape)
    cost = cost if cost.shape[0] == few else cost.T
    return min(
        sum(cost[i, j].item() for i, j in enumerate(order)) for order in itertools.permutations(range(many), few)
    )


def total(cost, assigned):
    return sum(cost[row, column].item() for column, row in enumerate(assigned.tolist()) if row >= 0)


@pytest.mark.parametrize("shape", [(3, 6), (6, 3), (5, 5), (1, 4)], ids=str)
def test_the_assignment_is_the_cheapest_of_all(shape):
    pytest.importorskip("scipy")
    for seed in range(5):
        cost = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        assigned = assign(cost)
        objects = [row for row in assigned.tolist() if row >= 0]
        assert len(objects) == len(set(objects)) == min(shape)
        assert total(cost, assigned) == pytest.approx(cheapest(cost), abs=1e-5)


def test_a_padded_batch_is_assigned_image_by_image():
    pytest.importorskip("scipy")
    cost, mask = torch.randn(2, 2, 4, 9), torch.arange(4) < torch.tensor([[[4], [0]], [[1], [3]]])
    assigned = assign(cost, mask=mask)
    assert assigned.shape == (2, 2, 9)
    for i, j in itertools.product(range(2), range(2)):
        count = int(mask[i, j].sum())
        assert torch.equal(assigned[i, j], assign(cost[i, j, :count]))


@pytest.mark.parametrize("forbidden", [math.nan, math.inf, -math.inf])
def test_a_cost_that_is_not_finite_forbids_its_pair(forbidden):
    pytest.importorskip("scipy")
    assert assign(torch.tensor([[forbidden, 9.0], [0.0, 0.0]])).tolist() == [1, 0]
    assert assign(torch.tensor([[forbidden, 9.0], [forbidden, 1.0]])).tolist() == [-1, 1]
    assert assign(torch.full((2, 3), forbidden)).tolist() == [-1, -1, -1]


def test_as_many_pairs_as_can_be_are_assigned_however_dear():
    pytest.importorskip("scipy")
    cost = torch.tensor([[1.0, 1e6, math.nan], [math.nan, -1e6, 2.0], [0.0, math.nan, math.nan]])
    assert sorted(assign(cost).tolist()) == [0, 1, 2]


def test_nothing_to_assign():
    pytest.importorskip("scipy")
    assert assign(torch.zeros(0, 3)).tolist() == [-1, -1, -1]
    assert assign(torch.zeros(3, 0)).shape == (0,)
    assert assign(torch.zeros(0, 2, 3)).shape == (0, 3)


def test_without_scipy_assign_says_what_to_install():
    with mock.patch.dict(sys.modules, {"scipy.optimize": None}), pytest.raises(ImportError, match="pip install scipy"):
        assign(torch.zeros(2, 3))


def test_wrong_arguments_of_assign_say_what_is_allowed():
    with pytest.raises(TypeError, match="bool"):
        assign(torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        assign(torch.zeros(3))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        assign(torch.zeros(2, 3), mask=torch.ones(3, dtype=torch.bool))


@every_metric
def test_the_cost_is_detrs(similarity):
    true, pred = boxes(6).reshape(2, 3, 4), boxes(20, 1).reshape(2, 10, 4)
    labels = torch.tensor([[0, 4, 2], [1, 1, 3]])
    scores = torch.rand(2, 10, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    cost = matching_cost(true, pred, labels, scores, metric=similarity, box_weight=3.0, class_weight=0.5)
    matrix = similarity(true, pred)
    for image, i, j in itertools.product(range(2), range(3), range(10)):
        expected = -3 * matrix[image, i, j] - 0.5 * scores[image, j, labels[image, i]]
        torch.testing.assert_close(cost[image, i, j], expected)
    torch.testing.assert_close(matching_cost(true, pred), -2 * generalized_box_iou(true, pred))


def test_every_prediction_that_is_right_takes_its_object():
    pytest.importorskip("scipy")
    true = boxes(6, span=1000)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    pred = torch.cat([true, boxes(14, 1, span=1000)])[order] + 0.25
    expected = order.where(order < 6, -1)
    for similarity in (*FOUR, as_metric(siou_loss)):
        assert torch.equal(assign(matching_cost(true, pred, metric=similarity)), expected)


def test_wrong_arguments_of_the_cost_say_what_is_allowed():
    true, pred, labels, scores = boxes(2), boxes(3), torch.zeros(2, dtype=torch.int64), torch.rand(3, 4)
    with pytest.raises(ValueError, match="got true_labels alone"):
        matching_cost(true, pred, labels)
    with pytest.raises(ValueError, match="got class_scores alone"):
        matching_cost(true, pred, None, scores)
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3, C\)"):
        matching_cost(true, pred, torch.zeros(3, dtype=torch.int64), scores)
    with pytest.raises(ValueError, match=r"metric must give"):
        matching_cost(true, pred, metric=lambda a, b, fmt: metric.PAIRS)


A_MILLION_BY_A_THOUSAND = """
import sys, torch
from iou_losses import best_match, box_iou, match_boxes, native_isa

many = 1_000_000 if native_isa() else 100_000  # of which the formula's operators would fill gigabytes, too
random = torch.rand(many + 1_000, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([9_000, 9_000, 50, 50])
boxes1, boxes2 = random.split((many, 1_000))
metric = {"engine": box_iou, "tiles": lambda *both, fmt: box_iou(*both, fmt)}[sys.argv[1]]
found = best_match(boxes1, boxes2, metric, fmt="xywh")
labels = match_boxes(boxes2, boxes1, high=0.7, low=0.3, metric=metric, fmt="xywh")
some = torch.arange(0, many, 9_973)
matrix = box_iou(boxes1[some], boxes2, fmt="xywh")
assert torch.equal(found.values[some], matrix.amax(-1))
assert torch.equal(found.indices[some], matrix.argmax(-1))
assert torch.equal(labels[found.values >= 0.7], found.indices[found.values >= 0.7])
# Not ru_maxrss: it begins with the peak of the process that started this one.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
@pytest.mark.parametrize("way", ["engine", "tiles"])
def test_a_million_by_a_thousand_match_within_a_gibibyte_torch_included(way):
    process = subprocess.run([sys.executable, "-c", A_MILLION_BY_A_THOUSAND, way], check=True, stdout=subprocess.PIPE)
    assert int(process.stdout) < 1 << 20  # KiB


def test_the_lines_of_the_docs_run():
    pytest.importorskip("scipy")
    page = (Path(__file__).parent.parent / "docs" / "four_jobs.md").read_text(encoding="utf-8")
    some, scores, classes = boxes(40), torch.linspace(0, 1, 40), torch.arange(40) % 3
    names = {
        "anchors": boxes(300, 1),
        "objects": boxes(5, 2),
        "predictions": some,
        "object_labels": torch.arange(5) % 3,
        "class_scores": torch.rand(40, 3),
        "boxes": some,
        "scores": scores,
        "classes": classes,
        "targets": [{"boxes": boxes(5, 2), "labels": torch.arange(5) % 3}],
    }
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        if "evaluation.update" in block:
            names["predictions"] = [{"boxes": some, "scores": scores, "labels": classes}]
        exec(block, names)
        assert sum(not line.startswith("from ") for line in block.splitlines() if line) <= 3
    assert len(blocks) == 7
    assert names["voc"].rule == "voc"
