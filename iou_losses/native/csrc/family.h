// The other losses of the family, each as its Python twin writes it; FAMILY at the end lists what is exported.
#pragma once

#include "formulas.h"

// Yu 2016, arXiv:1608.01471, with a floor
template <class P>
INLINE auto log_iou_cost(const P& pair, Parameters) {
    const auto thick = by_axis(pair);
    return thick.by_coordinates(-logarithm(at_least(iou(thick), 1e-6)));
}
template <class P>
INLINE auto square_iou_cost(const P& pair, Parameters) { return 1 - square(iou(pair)); }

// Zhang 2021, arXiv:2101.08158
template <class P>
INLINE auto eiou_cost(const P& pair, Parameters = nullptr) {
    const auto change = pair.change();
    const auto hull = pair.hull();
    const auto sizes = square(pair.template ratio<1>(change.x, hull.x)) + square(pair.template ratio<1>(change.y, hull.y));
    return 1 - iou(pair) + centre_distance(pair) + sizes;
}
template <class P>
INLINE auto focal_eiou_cost(const P& pair, Parameters p) { return power(detach(iou(pair)), p[0]) * eiou_cost(pair); }

// Peng 2021, arXiv:2112.01793
template <class P>
INLINE auto extended_distance(const P& pair) {
    using T = typename P::Scalar;
    const auto overlap = pair.overlap();
    const auto signed_ = pair.signed_overlap();
    const auto inner = pair.inner_edges();
    const auto gap = vector(signed_.x - overlap.x, signed_.y - overlap.y);  // 0 or negative
    const auto intersection = area(overlap) + gap.x * inner.y + gap.y * inner.x;
    const auto areas = pair.area1() + pair.area2();
    const auto union_ = areas - intersection;
    // Far apart I / U is near -1 and its slopes cancel to noise; those of (I + U) / U, which is one more, do not.
    const bool apart = -2 * intersection.v > union_.v;
    const auto full = select(apart, pair.ratio(union_, union_, T(1)), constant(T(0)));
    return 1 - (pair.ratio(select(apart, areas, intersection), union_, pair.same()) - full);
}
template <class P>
INLINE auto extended_iou_cost(const P& pair, Parameters p) { return smooth_l1(extended_distance(pair), p[0]); }

// Gevorgyan 2022, arXiv:2205.12740
template <class V>
INLINE auto sine_of_double_angle(const V& offset) {
    const auto dx = absolute(offset.x);
    const auto dy = absolute(offset.y);
    const auto x = quotient(dx, dx + dy);
    const auto y = quotient(dy, dx + dy);
    return quotient(2.0 * (x * y), x * x + y * y);
}
template <class P, class X, class Y, class F>
INLINE auto shape_term(const P& pair, const Vector<X, Y>& factor, F power) {
    const auto change = pair.change();
    const auto a = pair.size1();
    const auto b = pair.size2();
    const auto w = pair.template ratio<1>(absolute(change.x), max(a.x, b.x));
    const auto h = pair.template ratio<1>(absolute(change.y), max(a.y, b.y));
    return power(saturation(factor.x * w)) + power(saturation(factor.y * h));
}
template <class P>
INLINE auto siou_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const auto offset = pair.offset();
    const auto hull = pair.hull();
    const auto sharpness = 2 - sine_of_double_angle(offset);
    const auto x = square(pair.template ratio<1>(offset.x, hull.x));
    const auto y = square(pair.template ratio<1>(offset.y, hull.y));
    const auto distance = saturation(sharpness * x) + saturation(sharpness * y);
    const auto one = vector(constant(T(1)), constant(T(1)));
    return 1 - iou(pair) + 0.5 * (distance + shape_term(pair, one, [&](const auto& a) INLINE_LAMBDA { return power(a, p[0]); }));
}

// He 2021, arXiv:2110.13675
template <class P>
INLINE auto alpha_iou_cost(const P& pair, Parameters p) {
    const auto thick = by_axis(pair);
    return thick.by_coordinates(1 - power(iou(thick), p[0]));
}
template <class P>
INLINE auto alpha_giou_cost(const P& pair, Parameters p) {
    const auto thick = by_axis(pair);
    return thick.by_coordinates(1 - power(iou(thick), p[0]) + power(empty_share(thick), p[0]));
}
template <class P>
INLINE auto alpha_diou_cost(const P& pair, Parameters p) {
    return alpha_iou_cost(pair, p) + pair.by_coordinates(power(centre_distance(pair), p[0]));
}
template <class P>
INLINE auto alpha_ciou_cost(const P& pair, Parameters p) {
    const auto aspect = power(aspect_term(pair, iou(by_axis(pair)), 0), p[0]);
    return alpha_iou_cost(pair, p) + pair.by_coordinates(power(centre_distance(pair), p[0]) + aspect);
}

