// The four losses, each as its Python twin writes it. Adding a loss is one function, in family.h, and its
// name in the list there.
#pragma once

#include "pair.h"

using Parameters = const double*;  // a formula's keyword arguments, in order

// Zhou 2019, arXiv:1908.03851
template <class P>
INLINE auto union_of(const P& pair) { return pair.area1() + pair.area2() - area(pair.overlap()); }
template <class P>
INLINE auto iou(const P& pair, Parameters = nullptr) {
    return pair.ratio(area(pair.overlap()), union_of(pair), pair.same());
}
template <class P>
INLINE auto iou_cost(const P& pair, Parameters = nullptr) { return 1 - iou(pair); }

// Rezatofighi 2019, arXiv:1902.09630
template <class P>
INLINE auto empty_share(const P& pair) {
    using T = typename P::Scalar;
    // Not (C - U) / C, whose slope cancels to noise where the boxes are small in their hull.
    return not_negative(1 - quotient(pair.padded(union_of(pair)), pair.padded(area(pair.hull())), T(1)));
}
template <class P>
INLINE auto giou(const P& pair, Parameters = nullptr) { return iou(pair) - empty_share(pair); }
template <class P>
INLINE auto giou_cost(const P& pair, Parameters = nullptr) { return 1 - giou(pair); }

// Zheng 2020, arXiv:1911.08287
template <class P>
INLINE auto centre_distance(const P& pair) {
    return pair.ratio(squared_length(pair.offset()), squared_length(pair.hull()));
}
template <class P>
INLINE auto diou(const P& pair, Parameters = nullptr) { return iou(pair) - centre_distance(pair); }
template <class P>
INLINE auto diou_cost(const P& pair, Parameters = nullptr) { return 1 - diou(pair); }

// The same paper; the threshold is the journal version, arXiv:2005.03572
template <class P, class I>
INLINE auto aspect_term(const P& pair, const I& overlap, double iou_threshold) {
    using T = typename P::Scalar;
    constexpr double four_by_pi_squared = 0.40528473456935108578;
    const auto v = four_by_pi_squared * square(pair.turn());
    const auto v_ = detach(v);
    const auto overlap_ = detach(overlap);
    auto alpha = pair.template ratio<0>(v_, (1 - overlap_) + v_);
    alpha.v = overlap_.v < T(iou_threshold) ? T(0) : alpha.v;
    return alpha * v;
}
template <class P>
INLINE auto ciou(const P& pair, double iou_threshold = 0) {
    const auto overlap = iou(pair);
    return overlap - centre_distance(pair) - aspect_term(pair, overlap, iou_threshold);
}
template <class P>
INLINE auto ciou_cost(const P& pair, Parameters p) { return 1 - ciou(pair, p[0]); }
