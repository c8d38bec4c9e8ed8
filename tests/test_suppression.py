"""Suppression, hard and soft, against plain double loops and torchvision."""

import math
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from awkward import awkward_pairs
from optional import ops, tv_tensors

import iou_losses
from iou_losses import (
    as_metric,
    best_match,
    box_iou,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    native,
    nms,
    nwd_loss,
    soft_nms,
)
from iou_losses.native import jobs

FOUR = (box_iou, generalized_box_iou, distance_box_iou, complete_box_iou)
every_metric = pytest.mark.parametrize("similarity", FOUR, ids=lambda f: f.__name__)
every_method = pytest.mark.parametrize("method", ["linear", "gaussian"])


@pytest.fixture(params=["engine", "formula"], autouse=True)
def engine(request):
    """With the native engine and without; then in blocks of a few rows."""
    if request.param == "formula":
        with mock.patch.object(native, "_library", None), mock.patch.object(iou_losses.suppression, "PAIRS", 2_000):
            yield
    else:
        yield


def boxes(n, seed=0, span=100.0, side=60.0, dtype=torch.float32):
    random = torch.rand(2, n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cat([random[0] * span, random[0] * span + random[1] * side + 1], 1).to(dtype)


def grid(n, seed=0, span=20):
    """Boxes with whole coordinates: many IoUs that are equal, and equal to a threshold."""
    random = torch.randint(0, span, (2, n, 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([random[0], random[0] + random[1] % 10 + 1], 1).float()


def distinct_scores(n, seed=0):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)) / n


def tied_scores(n, seed=0):
    return torch.randint(0, 4, (n,), generator=torch.Generator().manual_seed(seed)) / 4


def classes(n, seed=0, count=4):
    return torch.randint(0, count, (n,), generator=torch.Generator().manual_seed(seed))


def plain_nms(boxes, scores, threshold, similarity=box_iou, labels=None, fmt="xyxy"):
    """The definition: a box is kept unless one kept before it is too similar."""
    matrix = similarity(boxes, boxes, fmt).tolist()
    kept = []
    for j in sorted(range(len(boxes)), key=lambda j: -scores[j]):
        rivals = (i for i in kept if labels is None or labels[i] == labels[j])
        if not any(matrix[i][j] > threshold for i in rivals):
            kept.append(j)
    return kept


def plain_soft_nms(boxes, scores, method, sigma, threshold, min_score, similarity=box_iou, labels=None):
    """The definition, in float64."""
    matrix = similarity(boxes, boxes).double().tolist()
    scores, left, picked = scores.double().tolist(), set(range(len(boxes))), []
    while left:
        best = max(left, key=lambda i: (scores[i], -i))
        left.remove(best)
        if scores[best] < min_score:
            break
        picked.append((scores[best], best))
        for j in left:
            s = matrix[best][j]
            if labels is not None and labels[best] != labels[j]:
                continue
            if method == "linear" and s >= threshold:
                scores[j] *= 1 - s
            elif method == "gaussian" and s > 0:
                scores[j] *= math.exp(-s * s / sigma)
    picked.sort(key=lambda pick: (-pick[0], pick[1]))
    return [i for _, i in picked], [score for score, _ in picked]


@every_metric
@pytest.mark.parametrize("threshold", [-0.3, 0.0, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nms_is_the_double_loop(similarity, threshold, dtype):
    for labels in (None, classes(150)):
        some, scores = boxes(150, dtype=dtype), distinct_scores(150)
        expected = plain_nms(some, scores, threshold, similarity, labels)
        assert nms(some, scores, threshold, metric=similarity, labels=labels).tolist() == expected


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.25, 0.3, 1 / 3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("make_scores", [distinct_scores, tied_scores])
def test_nms_is_torchvisions_ties_included(threshold, make_scores):
    for seed in range(3):
        some, scores = grid(400, seed), make_scores(400, seed)
        assert torch.equal(nms(some, scores, threshold), ops.nms(some, scores, threshold))


@pytest.mark.parametrize("span", [100.0, 10_000.0])
def test_nms_is_torchvisions_for_more_boxes_than_a_block_holds(span):
    some, scores = boxes(2_500, span=span), distinct_scores(2_500)
    kept = nms(some, scores, 0.5)
    assert torch.equal(kept, ops.nms(some, scores, 0.5))
    assert span == 100 or len(kept) > 1_024


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.6])
@pytest.mark.parametrize("n", [300, 1_500])  # torchvision has a way of its own for each
def test_nms_of_each_class_is_torchvisions_batched_nms(threshold, n):
    some, scores = grid(n, 1, span=50), distinct_scores(n)
    labels = classes(n, count=7) * 3 - 5
    labels = labels - labels.min()
    expected = ops.batched_nms(some, scores, labels, threshold)
    assert torch.equal(nms(some, scores, threshold, labels=labels), expected)


def test_labels_may_be_any_integers():
    some, scores, labels = boxes(200), tied_scores(200), classes(200)
    expected = nms(some, scores, 0.5, labels=labels)
    for other in (labels - 10, labels * 1_000_000_007, labels.to(torch.uint8), labels.to(torch.int32)):
        assert torch.equal(nms(some, scores, 0.5, labels=other), expected)


def test_a_similarity_of_exactly_the_threshold_lowers_the_score():
    halves = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5]])
    _, scores = soft_nms(halves, torch.tensor([0.75, 0.5]), method="linear", threshold=0.5)
    assert scores.tolist() == [0.75, 0.25]


