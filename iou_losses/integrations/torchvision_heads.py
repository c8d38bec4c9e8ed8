"""What changes in each of torchvision's detectors: the methods that compute their box losses."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from iou_losses.integrations import required
from iou_losses.integrations.changed import Changed, with_globals

TESTED = "0.29.1"


def detection(module: str, *names: str) -> Any:
    """Import a module of `torchvision.models.detection` that has these names."""
    return required(f"torchvision.models.detection.{module}", *names, install="torchvision", tested=TESTED)


roi_heads = detection("roi_heads", "RoIHeads", "fastrcnn_loss")

Targets = list[dict[str, Tensor]]


class RetinaNetBoxLoss(Changed):
    """RetinaNet's regression head: the mean over images of the sum over positives, by their number."""

    def compute_loss(
        self, targets: Targets, head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> Tensor:
        """Give the box loss of a batch."""
        sums, counts = image_losses(self, head_outputs["bbox_regression"], targets, anchors, matched_idxs)
        means = [loss / max(1, count) for loss, count in zip(sums, counts, strict=True)]
        return total(means) / max(1, len(targets))


class SSDBoxLoss(Changed):
    """SSD and SSDLite: the sum over the positives of a batch, by their number."""

    def compute_loss(
        self, targets: Targets, head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> dict[str, Tensor]:
        """Give torchvision's losses of a batch, the box loss replaced."""
        losses: dict[str, Tensor] = self.original.compute_loss(self, targets, head_outputs, anchors, matched_idxs)
        sums, counts = image_losses(self, head_outputs["bbox_regression"], targets, anchors, matched_idxs)
        losses["bbox_regression"] = total(sums) / max(1, sum(counts))
        return losses


class FCOSBoxLoss(Changed):
    """FCOS's head: the sum over the positives of a batch, by their number."""

    box_coder: Any

    def compute_loss(
        self, targets: Targets, head_outputs: dict[str, Tensor], anchors: list[Tensor], matched_idxs: list[Tensor]
    ) -> dict[str, Tensor]:
        """Give torchvision's losses of a batch, the box loss replaced."""
        losses: dict[str, Tensor] = self.original.compute_loss(self, targets, head_outputs, anchors, matched_idxs)
        positive = torch.stack(matched_idxs) >= 0
        pred = self.box_coder.decode(wide(head_outputs["bbox_regression"]), torch.stack(anchors))[positive]
        true = torch.cat([t["boxes"][m[m >= 0]] for t, m in zip(targets, matched_idxs, strict=True)])
        losses["bbox_regression"] = self.chosen_box_loss(pred, true) / max(1, len(true))
        return losses


class Sampled(NamedTuple):
    """What the box head of an R-CNN hands to its loss in place of the regression targets."""

    regression_targets: list[Tensor]  # torchvision's
    proposals: list[Tensor]
    true: list[Tensor]  # the matched boxes of the positives
    head: Any


def _roi_losses(
    class_logits: Tensor, box_regression: Tensor, labels: list[Tensor], sampled: Sampled
) -> tuple[Tensor, Tensor]:
    """Stand in for `fastrcnn_loss`: its classification loss, and the chosen one of the positives by all samples."""
    classification, _ = roi_heads.fastrcnn_loss(class_logits, box_regression, labels, sampled.regression_targets)
    classes = torch.cat(labels)
    positive = torch.where(classes > 0)[0]
    deltas = wide(box_regression).reshape(len(classes), -1, 4)[positive, classes[positive]]
    pred = sampled.head.box_coder.decode_single(deltas, torch.cat(sampled.proposals)[positive])
    return classification, sampled.head.chosen_box_loss(pred, torch.cat(sampled.true)) / classes.numel()


class RoIHeadsBoxLoss(Changed):
    """The box head of an R-CNN. Its sampling returns the proposals as well, which its loss is not given."""

    forward = with_globals(roi_heads.RoIHeads.forward, fastrcnn_loss=_roi_losses)

    def select_training_samples(self, proposals: list[Tensor], targets: Targets) -> tuple[Any, ...]:
        """Sample proposals as torchvision does, and keep them with the regression targets."""
        proposals, matched, labels, regression_targets = self.original.select_training_samples(self, proposals, targets)
        boxes = [target["boxes"].to(proposals[0].dtype) for target in targets]  # as torchvision matches them
        true = [b[index[label > 0]] for b, index, label in zip(boxes, matched, labels, strict=True)]
        return proposals, matched, labels, Sampled(regression_targets, proposals, true, self)


class AnchorLabels(list[Tensor]):
    """The labels of the anchors of each image, with the anchors and the boxes that they are matched to."""

    anchors: list[Tensor]
    true: list[Tensor]


class RPNBoxLoss(Changed):
    """The region proposal network. Its labels bring the anchors along, which its loss is not given."""

    box_coder: Any
    fg_bg_sampler: Any

    def assign_targets_to_anchors(self, anchors: list[Tensor], targets: Targets) -> tuple[AnchorLabels, list[Tensor]]:
        """Match as torchvision does, and keep the anchors with the labels."""
        labels, true = self.original.assign_targets_to_anchors(self, anchors, targets)
        kept = AnchorLabels(labels)
        kept.anchors, kept.true = anchors, true
        return kept, true

    def compute_loss(
        self, objectness: Tensor, pred_bbox_deltas: Tensor, labels: AnchorLabels, regression_targets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Give the objectness loss, and the chosen one of the sampled positives by all samples."""
        # Both terms are of one random sample, so torchvision's own method cannot give the first of them.
        positive, negative = (torch.where(torch.cat(mask))[0] for mask in self.fg_bg_sampler(labels))
        sampled = torch.cat([positive, negative])
        classification = binary_cross_entropy_with_logits(objectness.flatten()[sampled], torch.cat(labels)[sampled])
        deltas = wide(pred_bbox_deltas)[positive]
        pred = self.box_coder.decode_single(deltas, torch.cat(labels.anchors)[positive])
        return classification, self.chosen_box_loss(pred, torch.cat(labels.true)[positive]) / sampled.numel()


def image_losses(
    head: Any, deltas: Tensor, targets: Targets, anchors: list[Tensor], matched_idxs: list[Tensor]
) -> tuple[list[Tensor], list[int]]:
    """Give the sum of the losses of each image's positives, and their number.

    Args:
        head: holds the box coder and the loss.
        deltas: of every image and anchor, (images, anchors, 4).
        targets, anchors: the boxes and the anchors of each image, (n, 4) and (anchors, 4).
        matched_idxs: the box that each anchor is matched to, negative for none, (anchors,) for each image.
    """
    sums, counts = [], []
    for image_deltas, target, places, matched in zip(wide(deltas), targets, anchors, matched_idxs, strict=True):
        positive = torch.where(matched >= 0)[0]
        pred = head.box_coder.decode_single(image_deltas[positive], places[positive])
        sums.append(head.chosen_box_loss(pred, target["boxes"][matched[positive]]))
        counts.append(positive.numel())
    return sums, counts


def total(losses: list[Tensor]) -> Tensor:
    """Add numbers one after the other, the order in which torchvision rounds."""
    result = losses[0]
    for loss in losses[1:]:
        result = result + loss
    return result


def wide(deltas: Tensor) -> Tensor:
    """Bring what autocast left in half precision to float32: anchors in pixels do not fit in half."""
    return deltas.to(torch.promote_types(deltas.dtype, torch.float32))