// Tong 2023, arXiv:2301.10051
template <class P>
INLINE auto wiou_cost(const P& pair, Parameters = nullptr) {
    const auto diagonal = detach(squared_length(pair.hull()));
    return exponential(pair.ratio(squared_length(pair.offset()), diagonal)) * (1 - iou(pair));
}
template <class P>
INLINE auto outlier_degree(const P& pair, double mean) {
    using T = typename P::Scalar;
    return quotient(detach(1 - iou(pair)), constant(T(mean)));
}
template <class P>
INLINE auto wiou2_cost(const P& pair, Parameters p) { return power(outlier_degree(pair, p[0]), p[1]) * wiou_cost(pair); }
template <class P>
INLINE auto wiou3_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const auto degree = outlier_degree(pair, p[0]);
    const T focus = degree.v / (T(p[2]) * exponential((degree.v - T(p[2])) * T(std::log(p[1]))));
    return constant(focus) * wiou_cost(pair);
}

// Ma 2023, arXiv:2307.07662: absolute lengths, which the image scales, not the hull
template <class P>
INLINE auto mpdiou_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const T image = T(p[0]);
    const auto share = [&](const auto& from, const auto& to) INLINE_LAMBDA {
        const auto x = from.x - to.x;
        const auto y = from.y - to.y;
        return squared_length(vector(chain(x.v / image, 1 / image, x), chain(y.v / image, 1 / image, y)));
    };
    return pair.by_coordinates(1 - iou(pair)) + unscaled(share(pair.box1.low(), pair.box2.low())) +
           unscaled(share(pair.box1.high(), pair.box2.high()));
}

// Zhang 2023, arXiv:2312.17663: weights crossed on purpose
template <class P>
INLINE auto shape_iou_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const auto size = pair.size2();
    // Shares of the longer side, whose power is 1.
    const auto shorter = power(quotient(min(size.x, size.y), max(size.x, size.y), T(1)), p[0]);
    const T small = 2 * shorter.v / (1 + shorter.v), large = 2 / (1 + shorter.v);
    const bool wide = size.x.v > size.y.v;
    const auto weights = vector(constant(wide ? small : large), constant(wide ? large : small));
    const auto offset = pair.offset();
    const auto distance = pair.ratio(weights.x * square(offset.x) + weights.y * square(offset.y), squared_length(pair.hull()));
    return 1 - iou(pair) + distance + 0.5 * shape_term(pair, weights, [](const auto& a) INLINE_LAMBDA { return square(square(a)); });
}

// Liu 2024, Neural Networks 170, 276-284
template <class P>
INLINE auto edge_distance(const P& pair) {
    const auto low = pair.low_offset();
    const auto high = pair.high_offset();
    const auto size = pair.size2();
    return pair.template ratio<1>(0.25 * (absolute(low.x) + absolute(high.x)), size.x) +
           pair.template ratio<1>(0.25 * (absolute(low.y) + absolute(high.y)), size.y);
}
template <class P>
INLINE auto piou_cost(const P& pair, Parameters = nullptr) { return 1 - iou(pair) + saturation(square(edge_distance(pair))); }
template <class P>
INLINE auto piou2_cost(const P& pair, Parameters p) {
    const auto x = p[0] * exponential(-edge_distance(pair));
    return 3.0 * x * exponential(-(x * x)) * piou_cost(pair);
}

// Wang 2021, arXiv:2110.13389: an absolute length, so the scale is undone
template <class P>
INLINE auto nwd_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const auto distance = root(squared_length(pair.offset()) + 0.25 * squared_length(pair.change()));
    const T ruler = T(p[0]) * pair.scale;
    return saturation(chain(distance.v / ruler, 1 / ruler, distance));
}

// The length of a vector; no square can underflow beside a large hull.
template <class T, unsigned A, unsigned B>
INLINE auto norm(const Vector<Dual<T, A>, Dual<T, B>>& a) {
    const T scale = unit_scale(larger(std::abs(a.x.v), std::abs(a.y.v)));
    const auto r = root(squared_length(vector(chain(a.x.v * scale, scale, a.x), chain(a.y.v * scale, scale, a.y))));
    return chain(r.v / scale, 1 / scale, r);
}
// Zheng 2022, arXiv:2104.00462
template <class P>
INLINE auto sca_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    const auto overlap = pair.signed_overlap();
    const auto hull = pair.hull();
    const auto overlaps = pair.template ratio<1>(overlap.x, hull.x, T(1)) + pair.template ratio<1>(overlap.y, hull.y, T(1));
    const auto distances = norm(pair.low_offset()) + norm(pair.high_offset());
    return 2 - overlaps + p[0] * pair.template ratio<1>(distances, norm(hull));
}