def test_a_similarity_of_exactly_the_threshold_stays():
    pair = torch.tensor([[0.0, 0, 2, 1], [0, 0, 1, 1]])  # IoU 1/2
    assert nms(pair, torch.tensor([0.9, 0.8]), 0.5).tolist() == [0, 1]
    assert nms(pair, torch.tensor([0.9, 0.8]), math.nextafter(0.5, 0)).tolist() == [0]


def test_of_equal_scores_the_first_comes_first():
    apart = torch.arange(40.0)[:, None] * 10 + torch.tensor([0.0, 0, 1, 1])
    assert nms(apart, torch.ones(40), 0.5).tolist() == list(range(40))
    assert nms(torch.zeros(40, 4) + torch.tensor([0.0, 0, 1, 1]), torch.ones(40), 0.5).tolist() == [0]
    assert soft_nms(apart, torch.ones(40))[0].tolist() == list(range(40))
    assert soft_nms(apart, torch.ones(40), labels=classes(40))[0].tolist() == list(range(40))


@pytest.mark.parametrize("fmt", ["xyxy", "xywh", "cxcywh", "ltrb", "xyxy_inclusive"])
@every_metric
def test_every_format_is_suppressed_by_its_matrix(fmt, similarity):
    some, scores = boxes(120), distinct_scores(120)
    expected = plain_nms(some, scores, 0.4, similarity, fmt=fmt)
    assert nms(some, scores, 0.4, metric=similarity, fmt=fmt).tolist() == expected


def test_boxes_bring_their_own_format():
    sized = tv_tensors.BoundingBoxes(boxes(120), format="XYWH", canvas_size=(200, 200))
    scores = distinct_scores(120)
    assert torch.equal(nms(sized, scores, 0.4), nms(boxes(120), scores, 0.4, fmt="xywh"))
    assert torch.equal(soft_nms(sized, scores)[1], soft_nms(boxes(120), scores, fmt="xywh")[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_small_floats_which_torchvision_refuses_and_integers(dtype):
    some, scores = boxes(150).to(dtype), tied_scores(150)
    exact = some.double()
    assert torch.equal(nms(some, scores.half(), 0.5), nms(exact, scores, 0.5))
    assert torch.equal(nms(some, (scores * 4).long(), 0.5), nms(exact, scores, 0.5))
    torch.testing.assert_close(soft_nms(some, scores)[1], soft_nms(exact, scores)[1], check_dtype=False)


@every_metric
def test_awkward_boxes_are_suppressed_by_their_matrix(similarity):
    some = torch.cat(awkward_pairs(90, seed=3)[:2])
    scores = distinct_scores(len(some))
    assert nms(some, scores, 0.1, metric=similarity).tolist() == plain_nms(some, scores, 0.1, similarity)


def test_no_boxes():
    nothing = torch.zeros(0, 4), torch.zeros(0)
    for labels in (None, torch.zeros(0, dtype=torch.int64)):
        assert nms(*nothing, 0.5, labels=labels).shape == (0,)
        assert nms(*nothing, 0.5, labels=labels).dtype == torch.int64
        indices, scores = soft_nms(*nothing, labels=labels)
        assert indices.shape == scores.shape == (0,)
        assert (indices.dtype, scores.dtype) == (torch.int64, torch.float32)


def test_nan_boxes_suppress_nothing_and_are_kept():
    some, scores = boxes(50), distinct_scores(50)
    some[scores.argmax()] = math.nan
    valid = (~some.isnan().any(1)).nonzero().flatten()
    kept = nms(some, scores, 0.3)
    assert kept[0] == scores.argmax()
    assert torch.equal(kept[1:], valid[nms(some[valid], scores[valid], 0.3)])
    assert len(soft_nms(some, scores)[0]) == len(soft_nms(some[valid], scores[valid])[0]) + 1


def test_nan_scores_count_as_minus_infinity():
    pair, scores = torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]), torch.tensor([math.nan, 0.1, math.nan])
    assert nms(pair, scores, 0.5).tolist() == [1, 2]
    assert soft_nms(pair, scores)[0].tolist() == [1]
    apart = torch.arange(3.0)[:, None] * 10 + torch.tensor([0.0, 0, 1, 1])
    assert nms(apart, torch.tensor([math.nan, -math.inf, 0]), 0.5).tolist() == [2, 0, 1]


