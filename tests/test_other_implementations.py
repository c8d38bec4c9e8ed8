"""Where other implementations get another number than the definition: theirs and ours, side by side.

Theirs is written out here, from what their code says, so that no other package is needed. Each test says in its name
what is done differently; its comment says by whom, where it is a project that one can name.
"""

import math

import pytest
import torch
from torch import Tensor

from iou_losses import (
    WIoULoss,
    alpha_iou_loss,
    bounded_iou_loss,
    ciou_loss,
    diou_loss,
    eiou_loss,
    extended_iou_loss,
    focal_eiou_loss,
    gcd_loss,
    giou_loss,
    iou_loss,
    mpdiou_loss,
    nwd_loss,
    piou_loss,
    sca_loss,
    shape_iou_loss,
    siou_loss,
    wiou_loss,
)


def box(*coordinates: float) -> Tensor:
    return torch.tensor(coordinates, dtype=torch.float64)


# Prediction and target.
NEAR = box(0, 0, 10, 10), box(2, 3, 9, 11)  # IoU 0.458
APART = box(3, 2, 9, 20), box(10, 5, 34, 9)  # a gap in x, and very different shapes
HALF = box(0, 0, 4, 4), box(0, 0, 4, 2)  # IoU exactly 1/2, another aspect ratio
SAME = box(0, 0, 100, 50), box(0, 0, 100, 50)


class Quantities:
    """What the formulas of the papers are made of. The prediction is a leaf that wants a gradient."""

    def __init__(self, pred: Tensor, target: Tensor) -> None:
        self.pred = pred.clone().requires_grad_()
        (x1, y1, x2, y2), (a1, b1, a2, b2) = self.pred, target
        self.w, self.h, self.wg, self.hg = x2 - x1, y2 - y1, a2 - a1, b2 - b1
        self.left, self.top, self.right, self.bottom = x1 - a1, y1 - b1, x2 - a2, y2 - b2
        self.iw, self.ih = torch.min(x2, a2) - torch.max(x1, a1), torch.min(y2, b2) - torch.max(y1, b1)
        self.cw, self.ch = torch.max(x2, a2) - torch.min(x1, a1), torch.max(y2, b2) - torch.min(y1, b1)
        self.dx, self.dy = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        self.intersection = self.iw.clamp(0) * self.ih.clamp(0)
        self.union = self.w * self.h + self.wg * self.hg - self.intersection
        self.iou = self.intersection / self.union
        self.rho2, self.c2 = self.dx**2 + self.dy**2, self.cw**2 + self.ch**2
        self.diou = 1 - self.iou + self.rho2 / self.c2
        self.v = 4 / math.pi**2 * ((self.wg / self.hg).atan() - (self.w / self.h).atan()) ** 2

    def gradient(self, loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss, self.pred, retain_graph=True)[0]


def value(loss, pair, **options):
    return loss(*pair, **options).item()


def gradient(loss, pair, **options):
    pred = pair[0].clone().requires_grad_()
    return torch.autograd.grad(loss(pred, pair[1], **options), pred)[0]


def about(number):
    return pytest.approx(number, abs=1e-6)


def same(found, expected):
    return torch.allclose(found, expected, rtol=0, atol=1e-12)


# IoU


def test_log_iou_is_infinite_for_disjoint_boxes_and_ours_has_a_floor():
    # UnitBox's definition. mmdetection has the floor of 1e-6 as well.
    theirs = -Quantities(*APART).iou.log()
    assert theirs.item() == math.inf
    assert value(iou_loss, APART, mode="log") == about(13.815511)
    assert not gradient(iou_loss, APART, mode="log").any()


def test_iou_loss_is_the_logarithm_by_default_and_ours_is_linear():
    # mmdetection's IoULoss(mode="log").
    theirs = -Quantities(*NEAR).iou.log()
    assert theirs.item() == about(0.781009) == value(iou_loss, NEAR, mode="log")
    assert value(iou_loss, NEAR) == about(0.542056)


