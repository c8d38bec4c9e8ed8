"""Which detection is right at which threshold, and average precision against pycocotools and VOC's rules."""

import contextlib
import io
import math

import numpy as np
import pytest
import torch
from optional import tv_tensors
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from iou_losses import (
    COCO_AREAS,
    COCO_THRESHOLDS,
    AveragePrecision,
    as_metric,
    average_precision,
    box_iou,
    generalized_box_iou,
    giou_loss,
    label_detections,
    precision_recall,
)

AREAS = tuple(COCO_AREAS)


def data_set(seed, images=12, classes=3, side=120.0, crowds=0.1, whole=False):
    """Images with objects of all sizes, and detections near them, duplicated, missing and made up."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def count(most):
        return int(torch.randint(0, most + 1, (), generator=generator))

    predictions, targets = [], []
    for _ in range(images):
        truths, extra = count(8), count(6)
        low, size = random(truths, 2) * 300, random(truths, 2) ** 2 * side + 2
        true_boxes = torch.cat([low, low + size], 1)
        true_labels = torch.randint(0, classes, (truths,), generator=generator)
        chosen = torch.randint(0, max(truths, 1), (truths * 2,), generator=generator)
        noise = torch.randn(truths * 2, 4, generator=generator, dtype=torch.float64) * size[chosen].repeat(1, 2) * 0.1
        near, made_up = true_boxes[chosen] + noise, random(extra, 2) * 300
        boxes = torch.cat([near, torch.cat([made_up, made_up + random(extra, 2) * side + 1], 1)])
        boxes[:, 2:] = torch.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        labels = torch.cat([true_labels[chosen], torch.randint(0, classes, (extra,), generator=generator)])
        if whole:
            boxes, true_boxes = boxes.round(), true_boxes.round()
        scores = (random(len(boxes)) * 20).round() / 20  # many ties
        predictions.append({"boxes": boxes, "scores": scores, "labels": labels})
        targets.append({"boxes": true_boxes, "labels": true_labels, "iscrowd": random(truths) < crowds})
    return predictions, targets


def xywh(boxes):
    return torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)


def coco_eval(predictions, targets):
    """Pycocotools' own evaluation."""
    annotations, results = [], []
    for image, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
        boxes = xywh(target["boxes"])
        areas = target.get("area", boxes[:, 2] * boxes[:, 3])
        for k, box in enumerate(boxes.tolist()):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": int(target["labels"][k]),
                    "bbox": box,
                    "area": float(areas[k]),
                    "iscrowd": int(target["iscrowd"][k]),
                }
            )
        for k, box in enumerate(xywh(prediction["boxes"]).tolist()):
            results.append(
                {
                    "image_id": image,
                    "category_id": int(prediction["labels"][k]),
                    "bbox": box,
                    "score": float(prediction["scores"][k]),
                }
            )
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in range(len(targets))],
            "categories": [{"id": k} for k in sorted({a["category_id"] for a in annotations})],
            "annotations": annotations,
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def ours(predictions, targets, batch=5, **options):
    evaluation = AveragePrecision(**options)
    for start in range(0, len(targets), batch):
        evaluation.update(predictions[start : start + batch], targets[start : start + batch])
    return evaluation.compute()


def assert_equal_to_coco(predictions, targets):
    theirs, table = coco_eval(predictions, targets), ours(predictions, targets)
    summary = [table.mean(), table.mean(0.5), table.mean(0.75), *(table.mean(area=area) for area in AREAS[1:])]
    assert np.nan_to_num(summary, nan=-1) == pytest.approx(theirs.stats[:6], abs=1e-6)
    of_classes = [table.classes.index(k) for k in theirs.params.catIds]
    precision = table.precision[..., of_classes].permute(1, 2, 0).nan_to_num(-1).numpy()
    assert precision == pytest.approx(theirs.eval["precision"][..., 2].mean(1), abs=1e-6)
    recall = table.recall[..., of_classes].permute(1, 2, 0).nan_to_num(-1).numpy()
    assert recall == pytest.approx(theirs.eval["recall"][..., 2], abs=1e-6)
    return summary


