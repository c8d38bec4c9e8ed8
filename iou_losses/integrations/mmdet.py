"""All losses of this package in the registry of mmdetection's configs. Tested with mmengine 0.10.7.

mmdetection itself is not needed. Its registry asks mmengine's for what it does not have.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import iou_losses
from iou_losses.core import BoxLoss
from iou_losses.integrations import required

TESTED = "0.10.7"
_registry: Any = required("mmengine.registry", "MODELS", install="mmengine", tested=TESTED)


def register() -> None:
    """Register every loss module under its own name in mmengine's `MODELS`; twice is fine.

    In a config, `loss_bbox=dict(type="mmengine.CIoULoss", loss_weight=2.0)` builds the module, which
    mmdetection's heads call as their own losses. The scope `mmengine.` is needed for the names that
    mmdetection has as well (IoULoss, GIoULoss, DIoULoss, CIoULoss, ...); a plain name finds its own.
    A loss that changes another one takes that one's config: `base=dict(type="mmengine.CIoULoss")`.
    Two-stage and anchor heads need `reg_decoded_bbox=True`, or they hand over deltas.

    Raises:
        KeyError: if something else is registered in mmengine under the name of one of the losses.

    Example:
        >>> from mmengine.registry import MODELS
        >>> from iou_losses.integrations.mmdet import register
        >>> register()
        >>> MODELS.build({"type": "CIoULoss", "loss_weight": 2.0})
        CIoULoss(reduction='mean', eps=0.0, fmt='xyxy', loss_weight=2.0, iou_threshold=0.0)
    """
    for name, module in vars(iou_losses).items():
        if isinstance(module, type) and issubclass(module, BoxLoss) and module is not BoxLoss:
            factory = _buildable(name)
            known = _registry.MODELS.module_dict.get(name) is factory
            _registry.MODELS.register_module(name=name, module=factory, force=known)


@cache
def _buildable(name: str) -> Any:
    """Return the class itself, or for a loss that changes a `base` a function that builds that one first."""
    module = getattr(iou_losses, name)
    if "base" not in inspect.signature(module).parameters:
        return module

    def build(**options: Any) -> Any:
        if isinstance(options.get("base"), dict):
            options["base"] = _registry.MODELS.build(options["base"])
        return module(**options)

    return build
