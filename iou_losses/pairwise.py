"""Every box with every other: the similarity matrices, and the IoU of paired boxes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from iou_losses import native
from iou_losses.boxes import Pair, corners_of
from iou_losses.core import paired_loss, prepare
from iou_losses.losses.ciou import ciou
from iou_losses.losses.diou import diou
from iou_losses.losses.giou import giou
from iou_losses.losses.iou import iou
from iou_losses.native import compiled


def pairwise(similarity: Callable[[Pair], Tensor], boxes1: Tensor, boxes2: Tensor, fmt: str) -> Tensor:
    """Give the matrix of a similarity, by the engine or by broadcasting the formula of the paired loss."""
    boxes1, boxes2, formats = prepare(boxes1, boxes2, fmt)
    check_leading(boxes1.shape, boxes2.shape)
    kernel = native.matrix_kernel(similarity, boxes1, boxes2)
    if kernel is not None:
        return native.matrix(kernel, boxes1, boxes2, formats)
    if compiled.matrix_goes_into_the_graph(similarity, boxes1, boxes2):
        return compiled.matrix_in_graph(similarity, boxes1, boxes2, formats)
    return similarity(Pair(*corners_of(boxes1.unsqueeze(-2), boxes2.unsqueeze(-3), *formats)))


def check_leading(shape1: torch.Size, shape2: torch.Size) -> None:
    """Raise a `ValueError` unless the shapes are (..., N, 4) and (..., M, 4) with leading dimensions that broadcast."""
    leading = zip(reversed(shape1[:-2]), reversed(shape2[:-2]), strict=False)
    if len(shape1) < 2 or len(shape2) < 2 or any(n1 != n2 and 1 not in (n1, n2) for n1, n2 in leading):
        raise ValueError(
            "boxes1 and boxes2 must have the shapes (..., N, 4) and (..., M, 4) with leading dimensions "
            f"that broadcast, got {tuple(shape1)} and {tuple(shape2)}"
        )


def box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Give the IoU of every box of one set with every box of the other.

    Args:
        boxes1: boxes of shape (..., N, 4), floating or integer.
        boxes2: boxes of shape (..., M, 4); the leading dimensions broadcast.
        fmt: format of both, see `iou_loss`. `tv_tensors.BoundingBoxes` bring their own.

    Returns:
        The similarities in [0, 1], shape (..., N, M), float64 if either argument is float64 or
        integer, else float32; differentiable. Equal boxes have exactly 1, also without area.

    Raises:
        TypeError: for what is no tensor, and for bool and complex boxes.
        ValueError: for other shapes, devices that differ, an unknown `fmt`.

    Example:
        >>> import torch
        >>> from iou_losses import box_iou
        >>> box_iou(torch.tensor([[0.0, 0, 100, 100]]), torch.tensor([[0.0, 0, 100, 100], [25, 0, 125, 100]]))
        tensor([[1.0000, 0.6000]])
    """
    return pairwise(iou, boxes1, boxes2, fmt)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Give the GIoU of every box of one set with every box of the other.

    Args:
        boxes1, boxes2, fmt: as in `box_iou`.

    Returns:
        The similarities in [-1, 1], shape (..., N, M), dtype as in `box_iou`; differentiable.

    Raises:
        TypeError, ValueError: as `box_iou`.

    Reference:
        Rezatofighi et al., CVPR 2019, arXiv:1902.09630; see `giou_loss`.

    Example:
        >>> import torch
        >>> from iou_losses import generalized_box_iou
        >>> generalized_box_iou(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[0.0, 0, 1, 1], [3, 0, 4, 1]]))
        tensor([[ 1.0000, -0.5000]])
    """
    return pairwise(giou, boxes1, boxes2, fmt)


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Give the DIoU of every box of one set with every box of the other.

    Args:
        boxes1, boxes2, fmt: as in `box_iou`. torchvision's function of this name takes an
            `eps` in the third place; there is none here.

    Returns:
        The similarities in [-1, 1], shape (..., N, M), dtype as in `box_iou`; differentiable.

    Raises:
        TypeError, ValueError: as `box_iou`.

    Reference:
        Zheng et al., AAAI 2020, arXiv:1911.08287; see `diou_loss`.

    Example:
        >>> import torch
        >>> from iou_losses import distance_box_iou
        >>> distance_box_iou(torch.tensor([[0.0, 0, 1, 1]]), torch.tensor([[0.0, 0, 1, 1], [3, 0, 4, 1]]))
        tensor([[ 1.0000, -0.5294]])
    """
    return pairwise(diou, boxes1, boxes2, fmt)


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Give the CIoU of every box of one set with every box of the other.

    Args:
        boxes1, boxes2, fmt: as in `box_iou`. torchvision's function of this name takes an
            `eps` in the third place; there is none here.

    Returns:
        The similarities in (-2, 1], shape (..., N, M), dtype as in `box_iou`; differentiable,
        with alpha as a constant.

    Raises:
        TypeError, ValueError: as `box_iou`.

    Reference:
        Zheng et al., AAAI 2020, arXiv:1911.08287; see `ciou_loss`.

    Example:
        >>> import torch
        >>> from iou_losses import complete_box_iou
        >>> complete_box_iou(torch.tensor([[2.0, 3, 9, 8]]), torch.tensor([[4.0, 1, 12, 7]]))
        tensor([[0.2604]])
    """
    return pairwise(ciou, boxes1, boxes2, fmt)


def paired_iou(pred: Tensor, target: Tensor, fmt: str = "xyxy") -> Tensor:
    """Give the IoU of each box with its own partner.

    Args:
        pred, target: boxes of the same shape (..., 4), floating or integer.
        fmt: format of both, see `iou_loss`. `tv_tensors.BoundingBoxes` bring their own.

    Returns:
        The similarities in [0, 1], shape (...), dtype as in `box_iou`; differentiable.

    Raises:
        TypeError: for what is no tensor, and for bool and complex boxes.
        ValueError: for other shapes, devices that differ, an unknown `fmt`.

    Example:
        >>> import torch
        >>> from iou_losses import paired_iou
        >>> paired_iou(torch.tensor([[0, 0, 4, 4]]), torch.tensor([[1, 1, 5, 5]]))  # 9/23
        tensor([0.3913], dtype=torch.float64)
    """
    return paired_loss(iou, pred, target, "none", 0.0, None, None, fmt)
