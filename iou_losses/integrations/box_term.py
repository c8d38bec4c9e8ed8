"""A box loss as every integration calls it, whoever wrote it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

BoxLossLike = Callable[..., Tensor]
# The argument that chooses the reduction in one call: mmdetection's modules and ours, then functions.
REDUCTION_KEYWORDS = ("reduction_override", "reduction")


class BoxTerm(nn.Module):
    """Any box loss, called in one way.

    A module of its own, so that a loss with a state is saved, moved and switched between training
    and evaluation with the model that uses it; a loss without one adds nothing to the `state_dict`.

    Args:
        loss: a function `(pred, target, reduction=...)`, such as `iou_losses.ciou_loss` and those of
            `torchvision.ops`, or a module with mmdetection's arguments, such as `iou_losses.CIoULoss()`.
        formats: the formats of the boxes that the caller can provide, see `iou_losses.iou_loss`.

    Raises:
        TypeError: for what cannot be called so: a class in place of an instance, or a callable that
            takes no reduction.
        ValueError: for a loss that expects boxes in another format.

    Example:
        >>> import torch
        >>> from iou_losses import GIoULoss
        >>> from iou_losses.integrations.box_term import BoxTerm
        >>> term = BoxTerm(GIoULoss(loss_weight=2.0))
        >>> term(torch.tensor([[3.0, 0, 4, 1]]), torch.tensor([[0.0, 0, 1, 1]]))
        tensor(3.)
    """

    def __init__(self, loss: BoxLossLike, formats: tuple[str, ...] = ("xyxy",)) -> None:
        super().__init__()
        self.keyword = reduction_keyword(loss)
        self.fmt = stated_format(loss)
        if self.fmt not in formats:
            raise ValueError(
                f"the boxes of this model come as {' or '.join(map(repr, formats))}, the loss expects {self.fmt!r}"
            )
        self.loss = loss

    def forward(self, pred: Tensor, target: Tensor, reduction: str = "sum") -> Tensor:
        """Give the loss of boxes (n, 4) with theirs, the module's own `loss_weight` included.

        Args:
            pred, target: boxes of shape (n, 4).
            reduction: `"sum"`, `"mean"` or `"none"`; takes the place of a module's own.

        Returns:
            The loss, of shape (n,) for `"none"`, else of shape ().
        """
        return self.loss(pred, target, **{self.keyword: reduction})

    def similarity(self, pred: Tensor, target: Tensor) -> Tensor:
        """Give one minus the loss of each box, without the module's `loss_weight`, of shape (n,)."""
        loss: Tensor = self(pred, target, "none")
        return 1 - loss / getattr(self.loss, "loss_weight", 1.0)

    def extra_repr(self) -> str:
        """Show a loss that is no module; modules show themselves."""
        return "" if isinstance(self.loss, nn.Module) else getattr(self.loss, "__name__", repr(self.loss))


def reduction_keyword(loss: Any) -> str:
    """Return the name of the argument that chooses the reduction, `"reduction_override"` or `"reduction"`."""
    if isinstance(loss, type):
        raise TypeError(f"the loss must be an instance: {loss.__name__}(), not the class {loss.__name__}")
    if callable(loss):
        try:
            parameters = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters
        except ValueError:  # written in C: it cannot be asked
            return "reduction"
        for keyword in REDUCTION_KEYWORDS:
            if keyword in parameters:
                return keyword
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return "reduction"
    raise TypeError(
        "the loss must be callable as loss(pred, target, reduction='sum') or, a module, as "
        f"loss(pred, target, reduction_override='sum'), got {loss!r}"
    )


def stated_format(loss: Any) -> str:
    """Return the format of boxes that a loss says it expects, `"xyxy"` where it says nothing."""
    if isinstance(loss, functools.partial):
        return str(loss.keywords["fmt"]) if "fmt" in loss.keywords else stated_format(loss.func)
    return str(getattr(loss, "fmt", "xyxy"))