def test_an_epsilon_in_every_height_makes_tiny_identical_boxes_differ():
    # ultralytics adds 1e-7 to both heights and to the union.
    side, eps = 1e-3, 1e-7
    area = side * (side + eps)
    theirs = 1 - side * side / (2 * area - side * side + eps)
    assert theirs == about(0.091074)
    assert value(iou_loss, (box(0, 0, side, side), box(0, 0, side, side))) == 0


# GIoU


def test_giou_with_the_intersection_in_place_of_the_union():
    two = Quantities(*NEAR)
    hull = two.cw * two.ch
    theirs = 1 - two.iou + (hull - two.intersection) / hull
    assert theirs.item() == about(1.096601)
    assert value(giou_loss, NEAR) == about(0.569329)


# CIoU


def test_ciou_with_a_gradient_through_alpha():
    # mmdetection 2, before it took the journal's rule: v^2 / (1 - IoU + v), all of it differentiated.
    two = Quantities(*HALF)
    theirs = two.diou + two.v**2 / (1 - two.iou + two.v)
    assert theirs.item() == about(value(ciou_loss, HALF))
    ours = gradient(ciou_loss, HALF)
    assert same(ours, two.gradient(two.diou + (two.v / (1 - two.iou + two.v)).detach() * two.v))
    assert (two.gradient(theirs) - ours).abs().max().item() == about(0.002703)


def test_ciou_with_alpha_squared_in_place_of_alpha():
    # v^2 / (1 - IoU + v) is alpha v already, and not alpha.
    two = Quantities(*APART)
    theirs = two.diou + two.v**2 / (1 - two.iou + two.v) * two.v
    assert theirs.item() == about(1.284801)
    assert value(ciou_loss, APART) == about(1.365257)


def test_ciou_with_its_constant_squared():
    two = Quantities(*APART)
    v = 4 / math.pi**2 * two.v
    theirs = two.diou + v**2 / (1 - two.iou + v)
    assert theirs.item() == about(1.242888)
    assert value(ciou_loss, APART) == about(1.365257)


def test_journal_ciou_at_an_iou_of_exactly_one_half_keeps_alpha_in_the_paper_and_loses_it_in_the_authors_code():
    # The authors' code and mmdetection 3 test IoU > 0.5, the paper says IoU >= 0.5.
    two = Quantities(*HALF)
    assert two.iou.item() == 0.5
    theirs = two.diou + (two.iou > 0.5) * two.v / (1 - two.iou + two.v) * two.v
    assert theirs.item() == about(0.531250) == value(diou_loss, HALF)
    assert value(ciou_loss, HALF, iou_threshold=0.5) == about(0.534498) == value(ciou_loss, HALF)


def test_the_journal_rule_with_at_most_in_place_of_below_turns_disjoint_ciou_into_diou():
    two = Quantities(*APART)
    alpha = torch.where(two.iou <= 0.0, 0.0, two.v / (1 - two.iou + two.v))
    assert (two.diou + alpha * two.v).item() == about(1.211673) == value(diou_loss, APART)
    assert value(ciou_loss, APART, iou_threshold=0.0) == about(1.365257)


def test_ciou_that_forgets_its_eps_on_the_way_to_the_diou_part():
    # torchvision's complete_box_iou_loss: eps reaches alpha alone, the rest has 1e-7.
    two, eps = Quantities(*HALF), 1.0
    theirs = two.diou + two.v / (1 - two.iou + two.v + eps) * two.v
    assert theirs.item() == about(0.532392)
    alpha = two.v / (1 - two.intersection / (two.union + eps) + two.v + eps)
    ours = 1 - two.intersection / (two.union + eps) + two.rho2 / (two.c2 + eps) + alpha * two.v
    assert value(ciou_loss, HALF, eps=eps) == about(ours.item()) == about(0.560835)


def test_a_perfect_match_without_an_epsilon_in_alpha_is_not_a_number():
    # mmdetection: v / (1 - IoU + v) is 0 / 0, since the 1e-7 in the union is lost beside 5000 in float32.
    two = Quantities(*SAME)
    iou, v = two.intersection.float() / (two.union.float() + 1e-7), two.v.float()
    assert (v / (1 - iou + v)).isnan()
    assert value(ciou_loss, SAME) == 0
    assert not gradient(ciou_loss, SAME).any()


