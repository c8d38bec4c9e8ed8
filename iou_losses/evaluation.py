"""Average precision of a data set, batch by batch: COCO's and VOC's, which are different measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from iou_losses.core import one_of
from iou_losses.detections import DetectionLabels, label_detections
from iou_losses.matching import IGNORED, NEGATIVE
from iou_losses.metric import Metric
from iou_losses.pairwise import box_iou
from iou_losses.precision import INTERPOLATIONS, average_precision, precision_recall
from iou_losses.scoring import COCO_THRESHOLDS

# In square pixels.
COCO_AREAS = {
    "all": (0.0, math.inf),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, math.inf),
}
COCO_MAX_DETECTIONS = 100  # of a class, in an image


class PrecisionTable(NamedTuple):
    """Average precisions of a data set.

    Attributes:
        precision: float64, shape (areas, thresholds, classes): the average precision; NaN for a
            class without objects in a range of area.
        recall: the same shape: the share of the objects that was found at all.
        objects: int64, shape (areas, classes): how many there were to find.
        areas: the names of the ranges of area.
        thresholds: the similarities from which on a detection is right.
        classes: the labels, ascending.
    """

    precision: Tensor
    recall: Tensor
    objects: Tensor
    areas: tuple[str, ...]
    thresholds: tuple[float, ...]
    classes: tuple[int, ...]

    def mean(self, threshold: float | None = None, area: str | None = None) -> float:
        """Give the mean average precision (mAP) over the classes that have objects.

        Args:
            threshold: one of the table's; by default the mean over all.
            area: one of the table's; by default its first.

        Returns:
            The mean, NaN where no class has objects.

        Raises:
            ValueError: for a threshold or an area that the table does not have.
        """
        row = 0 if area is None else one_of("area", area, {name: i for i, name in enumerate(self.areas)})
        if threshold is None:
            return float(self.precision[row].nanmean())
        if threshold not in self.thresholds:
            raise ValueError(f"threshold must be one of {self.thresholds}, got {threshold!r}")
        return float(self.precision[row, self.thresholds.index(threshold)].nanmean())


class _Seen(NamedTuple):
    """What is kept of an image."""

    scores: Tensor  # (N,)
    labels: Tensor  # (N,)
    outcomes: Tensor  # (areas, thresholds, N): 1 right, 0 wrong, -1 not counted
    true_labels: Tensor  # (M,)
    counted: Tensor  # (areas, M)


class AveragePrecision:
    """Average precision of a data set, and which box was right at which threshold.

    Args:
        thresholds: similarities from which on a detection is right; a number, or several.
        interpolation: `"coco"`, `"voc07"` or `"voc"`, see `average_precision`. It also chooses the rule by
            which detections take objects, see `label_detections`.
        areas: ranges of area by name; the first is that of `update`'s labels.
        max_detections: so many of a class and an image count. None: 100 for COCO, as `COCOeval`, all for VOC.
        metric: a function `(boxes1, boxes2, fmt=)` to similarities (N, M).
        fmt: format of all boxes, see `iou_loss`. `"xyxy"` and `"xywh"` are COCO's convention,
            `"xyxy_inclusive"` is VOC's.

    Raises:
        ValueError: for an unknown interpolation, no thresholds, no areas.

    Reference:
        As `label_detections`. For VOC: `AveragePrecision(0.5, interpolation="voc", fmt="xyxy_inclusive")`.

    Example:
        >>> import torch
        >>> from iou_losses import AveragePrecision
        >>> evaluation = AveragePrecision()
        >>> truth = {"boxes": torch.tensor([[0.0, 0, 100, 100]]), "labels": torch.tensor([3])}
        >>> found = {**truth, "boxes": torch.tensor([[25.0, 0, 125, 100]]), "scores": torch.tensor([0.9])}
        >>> [labels] = evaluation.update([found], [truth])  # IoU 0.6
        >>> labels.matches[:, 0].tolist()
        [0, 0, 0, -1, -1, -1, -1, -1, -1, -1]
        >>> table = evaluation.compute()
        >>> round(table.mean(), 6), table.mean(0.5), table.mean(0.75), table.mean(area="small")
        (0.3, 1.0, 0.0, nan)
    """

    def __init__(
        self,
        thresholds: float | Sequence[float] | Tensor = COCO_THRESHOLDS,
        *,
        interpolation: str = "coco",
        areas: Mapping[str, tuple[float, float]] = COCO_AREAS,
        max_detections: int | None = None,
        metric: Metric = box_iou,
        fmt: str = "xyxy",
    ) -> None:
        one_of("interpolation", interpolation, INTERPOLATIONS)
        self.thresholds: tuple[float, ...] = tuple(
            torch.as_tensor(thresholds, dtype=torch.float64, device="cpu").reshape(-1).tolist()
        )
        if not self.thresholds or not areas:
            raise ValueError(f"there must be a threshold and a range of area, got {thresholds!r} and {areas!r}")
        self.interpolation, self.areas, self.metric, self.fmt = interpolation, dict(areas), metric, fmt
        self.rule = "coco" if interpolation == "coco" else "voc"
        self.max_detections = COCO_MAX_DETECTIONS if max_detections is None and self.rule == "coco" else max_detections
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self._seen: list[_Seen] = []

    def update(
        self, predictions: Sequence[Mapping[str, Tensor]], targets: Sequence[Mapping[str, Tensor]]
    ) -> list[DetectionLabels]:
        """Take in some images.

        Args:
            predictions: for each image `"boxes"` (N, 4), `"scores"` (N,) and `"labels"` (N,), as
                torchvision's detectors give and torchmetrics takes them.
            targets: for each image `"boxes"` (M, 4) and `"labels"` (M,), and where there are such
                `"iscrowd"`, `"ignore"` (VOC's "difficult") and `"area"`, each (M,).

        Returns:
            For each image what became of its detections and objects at each threshold, in the
            first range of area; see `DetectionLabels`.

        Raises:
            TypeError, ValueError: as `label_detections`; ValueError for lists of different lengths and missing keys.
                None of the images is taken in then.
        """
        if len(predictions) != len(targets):
            raise ValueError(f"there must be a target for each prediction, got {len(predictions)} and {len(targets)}")
        for name, keys, images in (
            ("prediction", ("boxes", "scores", "labels"), predictions),
            ("target", ("boxes", "labels"), targets),
        ):
            for image in images:
                if missing := [key for key in keys if key not in image]:
                    raise ValueError(f"a {name} must have {', '.join(keys)}; {', '.join(missing)} is missing")
        pairs = zip(predictions, targets, strict=True)
        labelled = [self._labelled(prediction, target) for prediction, target in pairs]
        self._seen += [seen for _, seen in labelled]  # of all images or, after an error, of none
        return [labels for labels, _ in labelled]

    def _labelled(
        self, prediction: Mapping[str, Tensor], target: Mapping[str, Tensor]
    ) -> tuple[DetectionLabels, _Seen]:
        ignore, crowd = (None if flags is None else flags.bool() for flags in map(target.get, ("ignore", "iscrowd")))
        labels = [
            label_detections(
                prediction["boxes"],
                prediction["scores"],
                target["boxes"],
                self.thresholds,
                pred_labels=prediction["labels"],
                true_labels=target["labels"],
                ignore=ignore,
                crowd=crowd,
                area_range=area_range,
                areas=target.get("area"),
                max_detections=self.max_detections,
                rule=self.rule,
                metric=self.metric,
                fmt=self.fmt,
            )
            for area_range in self.areas.values()
        ]
        matches = torch.stack([each.matches for each in labels])
        outcomes = (matches > NEGATIVE).to(torch.int8) - (matches == IGNORED).to(torch.int8)
        counted = torch.stack([each.found_by[0] != IGNORED for each in labels])
        scores, *classes = (t.detach().cpu() for t in (prediction["scores"], prediction["labels"], target["labels"]))
        return labels[0], _Seen(scores.double(), classes[0].long(), outcomes, classes[1].long(), counted)

    def compute(self) -> PrecisionTable:
        """Give the table of average precisions of the images so far.

        Raises:
            RuntimeError: before the first `update`.
        """
        if not self._seen:
            raise RuntimeError("there is nothing to compute before the first update")
        seen = _Seen(*(torch.cat(parts, -1) for parts in zip(*self._seen, strict=True)))
        classes = torch.cat([seen.labels, seen.true_labels]).unique()  # type: ignore[no-untyped-call]
        shape = (len(self.areas), len(self.thresholds), len(classes))
        precision, recall = (seen.scores.new_zeros(shape) for _ in range(2))
        objects = classes.new_zeros(len(self.areas), len(classes))
        for k, label in enumerate(classes):
            of_class = seen.labels == label
            outcomes = seen.outcomes[..., of_class]
            objects[:, k] = seen.counted[:, seen.true_labels == label].sum(-1)
            positives = objects[:, k, None].expand(shape[:2])
            curve = precision_recall(seen.scores[of_class], outcomes > 0, positives, outcomes < 0)
            precision[..., k] = average_precision(*curve, self.interpolation)
            recall[..., k] = curve[1][..., -1] if of_class.any() else 0
        undefined = (objects == 0)[:, None]
        return PrecisionTable(
            precision.masked_fill(undefined, math.nan),
            recall.masked_fill(undefined, math.nan),
            objects,
            tuple(self.areas),
            self.thresholds,
            tuple(classes.tolist()),
        )