@every_method
@every_metric
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_soft_nms_is_the_double_loop(method, similarity, dtype):
    some, scores = boxes(120, dtype=dtype), distinct_scores(120).to(dtype)
    for labels in (None, classes(120)):
        for sigma, threshold, min_score in ((0.5, 0.3, 0.001), (0.1, 0.0, 0.2)):
            arguments = (method, sigma, threshold, min_score, similarity, labels)
            indices, new_scores = plain_soft_nms(some, scores, *arguments)
            options = {"sigma": sigma, "threshold": threshold, "min_score": min_score, "labels": labels}
            found = soft_nms(some, scores, method=method, metric=similarity, **options)
            assert found[0].tolist() == indices
            torch.testing.assert_close(found[1], torch.tensor(new_scores, dtype=dtype))
            assert len(indices) < 120 or min_score < 0.01


@every_method
def test_an_infinite_score_is_picked_once_and_fades_to_no_score(method):
    boxes = torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]])
    indices, scores = soft_nms(boxes, torch.tensor([math.inf, math.inf, 0.5]), method=method)
    assert indices.tolist() == ([0, 2] if method == "linear" else [0, 1, 2])  # infinity times 0 is no number
    assert not scores.isnan().any()


def test_calls_on_several_threads_do_not_meet():
    """The engine releases the interpreter's lock."""
    some, scores, labels = boxes(1_500), distinct_scores(1_500), classes(1_500)

    def call(_=None):
        kept = nms(some, scores, 0.5, labels=labels)
        return kept, *soft_nms(some[kept], scores[kept]), *best_match(some, some[:300])

    expected = call()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, range(12)):
            assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@every_method
def test_soft_nms_of_more_boxes_than_a_block_holds(method):
    some, scores = boxes(700, span=300.0, dtype=torch.float64), distinct_scores(700).double()
    indices, new_scores = plain_soft_nms(some, scores, method, 0.5, 0.3, 0.3)
    found = soft_nms(some, scores, method=method, min_score=0.3)
    assert found[0].tolist() == indices
    torch.testing.assert_close(found[1], torch.tensor(new_scores, dtype=torch.float64))


def test_a_score_of_exactly_the_least_is_left():
    for score in (0.7, 0.001, 0.5):
        assert len(soft_nms(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([score]), min_score=score)[0]) == 1


def test_an_identical_box_fades_to_nothing_by_the_linear_method():
    twice = torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1]])
    indices, scores = soft_nms(twice, torch.tensor([0.8, 0.9]), method="linear", min_score=0.0)
    assert indices.tolist() == [1, 0]
    assert scores.tolist() == [pytest.approx(0.9), 0.0]


def test_a_negative_similarity_fades_nothing():
    apart = torch.tensor([[0.0, 0, 1, 1], [50, 50, 51, 51]])
    scores = torch.tensor([0.8, 0.9])
    for method in ("linear", "gaussian"):
        assert soft_nms(apart, scores, method=method, metric=generalized_box_iou)[1].tolist() == [
            pytest.approx(0.9),
            pytest.approx(0.8),
        ]


def test_any_metric_suppresses():
    some, scores = boxes(150), distinct_scores(150)
    nwd = as_metric(nwd_loss)
    assert nms(some, scores, 0.6, metric=nwd).tolist() == plain_nms(some, scores, 0.6, nwd)
    indices, _ = soft_nms(some, scores, metric=nwd, min_score=0.2)
    assert indices.tolist() == plain_soft_nms(some, scores, "gaussian", 0.5, 0.3, 0.2, nwd)[0]


def test_inputs_are_left_as_they_are():
    some, scores, labels = boxes(100).requires_grad_(), distinct_scores(100).requires_grad_(), classes(100)
    before = [tensor.detach().clone() for tensor in (some, scores, labels)]
    nms(some, scores, 0.5, labels=labels)
    assert not soft_nms(some, scores, labels=labels)[1].requires_grad
    assert all(torch.equal(old, new) for old, new in zip(before, (some, scores, labels), strict=True))