def test_an_aspect_ratio_by_division_is_not_a_number_for_a_point():
    # torchvision and others take atan(w / h).
    point = box(5, 5, 5, 5), box(4, 4, 10, 8)
    assert Quantities(*point).v.isnan()
    assert math.isfinite(value(ciou_loss, point))
    assert gradient(ciou_loss, point).isfinite().all()


def test_a_score_clamped_to_minus_1_has_no_gradient_for_slender_boxes_far_apart():
    # mmdetection 3 and forks of YOLOX clamp CIoU to [-1, 1] before they subtract it from 1.
    slender = box(0, 0, 1, 100), box(2000, 2000, 2100, 2001)
    two = Quantities(*slender)
    score = 1 - (two.diou + (two.v / (1 - two.iou + two.v)).detach() * two.v)
    theirs = 1 - score.clamp(-1, 1)
    assert theirs.item() == 2
    assert not two.gradient(theirs).any()
    assert value(ciou_loss, slender) == about(1 - score.item()) == about(2.432483)
    assert gradient(ciou_loss, slender).any()


def test_the_slope_of_v_without_its_denominator():
    # The authors leave the factor 1 / (w^2 + h^2) out, as the paper suggests for boxes in [0, 1].
    two = Quantities(*NEAR)
    turn = (two.wg / two.hg).atan() - (two.w / two.h).atan()
    alpha = (two.v / (1 - two.iou + two.v)).item()
    theirs = alpha * -8 / math.pi**2 * turn * two.h  # by the width
    by_right_edge = gradient(ciou_loss, NEAR)[2] - gradient(diou_loss, NEAR)[2]
    assert (theirs / by_right_edge).item() == about(10**2 + 10**2)


# EIoU


def test_two_losses_are_called_eiou():
    # mmdetection's EIoULoss is the Extended IoU of arXiv:2112.01793, the Efficient one is arXiv:2101.08158.
    assert value(extended_iou_loss, NEAR) == about(0.492056)
    assert value(eiou_loss, NEAR) == about(0.684345)


def test_eiou_with_offsets_of_the_centres_in_place_of_differences_of_the_sides():
    two = Quantities(*NEAR)
    theirs = two.diou + two.dx**2 / two.cw**2 + two.dy**2 / two.ch**2
    assert theirs.item() == about(0.596845)
    assert value(eiou_loss, NEAR) == about(0.684345)


def test_focal_eiou_with_a_gradient_through_its_weight():
    # The paper does not say; what is in circulation takes the weight for a constant, and so do we.
    def through_the_weight(two):
        sizes = (two.w - two.wg) ** 2 / two.cw**2 + (two.h - two.hg) ** 2 / two.ch**2
        return two.iou**0.5 * (two.diou + sizes)

    two = Quantities(*NEAR)
    assert through_the_weight(two).item() == about(value(focal_eiou_loss, NEAR)) == about(0.463107)
    assert not same(two.gradient(through_the_weight(two)), gradient(focal_eiou_loss, NEAR))
    apart = Quantities(*APART)
    assert apart.gradient(through_the_weight(apart)).isnan().any()  # the infinite slope of a root at 0
    assert not gradient(focal_eiou_loss, APART).any()


def test_focal_eiou_of_a_batch_is_divided_by_the_weights_in_the_paper_and_by_the_boxes_elsewhere():
    pairs = [torch.stack(boxes) for boxes in zip(NEAR, HALF, APART, strict=True)]
    weights, losses = (1 - iou_loss(*pairs)) ** 0.5, eiou_loss(*pairs)
    elsewhere, paper = (weights * losses).mean().item(), ((weights * losses).sum() / weights.sum()).item()
    assert value(focal_eiou_loss, pairs, reduction="mean") == about(elsewhere) == about(0.338511)
    assert value(focal_eiou_loss, pairs, reduction="mean", normalize=True) == about(paper) == about(0.733861)


