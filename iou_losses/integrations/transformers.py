"""Any box loss in the DETR family of transformers, by one call. Tested with transformers 5.24.0.

The libraries' criteria build the N x N matrix of all matched pairs of a batch and read its
diagonal. Here the N pairs alone are computed, in the box loss and in the two terms that weigh
by the IoU (`loss_labels_vfl` of RT-DETR and D-FINE, `loss_local` of D-FINE). That takes memory
for N boxes, and a pair of collapsed boxes cannot poison the gradient of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from iou_losses.integrations import required
from iou_losses.integrations.box_term import BoxLossLike, BoxTerm
from iou_losses.integrations.changed import Changed, change, with_globals
from iou_losses.pairwise import paired_iou

TESTED = "5.24.0"


def _loss_module(name: str, *names: str) -> Any:
    return required(f"transformers.loss.{name}", *names, install="transformers scipy pillow", tested=TESTED)


for _package in ("scipy", "PIL"):  # transformers installs without them, its losses do not run without them
    required(_package, install="transformers scipy pillow", tested="the versions that transformers asks for")
_detr = _loss_module("loss_for_object_detection", "ImageLoss")
_deformable = _loss_module("loss_deformable_detr", "DeformableDetrImageLoss")
_rt_detr = _loss_module("loss_rt_detr", "RTDetrLoss")
_d_fine = _loss_module("loss_d_fine", "DFineLoss")
_to_corners: Callable[[Tensor], Tensor] = required(
    "transformers.image_transforms", "center_to_corners_format", install="transformers", tested=TESTED
).center_to_corners_format

Model = TypeVar("Model", bound=nn.Module)
SUPPORTED = "DETR, Conditional DETR, Deformable DETR, RT-DETR, RT-DETR v2 and D-FINE"


def use_box_loss(model: Model, loss: BoxLossLike) -> Model:
    """Train a model of the DETR family with another box loss, and without N x N matrices.

    The loss takes the place of GIoU and keeps its name `loss_giou` and its weight in the config; L1,
    matching and all other terms are the model's. `from_pretrained` gives a model its own loss again:
    call this after it.

    Args:
        model: a `...ForObjectDetection` of DETR, Conditional DETR, Deformable DETR, RT-DETR, RT-DETR v2
            or D-FINE.
        loss: a function `(pred, target, reduction=...)` of boxes (n, 4) in xyxy, such as
            `iou_losses.ciou_loss`, or a module, such as `iou_losses.CIoULoss()`. One with
            `fmt="cxcywh"` gets the boxes as the model predicts them, without the rounding of corners.
            The unit is the size of the image. A module's own `reduction` has no effect.

    Returns:
        The model that was handed in, with another `loss_function`.

    Raises:
        TypeError: for another model, and for a loss that cannot be called so.
        ValueError: for a loss with another format than xyxy and cxcywh.

    Example:
        >>> from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
        >>> from iou_losses import CIoULoss
        >>> from iou_losses.integrations.transformers import use_box_loss
        >>> backbone = ResNetConfig(embedding_size=8, hidden_sizes=[8] * 4, depths=[1] * 4)
        >>> config = DetrConfig(backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1)
        >>> model = use_box_loss(DetrForObjectDetection(config), CIoULoss(fmt="cxcywh"))
    """
    setting: Any = getattr(type(model), "loss_function", None)
    function: Any = model.loss_function if isinstance(setting, property) else None
    if isinstance(function, PairedCriterion):
        function = function.function
    name = criterion_name(function)
    if name is None:
        raise TypeError(f"use_box_loss takes the object detection models {SUPPORTED}; got {type(model).__name__}")
    criterion = PairedCriterion(function, name, BoxTerm(loss, ("xyxy", "cxcywh")))
    # By the property's own setter: a module assigned to the attribute would be registered under the
    # property's name, where nothing ever reads it.
    setting.fset(model, criterion)
    return model


class PairedCriterion(nn.Module):
    """A loss function of transformers whose criterion computes matched pairs only.

    Args:
        function: transformers' own.
        name: the global name under which that finds its criterion.
        term: the box loss.
    """

    def __init__(self, function: Callable[..., Any], name: str, term: BoxTerm) -> None:
        super().__init__()
        self.function, self.name, self.term = function, name, term

    # It matches on the CPU, and its function is a new one at each call.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Give what transformers' function gives: the loss, the dictionary of its terms, auxiliary outputs."""

        def build(*args: Any, **kwargs: Any) -> Any:
            original, by = CRITERIA[self.name]
            criterion = original(*args, **kwargs)
            change(criterion, by, self.term)
            return criterion

        return with_globals(self.function, **{self.name: build})(*args, **kwargs)


class Diagonal:
    """Stand in for a matrix (n, n) of which `torch.diag` is the only reader."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer `torch.diag`; torch raises a `TypeError` for everything else."""
        return args[0].values if func is torch.diag and len(args) == 1 and not kwargs else NotImplemented


def paired_box_iou(boxes1: Tensor, boxes2: Tensor) -> tuple[Diagonal, None]:
    """Stand in for transformers' `box_iou`, whose second result, the unions, is not used."""
    return Diagonal(paired_iou(boxes1, boxes2)), None


class DetrBoxLoss(Changed):
    """The criterion of DETR, Conditional DETR and Deformable DETR."""

    _get_source_permutation_idx: Any

    def loss_boxes(
        self, outputs: dict[str, Tensor], targets: list[dict[str, Tensor]], indices: Any, num_boxes: float
    ) -> dict[str, Tensor]:
        """Give L1 and the chosen loss of the matched pairs, both by the number of boxes."""
        pred = outputs["pred_boxes"][self._get_source_permutation_idx(indices)]
        true = torch.cat([target["boxes"][index] for target, (_, index) in zip(targets, indices, strict=True)])
        term = self.chosen_box_loss
        loss = term(pred, true) if term.fmt == "cxcywh" else term(_to_corners(pred), _to_corners(true))
        distance = l1_loss(pred, true, reduction="none").sum()
        return {"loss_bbox": distance / num_boxes, "loss_giou": loss / num_boxes}


class RTDetrBoxLoss(DetrBoxLoss):
    """The criterion of RT-DETR and RT-DETR v2, which classifies by IoU."""

    loss_labels_vfl = with_globals(_rt_detr.RTDetrLoss.loss_labels_vfl, box_iou=paired_box_iou)


class DFineBoxLoss(RTDetrBoxLoss):
    """The criterion of D-FINE, which weighs its distributions by IoU as well."""

    loss_local = with_globals(_d_fine.DFineLoss.loss_local, box_iou=paired_box_iou)


# The name under which a loss function of transformers finds its criterion, the criterion, and what changes it.
CRITERIA: dict[str, tuple[Any, type[Changed]]] = {
    "ImageLoss": (_detr.ImageLoss, DetrBoxLoss),
    "DeformableDetrImageLoss": (_deformable.DeformableDetrImageLoss, DetrBoxLoss),
    "RTDetrLoss": (_rt_detr.RTDetrLoss, RTDetrBoxLoss),
    "DFineLoss": (_d_fine.DFineLoss, DFineBoxLoss),
}


def criterion_name(function: Any) -> str | None:
    """Return the name of the criterion that a loss function builds, None for one that is not known."""
    read = getattr(getattr(function, "__code__", None), "co_names", ())
    known = [name for name in read if name in CRITERIA and function.__globals__.get(name) is CRITERIA[name][0]]
    return known[0] if len(known) == 1 else None