# Average precision


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("whole", [False, True])
def test_random_data_sets_score_as_in_pycocotools(seed, whole):
    summary = assert_equal_to_coco(*data_set(seed, whole=whole))
    assert 0.05 < summary[0] < 0.95


def test_more_than_100_detections_of_a_class_score_as_in_pycocotools():
    predictions, targets = data_set(1, images=2, classes=1)
    for seed, prediction in enumerate(predictions):
        random = torch.rand(2, 150, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        prediction["boxes"] = torch.cat([prediction["boxes"], torch.cat([random[0] * 300, random.sum(0) * 300 + 1], 1)])
        prediction["labels"] = torch.zeros(len(prediction["boxes"]), dtype=torch.int64)
        prediction["scores"] = torch.linspace(0, 1, len(prediction["boxes"]), dtype=torch.float64)
    assert_equal_to_coco(predictions, targets)


def test_areas_of_the_annotations_score_as_in_pycocotools():
    predictions, targets = data_set(2)
    for target in targets:
        target["area"] = (target["boxes"][:, 2:] - target["boxes"][:, :2]).prod(1) * 0.6
    assert_equal_to_coco(predictions, targets)


def image(boxes, labels=None, scores=None, crowd=None):
    boxes = torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4)
    result = {"boxes": boxes, "labels": torch.tensor(labels or [0] * len(boxes), dtype=torch.int64)}
    if scores is None:
        return {**result, "iscrowd": torch.tensor(crowd or [0] * len(boxes)).bool()}
    return {**result, "scores": torch.tensor(scores, dtype=torch.float64)}


BOX, HALF, OTHER = [0, 0, 20, 20], [0, 0, 20, 10], [50, 50, 80, 90]
LARGE, BOUND, AROUND = [100, 100, 250, 250], [0, 0, 32, 32], [0, 0, 90, 90]
# Of each: the predictions and the targets of one image.
HAND_MADE = {
    "a perfect detector": (image([BOX, OTHER], scores=[0.9, 0.8]), image([BOX, OTHER])),
    "an IoU of exactly a threshold": (image([HALF], scores=[0.9]), image([BOX])),
    "a duplicate": (image([BOX, BOX, OTHER], scores=[0.9, 0.8, 0.7]), image([BOX, OTHER])),
    "a duplicate that comes first": (image([HALF, BOX], scores=[0.9, 0.8]), image([BOX])),
    "nothing found": (image([], scores=[]), image([BOX])),
    "nothing there": (image([BOX], scores=[0.9]), image([])),
    "another class": (image([BOX, OTHER], [1, 0], [0.9, 0.8]), image([BOX, OTHER], [0, 1])),
    "objects that coincide": (image([BOX, BOX, BOX], scores=[0.9, 0.9, 0.9]), image([BOX, BOX])),
    "a crowd": (image([BOX, [2, 2, 8, 8], OTHER], scores=[0.9, 0.8, 0.7]), image([BOX, OTHER], crowd=[1, 0])),
    "a crowd over an object": (image([BOX, BOX, BOX], scores=[0.9, 0.8, 0.7]), image([BOX, AROUND], crowd=[0, 1])),
    "an object as large as a bound": (image([BOUND, LARGE], scores=[0.9, 0.8]), image([BOUND, LARGE])),
    "all sizes": (image([BOX, LARGE, OTHER, [0, 0, 33, 33]], scores=[0.2, 0.4, 0.6, 0.8]), image([BOX, LARGE, OTHER])),
}  # fmt: skip


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_images_score_as_in_pycocotools(name):
    prediction, target = HAND_MADE[name]
    rest = data_set(3, images=2)
    assert_equal_to_coco([prediction, *rest[0]], [target, *rest[1]])
    if len(target["boxes"]) and len(prediction["boxes"]):  # what pycocotools can do alone
        assert_equal_to_coco([prediction], [target])