// Tychsen-Smith 2018, arXiv:1711.00164
template <class P>
INLINE auto bounded_iou_cost(const P& pair, Parameters p) {
    const auto term = [&](const auto& offset, const auto& change, const auto& w, const auto& w_g) INLINE_LAMBDA {
        const auto reach = p[1] * absolute(offset);
        const auto centre = pair.template ratio<1>(min(2.0 * reach, w_g + reach), w_g + reach);
        const auto size = pair.template ratio<1>(absolute(change), max(w, w_g));
        return smooth_l1(centre, p[0]) + smooth_l1(size, p[0]);
    };
    const auto offset = pair.offset();
    const auto change = pair.change();
    const auto a = pair.size1();
    const auto b = pair.size2();
    return term(offset.x, change.x, a.x, b.x) + term(offset.y, change.y, a.y, b.y);
}

// Liu 2025, arXiv:2507.12420
template <class P, class T>
INLINE auto interpolated_iou(const P& pair, const Plain<T>& rest) {
    const auto low = pair.low_offset();
    const auto high = pair.high_offset();
    const auto start = pair.box2.low();
    const auto end = pair.box2.high();
    const auto zero = constant(T(0));
    const auto size2 = vector(end.x - start.x, end.y - start.y) * pair.scale;
    // By offsets, not by corners: a corner that is nearly the target's would be rounded to it.
    const auto overlap = [&](const auto& size, const auto& l, const auto& h) INLINE_LAMBDA {
        return extent(size + min(rest * h, zero) - max(rest * l, zero));
    };
    const auto size1 = vector(extent(size2.x + rest * high.x - rest * low.x), extent(size2.y + rest * high.y - rest * low.y));
    const auto intersection = overlap(size2.x, low.x, high.x) * overlap(size2.y, low.y, high.y);
    return pair.ratio(intersection, area(size1) + pair.area2() - intersection, pair.same());
}
template <class P>
INLINE auto interp_iou_cost(const P& pair, Parameters p) {
    using T = typename P::Scalar;
    return 2 - iou(pair) - interpolated_iou(pair, constant(T(1 - p[0])));
}
template <class P>
INLINE auto dynamic_interp_iou_cost(const P& pair, Parameters) {
    const auto overlap = iou(pair);
    const auto rest = 1 - at_most(at_least(1 - detach(overlap), 0.6), 0.99);
    return 2 - overlap - interpolated_iou(pair, rest);
}

// Guan 2025, arXiv:2510.27649
template <class P>
INLINE auto gcd_cost(const P& pair, Parameters) {
    using T = typename P::Scalar;
    const auto offset = pair.offset();
    const auto twice = pair.change();
    const auto a = pair.size1();
    const auto b = pair.size2();
    const auto change = vector(0.5 * twice.x, 0.5 * twice.y);
    const auto sum = [&](auto f) INLINE_LAMBDA {
        return ((f(offset.x, a.x) + f(offset.x, b.x)) + (f(change.x, a.x) + f(change.x, b.x))) +
               ((f(offset.y, a.y) + f(offset.y, b.y)) + (f(change.y, a.y) + f(change.y, b.y)));
    };
    const auto share = [&](const auto& d, const auto& side) INLINE_LAMBDA { return pair.template ratio<1>(detach(d), detach(side)); };
    const auto squares = sum([&](const auto& d, const auto& side) INLINE_LAMBDA { return square(share(d, side)); });
    const T distance = root(0.5 * squares).v, rest = exponential(-distance);
    // What fades multiplies first: the slope of a share may overflow beside a large hull.
    const T fading = quotient(constant(T(0.5) * rest), constant(distance)).v;
    const auto slope = sum([&](const auto& d, const auto& side) INLINE_LAMBDA {
        const T q = share(d, side).v, inverse = share(constant(T(1)), side).v, p = fading == 0 ? T(0) : fading * q;
        return chain(T(0), inverse, chain(T(0), p, d, fading == 0 ? T(0) : -p * q, side));
    });
    return chain(1 - rest, T(1), slope);
}

#define FAMILY(X) \
    X(log_iou_cost) \
    X(square_iou_cost) \
    X(eiou_cost) \
    X(focal_eiou_cost) \
    X(extended_iou_cost) \
    X(siou_cost) \
    X(alpha_iou_cost) \
    X(alpha_giou_cost) \
    X(alpha_diou_cost) \
    X(alpha_ciou_cost) \
    X(wiou_cost) \
    X(wiou2_cost) \
    X(wiou3_cost) \
    X(mpdiou_cost) \
    X(shape_iou_cost) \
    X(piou_cost) \
    X(piou2_cost) \
    X(nwd_cost) \
    X(sca_cost) \
    X(bounded_iou_cost) \
    X(interp_iou_cost) \
    X(dynamic_interp_iou_cost) \
    X(gcd_cost)
