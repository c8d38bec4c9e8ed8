"""Any box loss in ultralytics' YOLO models, by one call. Tested with ultralytics 8.4.190.

The box term alone is another one: its weights by the assigned scores, its gain `box`, and the
second term (DFL or L1) are ultralytics' own. ultralytics is under the AGPL-3.0; this module calls
it and contains nothing of it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from iou_losses.integrations import required
from iou_losses.integrations.box_term import BoxLossLike, BoxTerm
from iou_losses.integrations.changed import Changed, change, restore

TESTED = "8.4.190"


def _ultralytics(module: str, *names: str) -> Any:
    return required(f"ultralytics.{module}", *names, install="ultralytics", tested=TESTED)


_engine = _ultralytics("engine.model", "Model")
_trainer = _ultralytics("engine.trainer", "BaseTrainer")
_tasks = _ultralytics("nn.tasks", "BaseModel", "YOLOEModel")
_loss = _ultralytics("utils.loss", "v8DetectionLoss", "BboxLoss", "RotatedBboxLoss")
_torch_utils = _ultralytics("utils.torch_utils", "unwrap_model")

Model = TypeVar("Model")
EVENT = "on_pretrain_routine_end"  # model and EMA copy exist, no batch has been seen
HEADS = ("one2many", "one2one")  # the criteria of an end-to-end head
SUPPORTED = "YOLO models for detection, segmentation and pose, v8 and later, end-to-end heads included"


def use_box_loss(model: Model, loss: BoxLossLike, *, assigner: bool = False) -> Model:
    """Train a YOLO with another box loss.

    Called again, it replaces the loss. Checkpoints are as before: ultralytics saves no criterion.

    Args:
        model: a `YOLO` object, whose `train()` builds a new model and changes that and its EMA copy; a
            trainer, before or in a training; or a `DetectionModel` with its `args`. Detection, segmentation
            and pose, end-to-end heads included.
        loss: a function `(pred, target, reduction=...)` of boxes (n, 4) in xyxy, such as
            `iou_losses.ciou_loss`, or a module, such as `iou_losses.CIoULoss()`. The unit is a cell of the
            grid, other at each level. A module's own `reduction` has no effect.
        assigner: whether the task-aligned assigner scores candidates with one minus the same loss, from 0
            up, in place of its own CIoU. There the unit is the pixel.

    Returns:
        What was handed in.

    Raises:
        TypeError: for another model, rotated boxes, RT-DETR and YOLOE among them, and for a loss that cannot
            be called so.
        ValueError: for a loss with another format than xyxy, for `assigner` with a `loss_weight` of 0, and
            for a `DetectionModel` without `args`.

    Example:
        >>> from ultralytics import YOLO
        >>> from iou_losses import CIoULoss
        >>> from iou_losses.integrations.ultralytics import use_box_loss
        >>> model = use_box_loss(YOLO("yolo26n.yaml"), CIoULoss())
    """
    chosen = ChosenBoxLoss(loss, assigner)
    if isinstance(model, _engine.Model):
        check_model(model.model)
        add_callback(model, chosen)
    elif isinstance(model, _trainer.BaseTrainer):
        add_callback(model, chosen)
        if isinstance(model.model, nn.Module):  # a name until the training begins
            chosen(model)
    else:
        chosen.apply(model)
    return model


class ChosenBoxLoss:
    """A callback that changes the model of a trainer and its EMA copy; goes with them to the processes of DDP.

    Args:
        loss, assigner: see `use_box_loss`.
    """

    def __init__(self, loss: BoxLossLike, assigner: bool) -> None:
        self.term, self.assigner = BoxTerm(loss), assigner
        if assigner and getattr(loss, "loss_weight", 1) == 0:
            raise ValueError("assigner=True needs a loss with a loss_weight other than 0")

    def __call__(self, trainer: Any) -> None:
        """Change both models of a trainer."""
        self.apply(trainer.model)
        if trainer.ema is not None:
            self.apply(trainer.ema.ema)

    def apply(self, model: Any) -> None:
        """Change the criterion of a model, which is built here if no batch has been seen."""
        model = _torch_utils.unwrap_model(model) if isinstance(model, nn.Module) else model
        criterion = getattr(model, "criterion", None)
        if criterion is None:
            criterion = check_model(model)
            model.criterion = criterion
        for part in detection_criteria(criterion, model):
            self.term.to(part.device)
            change(part.bbox_loss, GridBoxLoss, self.term)
            restore(part.assigner)
            if self.assigner:
                change(part.assigner, SimilarityAssigner, self.term)


class GridBoxLoss(Changed):
    """The box losses of a YOLO head, the first of the two replaced."""

    def forward(
        self,
        pred_dist: Tensor,
        pred_bboxes: Tensor,
        anchor_points: Tensor,
        target_bboxes: Tensor,
        target_scores: Tensor,
        target_scores_sum: Tensor,
        fg_mask: Tensor,
        *rest: Any,
    ) -> tuple[Tensor, Tensor]:
        """Give the chosen loss and ultralytics' second one, both weighted by the assigned scores.

        Args:
            pred_bboxes, target_bboxes: corners in cells of the grid, (images, points, 4).
            target_scores: (images, points, classes).
            target_scores_sum: what both losses are divided by, ().
            fg_mask: which points have a target, (images, points).
            pred_dist, anchor_points, rest: what ultralytics computes the second loss from.
        """
        boxes = (pred_dist, pred_bboxes, anchor_points, target_bboxes)
        _, second = self.original.forward(self, *boxes, target_scores, target_scores_sum, fg_mask, *rest)
        points = fg_mask.nonzero(as_tuple=True)
        weight = target_scores[points].sum(-1)
        # No model owns the criterion, so nobody else tells a loss with a state that this is a validation.
        self.chosen_box_loss.train(torch.is_grad_enabled())
        loss = self.chosen_box_loss(pred_bboxes[points], target_bboxes[points], "none")
        return (loss.reshape(weight.shape) * weight).sum() / target_scores_sum, second


class SimilarityAssigner(Changed):
    """The assigner, its CIoU replaced by one minus the chosen loss."""

    def iou_calculation(self, gt_bboxes: Tensor, pd_bboxes: Tensor) -> Tensor:
        """Give the similarity of each pair of boxes (n, 4), corners in pixels, from 0 up, (n,)."""
        self.chosen_box_loss.eval()  # candidates are not what a loss with a state learns from
        similarity = self.chosen_box_loss.similarity(pd_bboxes, gt_bboxes)
        return similarity.reshape(len(gt_bboxes)).to(pd_bboxes.dtype).clamp_(0)


def add_callback(owner: Any, chosen: ChosenBoxLoss) -> None:
    """Register the callback with a YOLO object or a trainer in place of an earlier one."""
    others = [callback for callback in owner.callbacks[EVENT] if not isinstance(callback, ChosenBoxLoss)]
    owner.callbacks[EVENT] = [*others, chosen]


def check_model(model: Any) -> Any:
    """Return a new criterion of the model; raise a `TypeError` where its box loss is of another kind."""
    if not isinstance(model, _tasks.BaseModel) or isinstance(model, _tasks.YOLOEModel):
        raise unsupported(model)
    if not hasattr(model, "args"):
        raise ValueError(
            "the model has no `args`, which ultralytics' losses read: set them, or hand in the YOLO object or the "
            "trainer"
        )
    try:
        criterion = model.init_criterion()
    except NotImplementedError:
        raise unsupported(model) from None
    detection_criteria(criterion, model)
    return criterion


def detection_criteria(criterion: Any, model: Any) -> list[Any]:
    """Return the criteria with a box loss of upright boxes: one, or two for an end-to-end head."""
    parts = [getattr(criterion, head) for head in HEADS if hasattr(criterion, head)] or [criterion]
    for part in parts:
        if not isinstance(part, _loss.v8DetectionLoss) or isinstance(part.bbox_loss, _loss.RotatedBboxLoss):
            raise unsupported(model)
    return parts


def unsupported(model: Any) -> TypeError:
    """Return the error for a model that `use_box_loss` does not take."""
    return TypeError(
        f"use_box_loss takes a YOLO object, a trainer or a model of ultralytics: {SUPPORTED}; "
        f"got {type(model).__name__}"
    )