def test_torchmetrics_takes_the_same_lists_and_agrees():
    predictions, targets = data_set(4)
    # Its own levels are rounded to float32, and a recall of exactly a level may miss it.
    pytest.importorskip("torchvision", reason="torchmetrics' mean average precision needs torchvision")
    from torchmetrics.detection import MeanAveragePrecision

    metric = MeanAveragePrecision(rec_thresholds=[k * 0.01 for k in range(101)])
    metric.update(predictions, targets)
    theirs, table = metric.compute(), ours(predictions, targets)
    for name, value in (("map", table.mean()), ("map_50", table.mean(0.5)), ("map_small", table.mean(area="small"))):
        assert value == pytest.approx(theirs[name].item(), abs=1e-6)


def voc_eval(predictions, targets, label, threshold, eleven_points):
    """VOC's evaluation of a class, by the devkit: inclusive boxes, the best object only, difficult ones aside."""
    found, positives, taken = [], 0, {}
    for i, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
        own = (target["labels"] == label).nonzero().flatten().tolist()
        positives += sum(not target["ignore"][j] for j in own)
        found += [(prediction["scores"][k].item(), i, k) for k in (prediction["labels"] == label).nonzero().flatten()]
    right, wrong = [], []
    for _, i, k in sorted(found, key=lambda detection: -detection[0]):
        best, best_iou = None, -math.inf
        x1, y1, x2, y2 = predictions[i]["boxes"][k].tolist()
        for j in (targets[i]["labels"] == label).nonzero().flatten().tolist():
            a1, b1, a2, b2 = targets[i]["boxes"][j].tolist()
            overlap = max(min(x2, a2) - max(x1, a1) + 1, 0) * max(min(y2, b2) - max(y1, b1) + 1, 0)
            union = (x2 - x1 + 1) * (y2 - y1 + 1) + (a2 - a1 + 1) * (b2 - b1 + 1) - overlap
            if overlap / union > best_iou:
                best, best_iou = j, overlap / union
        hit = best_iou >= threshold
        difficult = hit and bool(targets[i]["ignore"][best])
        new = hit and not difficult and not taken.get((i, best))
        right.append(new)
        wrong.append(not new and not difficult)
        if new:
            taken[i, best] = True
    if not positives:
        return math.nan
    tp, fp = np.cumsum(right), np.cumsum(wrong)
    recall, precision = tp / positives, tp / np.maximum(tp + fp, np.finfo(float).eps)
    if eleven_points:
        reached = [precision[recall >= t] for t in np.arange(0.0, 1.1, 0.1)]
        return sum(p.max() if p.size else 0.0 for p in reached) / 11
    recall, precision = np.concatenate([[0.0], recall, [1.0]]), np.concatenate([[0.0], precision, [0.0]])
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    steps = np.where(recall[1:] != recall[:-1])[0]
    return np.sum((recall[steps + 1] - recall[steps]) * precision[steps + 1])


@pytest.mark.parametrize("interpolation", ["voc07", "voc"])
@pytest.mark.parametrize("threshold", [0.5, 0.7])
@pytest.mark.parametrize("whole", [False, True])
def test_data_sets_score_as_by_vocs_rules(interpolation, threshold, whole):
    for seed in range(3):
        predictions, targets = data_set(seed, whole=whole)
        targets = [{**target, "ignore": target["iscrowd"]} for target in targets]
        for target in targets:
            del target["iscrowd"]
        table = ours(predictions, targets, thresholds=threshold, interpolation=interpolation, fmt="xyxy_inclusive")
        expected = [voc_eval(predictions, targets, k, threshold, interpolation == "voc07") for k in table.classes]
        assert table.precision[0, 0].numpy() == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert table.mean() == pytest.approx(np.nanmean(expected))


def test_coco_and_voc_are_different_measurements():
    predictions, targets = data_set(5, crowds=0)
    coco = ours(predictions, targets).mean()
    coco_50 = ours(predictions, targets).mean(0.5)
    voc07, voc = (ours(predictions, targets, thresholds=0.5, interpolation=rule).mean() for rule in ("voc07", "voc"))
    assert len({round(value, 4) for value in (coco, coco_50, voc07, voc)}) == 4
    assert coco < coco_50