def test_strided_inputs_give_the_same():
    some, scores, labels = boxes(100), distinct_scores(100), classes(100)
    strided = [torch.stack([t, t], -1)[..., 0] for t in (some, scores, labels)]
    assert torch.equal(nms(*strided[:2], 0.5, labels=strided[2]), nms(some, scores, 0.5, labels=labels))
    assert torch.equal(soft_nms(*strided[:2], labels=strided[2])[1], soft_nms(some, scores, labels=labels)[1])


@pytest.mark.parametrize("call", [lambda *args, **options: nms(*args, 0.5, **options), soft_nms], ids=["nms", "soft"])
def test_wrong_arguments_say_what_is_allowed(call):
    some, scores = boxes(3), torch.rand(3)
    with pytest.raises(ValueError, match=r"\(N, 4\), got \(1, 3, 4\)"):
        call(some[None], scores)
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        call(some[:, :3], scores)
    with pytest.raises(ValueError, match=r"scores must have the shape \(3,\).*got \(2,\)"):
        call(some, scores[:2])
    with pytest.raises(ValueError, match=r"labels must have the shape \(3,\).*got \(3, 1\)"):
        call(some, scores, labels=torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"labels must be integers, got torch\.float32"):
        call(some, scores, labels=torch.zeros(3))
    with pytest.raises(TypeError, match=r"scores must be a real tensor, got torch\.bool"):
        call(some, scores > 0)
    with pytest.raises(TypeError, match=r"bool"):
        call(some > 0, scores)
    with pytest.raises(TypeError, match="list"):
        call(some, [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="'xyxy'"):
        call(some, scores, fmt="yxyx")
    with pytest.raises(ValueError, match="metric must give"):
        call(some, scores, metric=lambda a, b, fmt: a)


@pytest.mark.parametrize("counts", [[3, 3], [5, -1], [4], [[2, 3]]], ids=str)
def test_the_engine_is_never_handed_groups_of_another_size(counts):
    if (kernel := jobs.kernel("suppress", box_iou, boxes(5), boxes(5))) is None:
        pytest.skip("without the engine")
    with pytest.raises(ValueError, match=r"groups of boxes \(5, 4\), got"):
        jobs.suppress(kernel, boxes(5), torch.tensor(counts), "xyxy", 0.5)


def test_wrong_numbers_say_what_is_allowed():
    some, scores = boxes(3), torch.rand(3)
    for threshold in (math.nan, math.inf):
        with pytest.raises(ValueError, match="threshold must be a finite number"):
            nms(some, scores, threshold)
    with pytest.raises(ValueError, match=r"'linear', 'gaussian', got 'cubic'"):
        soft_nms(some, scores, method="cubic")
    for name, value in (("sigma", 0.0), ("threshold", 1.5), ("threshold", -0.1), ("min_score", -1.0)):
        with pytest.raises(ValueError, match=f"{name} must be a finite number"):
            soft_nms(some, scores, **{name: value})


BLOCK = 512  # boxes that the engine takes at a time


def three_blocks():
    generator = torch.Generator().manual_seed(0)
    corner, size = torch.rand(2, 3 * BLOCK, 2, generator=generator) * 100
    return torch.cat([corner, corner + size + 1], -1), torch.rand(3 * BLOCK, generator=generator)


@every_method
@pytest.mark.parametrize("nothing", [math.nan, -math.inf])
@pytest.mark.parametrize("silent", range(3))
def test_a_block_without_scores_changes_nothing(method, nothing, silent):
    boxes, scores = three_blocks()
    heard = torch.arange(3 * BLOCK).reshape(3, BLOCK)[torch.arange(3) != silent].flatten()
    scores[silent * BLOCK : (silent + 1) * BLOCK] = nothing
    picked, faded = soft_nms(boxes, scores, method=method)
    expected, expected_scores = soft_nms(boxes[heard], scores[heard], method=method)
    assert picked.tolist() == heard[expected].tolist()
    assert torch.equal(faded, expected_scores)


def test_a_box_of_extreme_size_between_ordinary_ones_changes_no_other():
    boxes, scores = three_blocks()
    ordinary = nms(boxes, scores, 0.5).tolist()
    far = torch.tensor([[3e37, 3e37, 6e37, 6e37]])
    middle = scores.median().item()
    kept = nms(torch.cat([far, boxes]), torch.cat([torch.tensor([middle]), scores]), 0.5).tolist()
    assert 0 in kept
    assert [i - 1 for i in kept if i] == ordinary