# Extended IoU


def test_extended_iou_with_the_union_of_the_clamped_intersection():
    two = Quantities(*APART)
    (x1, y1, x2, y2), (a1, b1, a2, b2) = APART
    left, right, top, bottom = max(x1, a1), min(x2, a2), max(y1, b1), min(y2, b2)
    signed = (
        (right - min(x1, a1)) * (bottom - min(y1, b1))
        + (min(left, right) - min(x1, a1)) * (min(top, bottom) - min(y1, b1))
        - (left - min(x1, a1)) * (max(top, bottom) - min(y1, b1))
        - (max(left, right) - min(x1, a1)) * (top - min(y1, b1))
    )
    assert signed == -10
    theirs = 1 - signed / two.union
    assert (theirs - 0.05).item() == about(0.999020)
    assert value(extended_iou_loss, APART) == about(0.996729)


# SIoU


def siou(two, distance):
    shape = sum((1 - torch.exp(-(a - b).abs() / torch.max(a, b))) ** 4 for a, b in ((two.w, two.wg), (two.h, two.hg)))
    return 1 - two.iou + (distance + shape) / 2


def sharpness(two):
    return 2 - 2 * (two.dx * two.dy).abs() / two.rho2


def test_siou_with_the_wrong_sign_makes_a_far_box_cheaper_than_a_near_one():
    def theirs(pair):
        two = Quantities(*pair)
        return siou(two, sum(1 - torch.exp(sharpness(two) * (d / c) ** 2) for d, c in sides(two))).item()

    def sides(two):
        return (two.dx, two.cw), (two.dy, two.ch)

    near, far = [(box(0, 0, 4, 4), box(shift, 0, shift + 4, 4)) for shift in (5, 50)]
    assert theirs(far) < theirs(near)
    assert theirs(APART) == about(0.790756)
    assert value(siou_loss, far) > value(siou_loss, near)
    assert value(siou_loss, APART) == about(1.285139)


def test_siou_with_offsets_that_are_not_squared():
    two = Quantities(*NEAR)
    theirs = siou(
        two, sum(1 - torch.exp(-sharpness(two) * d.abs() / c) for d, c in ((two.dx, two.cw), (two.dy, two.ch)))
    )
    assert theirs.item() == about(0.703042)
    assert value(siou_loss, NEAR) == about(0.571411)


def test_siou_by_an_arc_sine_is_not_a_number_for_equal_centres():
    # The sine of the angle is 0 / 0. The paper's form of the angle cost is 1 - 2 sin(asin(x) - pi / 4)^2.
    concentric = box(0, 0, 8, 8), box(2, 2, 6, 6)
    two = Quantities(*concentric)
    sine = two.dy.abs() / two.rho2.sqrt()
    assert (1 - 2 * torch.sin(torch.asin(sine) - math.pi / 4) ** 2).isnan()
    assert value(siou_loss, concentric) == about(0.773969)
    assert gradient(siou_loss, concentric).isfinite().all()
    near = Quantities(*NEAR)  # elsewhere it is the same number
    sine = near.dy.abs() / near.rho2.sqrt()
    paper = 1 - 2 * torch.sin(torch.asin(sine) - math.pi / 4) ** 2
    assert (2 - paper).item() == about(sharpness(near).item())


# alpha-IoU


def test_alpha_iou_with_a_power_of_each_axis_in_place_of_the_power_of_the_distance():
    # c^2 as c_w^6 + c_h^6, and rho^2 likewise: found in copies of the authors' code.
    two, alpha = Quantities(*APART), 3
    theirs = (
        1
        - two.iou**alpha
        + (two.dx ** (2 * alpha) + two.dy ** (2 * alpha)) / (two.cw ** (2 * alpha) + two.ch ** (2 * alpha))
    )
    assert theirs.item() == about(1.018211)
    assert value(alpha_iou_loss, APART, base="diou") == about(1.009484)