def assert_same(one, other):
    assert torch.equal(one.precision.nan_to_num(-1), other.precision.nan_to_num(-1))
    assert torch.equal(one.objects, other.objects)


def test_batches_do_not_matter_and_reset_forgets():
    predictions, targets = data_set(6)
    one = ours(predictions, targets, batch=1)
    assert_same(one, ours(predictions, targets, batch=100))
    evaluation = AveragePrecision()
    evaluation.update(*data_set(7))
    evaluation.reset()
    evaluation.update(predictions, targets)
    assert_same(one, evaluation.compute())


def test_update_says_which_box_was_right_at_which_threshold():
    evaluation = AveragePrecision()
    found = image([[25, 0, 125, 100], [0, 0, 100, 100]], scores=[0.9, 0.8])
    truth = image([[0, 0, 100, 100], [500, 500, 600, 600]])
    [labels] = evaluation.update([found], [truth])
    assert labels.matches.tolist() == [[0, -1]] * 3 + [[-1, 0]] * 7
    assert labels.found_by.tolist() == [[0, -1]] * 3 + [[1, -1]] * 7
    assert evaluation.compute().mean(0.5) == pytest.approx(51 / 101)


def test_the_table_says_what_it_does_not_have():
    table = ours(*data_set(0))
    with pytest.raises(ValueError, match=r"0\.95\), got 0\.3"):
        table.mean(0.3)
    with pytest.raises(ValueError, match="'all', 'small', 'medium', 'large', got 'tiny'"):
        table.mean(area="tiny")
    assert math.isnan(ours(*data_set(0, side=1.0)).mean(area="large"))


def test_a_data_set_without_boxes_has_an_empty_table():
    nothing = image([]), image([], scores=[])
    table = ours(nothing[1:], nothing[:1])
    assert table.precision.shape == (4, 10, 0)
    assert table.classes == ()
    assert math.isnan(table.mean())


@pytest.mark.parametrize("as_type", [list, torch.DoubleTensor, np.array], ids=lambda t: t.__name__)
def test_thresholds_may_come_in_any_form(as_type):
    predictions, targets = data_set(0)
    table = ours(predictions, targets, thresholds=as_type([0.3, 0.6]))
    assert table.thresholds == (0.3, 0.6)
    assert {type(threshold) for threshold in table.thresholds} == {float}
    assert_same(table, ours(predictions, targets, thresholds=(0.3, 0.6)))
    one = ours(predictions, targets, thresholds=as_type([0.3, 0.6])[0])
    assert one.mean() == pytest.approx(table.mean(0.3))


def test_an_update_that_fails_takes_in_no_image():
    predictions, targets = data_set(0, images=3)
    evaluation = AveragePrecision()
    with pytest.raises(ValueError, match="scores must have the shape"):
        evaluation.update([*predictions, {**predictions[0], "scores": torch.zeros(99)}], [*targets, targets[0]])
    evaluation.update(predictions, targets)
    assert_same(evaluation.compute(), ours(predictions, targets))


def test_areas_and_thresholds_are_the_callers():
    predictions, targets = data_set(0)
    table = ours(predictions, targets, thresholds=(0.3, 0.6), areas={"thumbnails": (0, 500), "all": (0, math.inf)})
    assert table.areas == ("thumbnails", "all")
    assert table.thresholds == (0.3, 0.6)
    assert table.precision.shape == (2, 2, 3)
    assert table.mean() == pytest.approx(float(table.precision[0].nanmean()))


def test_any_metric_scores():
    predictions, targets = data_set(0, crowds=0)
    by_matrix = ours(predictions, targets, metric=generalized_box_iou)
    by_loss = ours(predictions, targets, metric=as_metric(giou_loss))
    torch.testing.assert_close(by_matrix.precision, by_loss.precision, equal_nan=True)
    assert by_matrix.mean() < ours(predictions, targets).mean()


