"""The user's default device and dtype are for the user's tensors: results follow the boxes, as documented.

`"meta"` stands in for `"cuda"`: what is put there by mistake has no values, so that no result can be right by chance.
"""

import functools
import math

import pytest
import torch
from cases import CASES, Watch, every_case, ordinary_pairs
from torch.utils._pytree import tree_leaves

import iou_losses
from iou_losses.distributed import global_average
from iou_losses.integrations.box_term import BoxTerm

PRED, TARGET = ordinary_pairs(20, 1, torch.float32)
SCORES = torch.linspace(0, 1, 20, dtype=torch.float32)
LABELS = torch.arange(20) % 3
WEIGHT = torch.linspace(0, 2, 20, dtype=torch.float32)
FACTOR = torch.tensor(7.0, dtype=torch.float32)
SIMILARITY = iou_losses.box_iou(TARGET, PRED)
CORRECT = SCORES > 0.3
CURVE = iou_losses.precision_recall(SCORES, CORRECT, 20)
NOTHING = torch.zeros(0, 4, dtype=torch.float32)
slow_iou = iou_losses.as_metric(iou_losses.iou_loss)  # which the engine does not know


def by_engine_and_formula(case):
    both = case.value_and_gradient(PRED, TARGET), case.value_and_gradients(PRED, TARGET)
    return *both, case.loss(PRED, TARGET, "mean", 1e-7, weight=WEIGHT, avg_factor=FACTOR)


def module_of(case):
    module = case.build(eps=1e-7)
    results = [module(PRED, TARGET, WEIGHT, factor) for factor in (None, 3, FACTOR) for _ in range(2)]
    return results, module.state_dict(), module.eval()(NOTHING, NOTHING)


def combined(build):
    module = build(iou_losses.CIoULoss())
    return module(PRED, TARGET), module(PRED, TARGET, WEIGHT), module.state_dict()


def evaluated(interpolation):
    evaluation = iou_losses.AveragePrecision(interpolation=interpolation)
    truth = {"boxes": TARGET, "labels": LABELS, "iscrowd": LABELS == 2, "area": 9 * SCORES}
    empty = {"boxes": NOTHING, "scores": SCORES[:0], "labels": LABELS[:0]}
    found = {"boxes": PRED, "scores": SCORES, "labels": LABELS}
    labels = evaluation.update([found, empty, found], [truth, truth, empty])
    return labels, evaluation.compute(), evaluation.compute().mean()


def labelled(**options):
    return [
        iou_losses.label_detections(PRED, SCORES, TARGET, rule=rule, metric=metric, max_detections=most, **options)
        for rule in ("coco", "voc")
        for metric in (iou_losses.box_iou, slow_iou)
        for most in (None, 3)
    ]


def suppressed(function, **options):
    return [
        function(PRED, SCORES, metric=metric, labels=labels, **options)
        for metric in (iou_losses.box_iou, slow_iou)
        for labels in (None, LABELS)
    ]