def test_alpha_below_1_has_an_infinite_slope_where_an_iou_or_a_penalty_is_0():
    same_boxes, apart = Quantities(*SAME), Quantities(*APART)
    assert same_boxes.gradient(1 - same_boxes.iou**0.5 + (same_boxes.rho2 / same_boxes.c2) ** 0.5).isnan().any()
    assert apart.gradient(1 - apart.iou**0.5).isnan().any()
    assert not gradient(alpha_iou_loss, SAME, alpha=0.5, base="diou").any()
    assert not gradient(alpha_iou_loss, APART, alpha=0.5).any()


# WIoU


def test_wiou_with_a_gradient_through_the_hull():
    # Copies in YOLO forks leave the authors' detach() out: growing the hull pays, so the far edge is hardly pulled.
    two = Quantities(*APART)
    theirs = torch.exp(two.rho2 / two.c2) * (1 - two.iou)
    assert theirs.item() == about(1.235744) == value(wiou_loss, APART)
    ours = torch.exp(two.rho2 / two.c2.detach()) * (1 - two.iou)
    assert same(gradient(wiou_loss, APART), two.gradient(ours))
    assert (two.gradient(theirs)[0] / two.gradient(ours)[0]).item() == about(0.179767)


def test_a_running_mean_in_the_class_is_shared_by_every_instance():
    # The authors' first code: two heads, or two models in one process, move each other's mean.
    class Shared:
        mean = 1.0

        def __call__(self, two):
            Shared.mean = 0.5 * Shared.mean + 0.5 * (1 - two.iou).item()
            return Shared.mean

    Shared()(Quantities(*NEAR))
    theirs = Shared()(Quantities(*APART))
    assert theirs == about(0.885514)
    first, second = (WIoULoss(version=3, momentum=0.5) for _ in range(2))
    first(*NEAR)
    second(*APART)
    assert second.mean.item() == 1


def test_a_running_mean_over_a_batch_with_nan_is_nan_for_ever():
    costs = torch.tensor([math.nan, 0.5])
    assert (0.5 * 1.0 + 0.5 * costs.mean()).isnan()
    criterion = WIoULoss(version=3, momentum=0.5)
    criterion(torch.stack([NEAR[0] * math.nan, HALF[0]]), torch.stack([NEAR[1], HALF[1]]))
    assert criterion.mean.item() == 0.75


def test_wious_authors_later_code_has_other_constants_than_the_paper():
    b = 1 - Quantities(*NEAR).iou.item()
    theirs = b / (2.7 * 1.7 ** (b - 2.7)) * value(wiou_loss, NEAR)
    assert value(wiou_loss, NEAR, version=3, alpha=1.7, delta=2.7) == about(theirs) == about(0.348636)
    assert value(wiou_loss, NEAR, version=3) == about(0.483593)


# MPDIoU


@pytest.mark.parametrize(
    ("divisor", "expected"),
    [(640**2 + 640**2, 0.542074), (80**2 + 60**2, 0.543556), (10**2 + 11**2, 0.609929)],
    ids=["by 640 whatever the image", "by the size of a feature map", "by the diagonal of the hull"],
)
def test_mpdiou_divided_by_something_else_than_the_image(divisor, expected):
    two = Quantities(*NEAR)
    theirs = 1 - two.iou + (two.left**2 + two.top**2 + two.right**2 + two.bottom**2) / divisor
    assert theirs.item() == about(expected)
    assert value(mpdiou_loss, NEAR, image_size=(640, 480)) == about(0.542080)


def test_mpdiou_with_the_square_of_a_difference_in_place_of_a_sum_of_squares():
    two = Quantities(*APART)
    theirs = 1 - two.iou + ((two.left - two.top) ** 2 + (two.right - two.bottom) ** 2) / (640**2 + 480**2)
    assert theirs.item() == about(1.002050)
    assert value(mpdiou_loss, APART, image_size=(640, 480)) == about(1.001256)


# The others


