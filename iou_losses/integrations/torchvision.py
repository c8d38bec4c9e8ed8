"""Any box loss in torchvision's detectors, by one call. Tested with torchvision 0.29.1.

Real anchors and proposals are decoded, in float32 at least, and the loss gets corners in pixels.
All other terms, torchvision's normalisation, its sampling and its random numbers are as before.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from torch import nn

from iou_losses.integrations.box_term import BoxLossLike, BoxTerm
from iou_losses.integrations.changed import Changed, change, restore
from iou_losses.integrations.torchvision_heads import (
    FCOSBoxLoss,
    RetinaNetBoxLoss,
    RoIHeadsBoxLoss,
    RPNBoxLoss,
    SSDBoxLoss,
    detection,
    roi_heads,
)

rcnn = detection("generalized_rcnn", "GeneralizedRCNN")
retinanet = detection("retinanet", "RetinaNet", "RetinaNetRegressionHead")
fcos = detection("fcos", "FCOS", "FCOSHead")
ssd = detection("ssd", "SSD")
rpn_module = detection("rpn", "RegionProposalNetwork")

Model = TypeVar("Model", bound=nn.Module)
SUPPORTED = "FasterRCNN, MaskRCNN, KeypointRCNN, RetinaNet, FCOS and SSD (SSDLite is one) and subclasses of them"


class Place(NamedTuple):
    """Where a kind of model computes its box loss, and what changes it."""

    model: type
    path: str  # of the part that computes it
    part: type
    by: type[Changed]


PLACES = (
    Place(rcnn.GeneralizedRCNN, "roi_heads", roi_heads.RoIHeads, RoIHeadsBoxLoss),
    Place(retinanet.RetinaNet, "head.regression_head", retinanet.RetinaNetRegressionHead, RetinaNetBoxLoss),
    Place(fcos.FCOS, "head", fcos.FCOSHead, FCOSBoxLoss),
    Place(ssd.SSD, "", ssd.SSD, SSDBoxLoss),
)
RPN = Place(rcnn.GeneralizedRCNN, "rpn", rpn_module.RegionProposalNetwork, RPNBoxLoss)


def use_box_loss(model: Model, loss: BoxLossLike, *, rpn: BoxLossLike | None = None) -> Model:
    """Train a torchvision detector with another box-regression loss.

    The model is changed in place. It keeps its parameters and the keys of its `state_dict`; it can be
    copied, pickled, compiled and wrapped by DDP. Each call starts from torchvision's model, so what
    counts is the last one. To be called before the model is wrapped, and again after its head was replaced.

    Args:
        model: Faster, Mask or Keypoint R-CNN, RetinaNet, FCOS, SSD or SSDLite, as torchvision's builders
            make them, or an instance of a subclass.
        loss: a function `(pred, target, reduction=...)` of boxes (n, 4) in xyxy, such as
            `iou_losses.ciou_loss`, or a module, such as `iou_losses.CIoULoss(loss_weight=2.0)`. Its sum over
            the positive boxes is divided as torchvision does; a module's own `reduction` has no effect.
        rpn: the same for the region proposal network of an R-CNN; None leaves torchvision's.

    Returns:
        The model that was handed in.

    Raises:
        TypeError: for another model, a head that is not torchvision's or no subclass of it, and for a
            loss that cannot be called so.
        ValueError: for a loss with another format than xyxy, and for `rpn` without a proposal network.

    Example:
        >>> from torchvision.models.detection import ssdlite320_mobilenet_v3_large
        >>> from iou_losses import CIoULoss
        >>> from iou_losses.integrations.torchvision import use_box_loss
        >>> model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
        >>> model = use_box_loss(model, CIoULoss())
    """
    place = place_of(model)
    term = BoxTerm(loss)
    rpn_term = None if rpn is None else BoxTerm(rpn)
    if rpn_term is not None:
        if not isinstance(model, RPN.model):
            raise ValueError(f"rpn= is for models with a region proposal network, {type(model).__name__} has none")
        require_part(model, RPN)
    restore_box_loss(model)
    change(model.get_submodule(place.path), place.by, term)
    if rpn_term is not None:
        change(model.get_submodule(RPN.path), RPN.by, rpn_term)
    return model


def restore_box_loss(model: Model) -> Model:
    """Give a model its own box loss back, and that of its proposal network.

    Args:
        model: what `use_box_loss` takes, changed by it or not.

    Returns:
        The model that was handed in; every object in it has its own class again.

    Raises:
        TypeError: for a model that `use_box_loss` does not take.

    Example:
        >>> from torchvision.models.detection import ssdlite320_mobilenet_v3_large
        >>> from iou_losses import ciou_loss
        >>> from iou_losses.integrations.torchvision import restore_box_loss, use_box_loss
        >>> model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
        >>> type(restore_box_loss(use_box_loss(model, ciou_loss))).__name__
        'SSD'
    """
    restore(model.get_submodule(place_of(model).path))
    if isinstance(model, RPN.model):
        restore(model.get_submodule(RPN.path))
    return model


def place_of(model: nn.Module) -> Place:
    """Find where a model computes its box loss; a `TypeError` where nobody knows."""
    for place in PLACES:
        if isinstance(model, place.model):
            require_part(model, place)
            return place
    raise TypeError(f"use_box_loss takes models of torchvision, not wrapped: {SUPPORTED}; got {type(model).__name__}")


def require_part(model: nn.Module, place: Place) -> None:
    """Raise a `TypeError` where the part of the model is not torchvision's, or calls its loss in its own way."""
    part: Any = dict(model.named_modules()).get(place.path)
    if not isinstance(part, place.part):
        raise TypeError(
            f"{type(model).__name__}.{place.path} must be a {place.part.__name__} or of a subclass, "
            f"got {type(part).__name__}"
        )
    written: Any = part.original if isinstance(part, Changed) else type(part)
    if place.by is RoIHeadsBoxLoss and written.forward is not roi_heads.RoIHeads.forward:
        raise TypeError(f"{written.__name__} overrides RoIHeads.forward, in which the box loss is computed")
