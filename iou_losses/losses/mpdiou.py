"""MPDIoU: the distances of the corners, relative to the image."""

from __future__ import annotations

import math

from torch import Tensor

from iou_losses.boxes import Pair
from iou_losses.core import BoxLoss, check_range, paired_loss
from iou_losses.elementary import squared_length
from iou_losses.losses.iou import iou


def mpdiou_cost(pair: Pair, diagonal: float) -> Tensor:
    """Return 1 - IoU + (d1^2 + d2^2) / (W^2 + H^2), absolute lengths: the image scales them, not the hull."""
    (low1, high1), (low2, high2) = pair.box1, pair.box2
    return 1 - iou(pair) + squared_length((low1 - low2) / diagonal) + squared_length((high1 - high2) / diagonal)


def image_diagonal(image_size: tuple[float, float]) -> float:
    """Return the length of the diagonal, or raise a `ValueError` for what is not two sides above 0."""
    if not isinstance(image_size, (tuple, list)) or len(image_size) != 2:
        raise ValueError(f"image_size must be (width, height), got {image_size!r}")
    for side in image_size:
        check_range("image_size", side, 0, above=True)
    return math.hypot(*image_size)


def mpdiou_loss(
    pred: Tensor,
    target: Tensor,
    reduction: str = "none",
    eps: float = 0.0,
    *,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    fmt: str = "xyxy",
    image_size: tuple[float, float],
) -> Tensor:
    r"""Minimum point distance IoU: the squared distances of both corners count, relative to the image.

    .. math::
        L = 1 - IoU + \frac{d_1^2 + d_2^2}{W^2 + H^2}

    Args:
        pred: boxes of shape (..., 4), in the unit of `image_size`. Floating or integer; inverted and collapsed
            boxes are boxes of area 0.
        target: boxes of the same shape.
        reduction, eps, weight, avg_factor, fmt: as in `iou_loss`.
        image_size: width and height of the input image in the unit of the boxes: pixels of the
            image the network sees, (1, 1) for normalised boxes.

    Returns:
        The loss in [0, 3] within the image, float32 or float64: of shape (...) for `"none"`, else of shape ().

    Raises:
        TypeError, ValueError: as `iou_loss`; ValueError for a side that is not above 0.

    Properties:
        Symmetric, not scale free: the image is the ruler. A disjoint pair has a gradient that
        brings the corners together, a weak one for boxes that are small in the image.

    Reference:
        Ma and Xu, "MPDIoU: A Loss for Efficient and Accurate Bounding Box Regression", 2023,
        arXiv:2307.07662.

    Deviations:
        None. Implementations that divide by a feature map's size, or give boxes in grid units and
        an image in pixels, compute another loss. Corner distances beyond 1e19 images leave float32.

    Example:
        >>> import torch
        >>> from iou_losses import mpdiou_loss
        >>> mpdiou_loss(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]), image_size=(640, 480))
        tensor([0.5421])
    """
    diagonal = image_diagonal(image_size)
    return paired_loss(mpdiou_cost, pred, target, reduction, eps, weight, avg_factor, fmt, diagonal=diagonal)


class MPDIoULoss(BoxLoss):
    """`mpdiou_loss` as a module.

    Args:
        reduction, eps, fmt, image_size: as in `mpdiou_loss`, with `reduction="mean"`.
        loss_weight: multiplies the result.

    Example:
        >>> import torch
        >>> from iou_losses import MPDIoULoss
        >>> MPDIoULoss(image_size=(640, 480))(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[2.0, 3, 9, 11]]))
        tensor(0.5421)
    """

    function = staticmethod(mpdiou_loss)

    def __init__(
        self,
        reduction: str = "mean",
        eps: float = 0.0,
        *,
        fmt: str = "xyxy",
        loss_weight: float = 1.0,
        image_size: tuple[float, float],
    ) -> None:
        super().__init__(reduction, eps, fmt=fmt, loss_weight=loss_weight, image_size=image_size)