def test_wrong_arguments_of_the_evaluation_say_what_is_allowed():
    with pytest.raises(ValueError, match="'coco', 'voc07', 'voc', got 'voc12'"):
        AveragePrecision(interpolation="voc12")
    with pytest.raises(ValueError, match="there must be a threshold"):
        AveragePrecision(())
    with pytest.raises(RuntimeError, match="first update"):
        AveragePrecision().compute()
    prediction, target = HAND_MADE["a duplicate"]
    with pytest.raises(ValueError, match="got 1 and 2"):
        AveragePrecision().update([prediction], [target, target])
    with pytest.raises(ValueError, match="a prediction must have boxes, scores, labels; scores is missing"):
        AveragePrecision().update([target], [target])
    with pytest.raises(ValueError, match="a target must have boxes, labels; labels is missing"):
        AveragePrecision().update([prediction], [{"boxes": target["boxes"]}])


# Curves


def test_precision_and_recall_after_each_detection():
    scores, correct = torch.tensor([0.5, 0.9, 0.7, 0.6]), torch.tensor([True, True, False, True])
    precision, recall = precision_recall(scores, correct, 4)
    assert precision.tolist() == [1, 1 / 2, 2 / 3, 3 / 4]
    assert recall.tolist() == [1 / 4, 1 / 4, 2 / 4, 3 / 4]
    ignored = torch.tensor([False, True, False, False])
    precision, recall = precision_recall(scores, correct, 4, ignored)
    assert precision.tolist() == [0, 0, 1 / 2, 2 / 3]
    assert recall.tolist() == [0, 0, 1 / 4, 2 / 4]


def test_curves_of_many_thresholds_are_those_of_each():
    generator = torch.Generator().manual_seed(0)
    scores, correct = torch.rand(50, generator=generator), torch.rand(3, 2, 50, generator=generator) > 0.4
    positives = torch.tensor([[30, 40], [50, 0], [60, 35]])
    for interpolation in ("coco", "voc07", "voc"):
        curves = precision_recall(scores, correct, positives)
        whole = average_precision(*curves, interpolation)
        for i in range(3):
            for j in range(2):
                one = average_precision(*precision_recall(scores, correct[i, j], positives[i, j]), interpolation)
                assert torch.equal(whole[i, j], one) or (math.isnan(one) and positives[i, j] == 0)


def test_curves_without_detections():
    nothing = torch.zeros(2, 0), torch.zeros(2, 0)
    for interpolation in ("coco", "voc07", "voc"):
        assert average_precision(*nothing, interpolation).tolist() == [0, 0]
    precision, recall = precision_recall(torch.zeros(0), torch.zeros(2, 0, dtype=torch.bool), 3)
    assert precision.shape == recall.shape == (2, 0)


def test_a_perfect_curve_has_average_precision_1():
    curve = precision_recall(torch.rand(7), torch.ones(7, dtype=torch.bool), 7)
    for interpolation in ("coco", "voc07", "voc"):
        assert average_precision(*curve, interpolation).item() == pytest.approx(1)


def test_wrong_arguments_of_curves_say_what_is_allowed():
    with pytest.raises(TypeError, match=r"correct must be bool, got torch\.float32"):
        precision_recall(torch.zeros(3), torch.zeros(3), 2)
    with pytest.raises(ValueError, match=r"\(2,\), \(3,\) and \(3,\)"):
        precision_recall(torch.zeros(2), torch.zeros(3, dtype=torch.bool), 2)
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        average_precision(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"\(\.\.\., N\), got \(\) and \(\)"):
        average_precision(torch.tensor(1.0), torch.tensor(1.0))
    with pytest.raises(ValueError, match="'coco', 'voc07', 'voc'"):
        average_precision(torch.zeros(3), torch.zeros(3), "area")


# label_detections

TRUTH = torch.tensor([[0.0, 0, 100, 100]])


def shifted(*pixels):
    return TRUTH + torch.tensor(pixels)[:, None] * torch.tensor([1.0, 0, 1, 0])