# Calls of everything public; what a key has behind its name tells calls of the same thing apart.
CALLS = {
    **{f"{case.function.__name__} {case}": functools.partial(by_engine_and_formula, case) for case in CASES},
    **{f"{case.module.__name__} {case}": functools.partial(module_of, case) for case in CASES},
    "InnerIoULoss": lambda: combined(functools.partial(iou_losses.InnerIoULoss, ratio=0.7)),
    "FocalerIoULoss": lambda: combined(iou_losses.FocalerIoULoss),
    "UnifiedIoULoss": lambda: combined(functools.partial(iou_losses.UnifiedIoULoss, quality="focal")),
    "WIoULoss of a base": lambda: combined(lambda base: iou_losses.WIoULoss(version=3, base=base)),
    "box_iou": lambda: iou_losses.box_iou(PRED, TARGET),
    "generalized_box_iou": lambda: iou_losses.generalized_box_iou(PRED, TARGET),
    "distance_box_iou": lambda: iou_losses.distance_box_iou(PRED, TARGET),
    "complete_box_iou": lambda: iou_losses.complete_box_iou(PRED, TARGET),
    "paired_iou": lambda: iou_losses.paired_iou(PRED, TARGET),
    "as_metric": lambda: slow_iou(PRED, TARGET),
    "best_match": lambda: [iou_losses.best_match(PRED, boxes) for boxes in (TARGET, NOTHING)],
    "best_match by a metric": lambda: [iou_losses.best_match(PRED, boxes, slow_iou) for boxes in (TARGET, NOTHING)],
    "match": lambda: [iou_losses.match(SIMILARITY[:n], high=0.7, low=0.3, mask=CORRECT[:n]) for n in (0, 20)],
    "match_boxes": lambda: [
        iou_losses.match_boxes(TARGET, PRED, high=0.7, low=0.3, metric=metric)
        for metric in (iou_losses.box_iou, slow_iou)
    ],
    "matching_cost": lambda: iou_losses.matching_cost(TARGET, PRED, LABELS, torch.stack([SCORES] * 3, -1)),
    "assign": lambda: [iou_losses.assign(-SIMILARITY, mask=mask) for mask in (None, CORRECT, CORRECT & False)],
    "nms": lambda: suppressed(iou_losses.nms, threshold=0.5),
    "soft_nms": lambda: [suppressed(iou_losses.soft_nms, method=method) for method in ("linear", "gaussian")],
    "is_correct": lambda: [iou_losses.is_correct(SCORES, at) for at in (0.5, SCORES.flip(0))],
    "is_correct at several": lambda: iou_losses.is_correct(SCORES[:, None], iou_losses.COCO_THRESHOLDS),
    "detection_accuracy": lambda: [iou_losses.detection_accuracy(PRED, TARGET, at) for at in (0.5, (0.5, 0.75))],
    "label_detections": labelled,
    "label_detections of classes": lambda: labelled(pred_labels=LABELS, true_labels=LABELS, ignore=CORRECT),
    "label_detections in a range": lambda: labelled(area_range=(0, 9e3), crowd=CORRECT, thresholds=0.5),
    "precision_recall": lambda: iou_losses.precision_recall(SCORES, CORRECT, 20, ~CORRECT),
    "average_precision": lambda: [iou_losses.average_precision(*CURVE, rule) for rule in ("coco", "voc07", "voc")],
    "AveragePrecision": lambda: [evaluated(rule) for rule in ("coco", "voc")],
    "distributed.global_average": lambda: [global_average(count) for count in (3, FACTOR)],
    "integrations.BoxTerm": lambda: BoxTerm(iou_losses.WIoULoss(version=3))(PRED, TARGET),
}
# No tensor goes in: the base of the losses, the tuples that calls above return, and a word about the engine.
WITHOUT_TENSORS = {"BoxLoss", "BestMatch", "DetectionLabels", "PrecisionTable", "native_isa"}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(params=[torch.device("meta"), torch.float64, torch.float16], ids=str)
def default(request):
    """Calls a function under another default device or dtype."""

    def under(function):
        before = torch.get_default_dtype()
        try:
            if isinstance(request.param, torch.dtype):
                torch.set_default_dtype(request.param)
            else:
                torch.set_default_device(request.param)
            return function()
        finally:
            torch.set_default_device(None)
            torch.set_default_dtype(before)

    return under


def same(found, expected):
    """Equal throughout, tensors in device, dtype and every bit."""
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected or (math.isnan(found) and math.isnan(expected))


@every_call
def test_the_result_does_not_depend_on_the_default(call, default):
    same(default(call), call())


class AllOnCPU(Watch):
    """Fails where an operator gives a tensor elsewhere."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = super().__torch_dispatch__(function, types, arguments, options)
        assert all(leaf.is_cpu for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


@every_case
def test_a_module_is_built_without_the_default_device(case):
    with torch.device("meta"), AllOnCPU():
        case.build()
        with pytest.raises(AssertionError):
            torch.zeros(1)


def test_no_public_callable_is_left_out():
    public = {name for name, thing in vars(iou_losses).items() if callable(thing)}
    called = {key.split()[0] for key in CALLS}
    assert {name for name in called if "." not in name} == public - WITHOUT_TENSORS