def test_shape_iou_with_weights_that_are_not_crossed():
    two = Quantities(*APART)
    ww, hh = 2 * two.wg / (two.wg + two.hg), 2 * two.hg / (two.wg + two.hg)

    def shape_iou(for_x, for_y):
        w = (1 - torch.exp(-for_x * (two.w - two.wg).abs() / torch.max(two.w, two.wg))) ** 4
        h = (1 - torch.exp(-for_y * (two.h - two.hg).abs() / torch.max(two.h, two.hg))) ** 4
        return (1 - two.iou + (for_x * two.dx**2 + for_y * two.dy**2) / two.c2 + (w + h) / 2).item()

    assert shape_iou(for_x=ww, for_y=hh) == about(1.482906)
    assert value(shape_iou_loss, APART, scale=1.0) == about(shape_iou(for_x=hh, for_y=ww)) == about(1.225997)


def test_powerful_iou_with_its_weight_as_a_constant_has_the_same_value_and_another_gradient():
    # The authors' code differentiates the weight, and so do we.
    two = Quantities(*NEAR)
    distance = (two.left.abs() + two.right.abs()) / two.wg / 4 + (two.top.abs() + two.bottom.abs()) / two.hg / 4
    x = 1.3 * torch.exp(-distance)
    weight, first = 3 * x * torch.exp(-(x**2)), 2 - two.iou - torch.exp(-(distance**2))
    assert value(piou_loss, NEAR, version=2) == about((weight * first).item()) == about(0.635417)
    assert same(gradient(piou_loss, NEAR, version=2), two.gradient(weight * first))
    assert not same(gradient(piou_loss, NEAR, version=2), two.gradient(weight.detach() * first))


def test_a_square_root_has_an_infinite_slope_for_a_perfect_match():
    # NWD and GCD as they are written; some add 1e-7 under the root, and an identical pair no longer costs 0.
    two = Quantities(*SAME)
    squared = two.rho2 + ((two.w - two.wg) ** 2 + (two.h - two.hg) ** 2) / 4
    assert two.gradient(1 - torch.exp(-squared.sqrt() / 12.8)).isnan().any()
    assert (1 - torch.exp(-(squared + 1e-7).sqrt() / 12.8)).item() == about(0.000025)
    for loss in (nwd_loss, gcd_loss):
        assert value(loss, SAME) == 0
        assert not gradient(loss, SAME).any()


def test_sca_with_clamped_overlaps_does_not_see_how_wide_a_gap_is():
    two = Quantities(*APART)
    low, high = torch.hypot(two.left, two.top), torch.hypot(two.right, two.bottom)
    theirs = 2 - (two.iw.clamp(0) / two.cw + two.ih.clamp(0) / two.ch) + (low + high) / two.c2.sqrt()
    assert theirs.item() == about(2.752165)
    assert value(sca_loss, APART) == about(2.784423)


def terms_of_bounded_iou(two, factor, beta):
    """The four smooth L1 terms: x, y, w, h."""
    shares = [
        *((s - factor * d.abs()).clamp(0) / (s + factor * d.abs()) for s, d in ((two.wg, two.dx), (two.hg, two.dy))),
        *(torch.min(a / b, b / a) for a, b in ((two.w, two.wg), (two.h, two.hg))),
    ]
    errors = 1 - torch.stack(shares)
    return torch.where(errors < beta, errors**2 / (2 * beta), errors - beta / 2)


def test_bounded_iou_of_each_coordinate_makes_the_mean_a_quarter():
    # mmdetection returns (N, 4), so that its mean is over 4 N numbers and a weight per box does not fit.
    theirs = terms_of_bounded_iou(Quantities(*NEAR), factor=2, beta=0.2)
    assert theirs.mean().item() == about(0.254167)
    assert value(bounded_iou_loss, NEAR, reduction="mean") == about(theirs.sum().item()) == about(1.016667)


def test_bounded_ious_authors_have_other_constants_than_the_paper():
    theirs = terms_of_bounded_iou(Quantities(*NEAR), factor=1, beta=1).sum().item()
    assert value(bounded_iou_loss, NEAR, factor=1.0, beta=1.0) == about(theirs) == about(0.153889)
    assert value(bounded_iou_loss, NEAR) == about(1.016667)