def test_each_object_is_found_once_by_the_highest_score():
    labels = label_detections(shifted(0, 10, 20), torch.tensor([0.5, 0.9, 0.7]), TRUTH, 0.5)
    assert labels.order.tolist() == [1, 2, 0]
    assert labels.matches.tolist() == [-1, 0, -1]
    assert labels.found_by.tolist() == [1]


def test_all_thresholds_at_once_are_each_of_them():
    images = zip(*data_set(2, classes=1, crowds=0), strict=True)
    prediction, target = max(images, key=lambda image: len(image[1]["boxes"]))
    boxes = prediction["boxes"], prediction["scores"], target["boxes"]
    whole = label_detections(*boxes)
    assert whole.matches.shape == (10, len(boxes[0]))
    assert len(boxes[0]) > 5
    for t, threshold in enumerate(COCO_THRESHOLDS):
        one = label_detections(*boxes, threshold)
        assert torch.equal(one.matches, whole.matches[t])
        assert torch.equal(one.found_by, whole.found_by[t])
        for i, j in enumerate(one.matches.tolist()):
            if j >= 0:
                assert one.found_by[j] == i
                assert box_iou(boxes[0], boxes[2])[i, j] >= threshold


def test_an_iou_of_exactly_the_threshold_is_right():
    assert label_detections(shifted(25.0), torch.ones(1), TRUTH, (0.6, math.nextafter(0.6, 1))).matches.tolist() == [
        [0],
        [-1],
    ]


def test_coco_takes_a_second_best_object_and_voc_does_not():
    truth = torch.cat([TRUTH, shifted(20)])
    found, scores = shifted(0, 2), torch.tensor([0.9, 0.8])
    assert label_detections(found, scores, truth, 0.5, rule="coco").matches.tolist() == [0, 1]
    assert label_detections(found, scores, truth, 0.5, rule="voc").matches.tolist() == [0, -1]


def test_of_objects_equally_similar_coco_takes_the_last_and_voc_the_first():
    truth = torch.cat([TRUTH, TRUTH])
    assert label_detections(TRUTH, torch.ones(1), truth, 0.5, rule="coco").matches.tolist() == [1]
    assert label_detections(TRUTH, torch.ones(1), truth, 0.5, rule="voc").matches.tolist() == [0]


def test_an_ignored_object_is_found_once_by_cocos_rule_and_again_and_again_by_vocs():
    options = {"thresholds": 0.5, "ignore": torch.tensor([True])}
    found = shifted(0, 2), torch.tensor([0.9, 0.8]), TRUTH
    assert label_detections(*found, **options, rule="coco").matches.tolist() == [-2, -1]
    voc = label_detections(*found, **options, rule="voc")
    assert voc.matches.tolist() == [-2, -2]
    assert voc.found_by.tolist() == [-2]


def test_any_number_of_detections_may_lie_in_a_crowd():
    found = torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60], [95, 0, 105, 10], [96, 0, 106, 10]])
    labels = label_detections(found, torch.linspace(1, 0.5, 4), TRUTH, 0.5, crowd=torch.tensor([True]))
    assert labels.matches.tolist() == [-2, -2, -2, -1]  # half of the third lies inside, four tenths of the fourth


def test_detections_find_objects_of_their_class():
    labels = label_detections(
        shifted(0, 0), torch.ones(2), TRUTH, 0.5, pred_labels=torch.tensor([1, 2]), true_labels=torch.tensor([2])
    )
    assert labels.matches.tolist() == [-1, 0]


def test_what_is_outside_the_range_of_area_is_not_counted():
    found = torch.cat([TRUTH, torch.tensor([[200.0, 200, 210, 210], [300, 300, 310, 310]])])
    truth = torch.cat([TRUTH, found[1:2]])
    options = {"thresholds": 0.5, "area_range": COCO_AREAS["small"]}
    labels = label_detections(found, torch.ones(3), truth, **options)
    assert labels.matches.tolist() == [-2, 1, -1]
    assert labels.found_by.tolist() == [-2, 1]
    labels = label_detections(found, torch.ones(3), truth, areas=torch.tensor([100, 100_000]), **options)
    assert labels.found_by.tolist() == [0, -2]
    sized = xywh(found), torch.ones(3), xywh(truth)
    assert label_detections(*sized, fmt="xywh", **options).matches.tolist() == [-2, 1, -1]


def test_only_the_first_detections_of_a_class_count():
    found, scores = shifted(0, 5, 10, 500), torch.tensor([0.6, 0.9, 0.8, 0.7])
    assert label_detections(found, scores, TRUTH, 0.99, max_detections=2).matches.tolist() == [-2, -1, -1, -2]
    classes = {"pred_labels": torch.tensor([0, 1, 0, 0]), "true_labels": torch.tensor([0])}
    assert label_detections(found, scores, TRUTH, 0.5, max_detections=1, **classes).matches.tolist() == [-2, -1, 0, -2]


def test_what_the_metric_gives_is_not_written_to():
    matrix = torch.tensor([[0.9, 0.6], [0.7, 0.8]], dtype=torch.float64)
    before, boxes, labels = matrix.clone(), torch.rand(2, 4), torch.tensor([0, 1])
    options = {"pred_labels": labels, "true_labels": labels, "crowd": torch.tensor([False, True])}
    label_detections(boxes, torch.ones(2), boxes, 0.5, metric=lambda *both, fmt: matrix, **options)
    assert torch.equal(matrix, before)


def test_nan_finds_nothing_and_ranks_last():
    found = torch.cat([TRUTH * math.nan, TRUTH, TRUTH])
    labels = label_detections(found, torch.tensor([0.9, math.nan, 0.1]), TRUTH, 0.5)
    assert labels.order.tolist() == [0, 2, 1]
    assert labels.matches.tolist() == [-1, -1, 0]


def test_nothing_to_label():
    nothing = torch.zeros(0, 4)
    assert label_detections(nothing, torch.zeros(0), TRUTH).found_by.tolist() == [[-1]] * 10
    assert label_detections(TRUTH, torch.ones(1), nothing).matches.tolist() == [[-1]] * 10
    assert label_detections(nothing, torch.zeros(0), nothing, ()).matches.shape == (0, 0)


def test_boxes_bring_their_own_format():
    sized = tv_tensors.BoundingBoxes(xywh(shifted(10)), format="XYWH", canvas_size=(200, 200))
    assert label_detections(sized, torch.ones(1), TRUTH, 0.8).matches.tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64], ids=str)
def test_any_dtype_is_compared_in_float64(dtype):
    found, scores = shifted(0, 25).to(dtype), torch.tensor([0.5, 0.75]).half()
    assert label_detections(found, scores, TRUTH.to(dtype), (0.5, 0.75)).matches.tolist() == [[-1, 0], [0, -1]]


def test_wrong_arguments_of_labels_say_what_is_allowed():
    one = torch.ones(1)
    with pytest.raises(ValueError, match=r"pred_boxes must have the shape \(n, 4\), got \(1, 1, 4\)"):
        label_detections(TRUTH[None], one, TRUTH)
    with pytest.raises(ValueError, match=r"scores must have the shape \(1,\).*got \(2,\)"):
        label_detections(TRUTH, torch.ones(2), TRUTH)
    with pytest.raises(TypeError, match="crowd must be bool"):
        label_detections(TRUTH, one, TRUTH, crowd=one)
    with pytest.raises(TypeError, match="scores must be a real tensor, got list"):
        label_detections(TRUTH, [1.0], TRUTH)
    with pytest.raises(ValueError, match="got pred alone"):
        label_detections(TRUTH, one, TRUTH, pred_labels=one)
    with pytest.raises(ValueError, match="'coco', 'voc', got 'lvis'"):
        label_detections(TRUTH, one, TRUTH, rule="lvis")
    with pytest.raises(ValueError, match=r"thresholds.*\(1, 2\)"):
        label_detections(TRUTH, one, TRUTH, torch.tensor([[0.5, 0.7]]))
