// Two boxes as a formula sees them; the names and the order of the steps are those of boxes.py.
#pragma once

#include "elementary.h"

template <class X, class Y>
struct Vector {
    X x;
    Y y;
};
template <class X, class Y>
INLINE Vector<X, Y> vector(const X& x, const Y& y) { return {x, y}; }
template <class X, class Y>
INLINE auto area(const Vector<X, Y>& size) { return size.x * size.y; }
template <class X, class Y>
INLINE auto squared_length(const Vector<X, Y>& a) { return square(a.x) + square(a.y); }

// Scaled in value only: partials are by scaled coordinates until the kernel multiplies them at its end.
template <class T, unsigned A>
INLINE Dual<T, A> operator*(Dual<T, A> a, T scale) {
    a.v *= scale;
    return a;
}
template <class T, unsigned A, unsigned B>
INLINE auto operator*(const Vector<Dual<T, A>, Dual<T, B>>& a, T scale) { return vector(a.x * scale, a.y * scale); }

template <class T>
INLINE T larger(T a, T b) { return a > b ? a : b; }

// The size times a power of two, so that no product underflows; that of a square for a point.
template <class T, unsigned A, unsigned B>
INLINE auto diagonal(const Vector<Dual<T, A>, Dual<T, B>>& size) {
    const T side = larger(size.x.v, size.y.v), scale = unit_scale(side);
    const bool point = side < std::numeric_limits<T>::min();
    const T slope = point ? T(0) : scale;
    return vector(chain(point ? T(1) : size.x.v * scale, slope, size.x),
                  chain(point ? T(1) : size.y.v * scale, slope, size.y));
}

// Four corners, of which `Mask` says which partials they seed: bits 0 and 2 for x, 1 and 3 for y.
template <class T, unsigned Mask>
struct Box {
    T corner[4];

    template <unsigned I>
    INLINE auto seed() const {
        Dual<T, Mask & 1u << I> r;
        r.v = corner[I];
        if constexpr (Mask >> I & 1) r.d[0] = T(1);
        return r;
    }
    INLINE auto low() const { return vector(seed<0>(), seed<1>()); }
    INLINE auto high() const { return vector(seed<2>(), seed<3>()); }
    INLINE auto size() const { return vector(extent(high().x - low().x), extent(high().y - low().y)); }
    INLINE auto area(T scale) const { return ::area(size() * scale); }
    // atan(w / h)
    INLINE auto angle(T scale) const {
        const auto direction = diagonal(size() * scale);
        return atan2(direction.x, direction.y);
    }
};

// Partials by x and by y, each times its own factor.
template <class T, unsigned A>
INLINE auto stretched(Dual<T, A> a, T by_x, T by_y) {
    each_partial<A>([&](auto i) INLINE_LAMBDA { a[i] *= decltype(i)::value % 2 ? by_y : by_x; });
    return a;
}
// A result whose partials are by the coordinates themselves, not by scaled ones.
template <class T, unsigned A>
struct Unscaled {
    Dual<T, A> dual;
};
template <class T, unsigned A>
INLINE Unscaled<T, A> unscaled(const Dual<T, A>& dual) { return {dual}; }
template <class T, unsigned A, unsigned B>
INLINE auto operator+(const Unscaled<T, A>& a, const Unscaled<T, B>& b) { return unscaled(a.dual + b.dual); }

// A box of a matrix: what depends on it alone was computed once.
template <class T, bool Scaled>
struct KnownBox : Box<T, 0> {
    T w, h, known_area, known_angle;

    INLINE auto size() const { return vector(constant(w), constant(h)); }
    INLINE auto area(T scale) const { return Scaled ? ::area(size() * scale) : constant(known_area); }
};
template <class B>
constexpr bool KNOWN = false;
template <class T, bool Scaled>
constexpr bool KNOWN<KnownBox<T, Scaled>> = true;

template <class T, class Box1, class Box2, bool Scaled = true>
struct Pair {
    using Scalar = T;
    Box1 box1;
    Box2 box2;
    T eps;
    T scale;

    INLINE Pair(const Box1& box1_, const Box2& box2_, T eps_) : box1(box1_), box2(box2_), eps(eps_), scale(1) {
        if constexpr (Scaled) scale = unit_scale(larger(hull_of_corners().x.v, hull_of_corners().y.v));
    }
    INLINE Pair(const Box1& box1_, const Box2& box2_, T eps_, T scale_)
        : box1(box1_), box2(box2_), eps(eps_), scale(scale_) {}

    // Lengths, as variables of their own.
    INLINE auto hull() const { return variables<HULL>(hull_of_corners()); }
    INLINE auto size1() const { return variables<SIZE>(size_of_corners()); }
    INLINE auto size2() const { return box2.size() * scale; }
    // From the second centre to the first.
    INLINE auto offset() const { return variables<OFFSET>(offset_of_corners()); }
    // The overlap, negative where there is a gap.
    INLINE auto signed_overlap() const { return unscaled_overlap() * scale; }
    INLINE auto overlap() const {
        const auto a = unscaled_overlap();  // a gap that the scale takes to 0 is one
        return vector(extent(a.x), extent(a.y)) * scale;
    }
    // The sum of both inner edges, which bound the overlap or the gap, from the low corner of the hull.
    INLINE auto inner_edges() const { return variables<INNER>(inner_edges_of_corners()); }

    // From the second size to the first: by offsets of the corners where these are less than a size, so that
    // nearly equal boxes keep their digits; an inverted box has no size.
    INLINE auto change() const {
        const auto low = low_offset();
        const auto high = high_offset();
        const auto moved = variables<CHANGE>(change_of_corners());
        const auto a = size1();
        const auto b = size2();
        const auto near = [](const auto& d, const auto& e, const auto& w, const auto& w_g) INLINE_LAMBDA {
            return std::abs(d.v) + std::abs(e.v) < min(w, w_g).v;
        };
        return vector(select(near(low.x, high.x, a.x, b.x), moved.x, a.x - b.x),
                      select(near(low.y, high.y, a.y, b.y), moved.y, a.y - b.y));
    }
    // From the corners of the second box to those of the first.
    INLINE auto low_offset() const {
        return vector(box1.low().x - box2.low().x, box1.low().y - box2.low().y) * scale;
    }
    INLINE auto high_offset() const {
        return vector(box1.high().x - box2.high().x, box1.high().y - box2.high().y) * scale;
    }

    INLINE auto area1() const {
        if constexpr (KNOWN<Box1>) return box1.area(scale);
        else return area(size1());
    }
    INLINE auto area2() const { return box2.area(scale); }
    // atan(w2 / h2) - atan(w1 / h1), as the one angle between the two diagonals.
    INLINE auto turn() const {
        if constexpr (KNOWN<Box1>) {  // right in value, and cheaper
            return constant(box2.known_angle - box1.known_angle);
        } else {
            const auto a = diagonal(size1());
            const auto b = diagonal(size2());
            return atan2(a.y * b.x - a.x * b.y, a.x * b.x + a.y * b.y);
        }
    }

    // A result with all its partials by the corners.
    template <unsigned A>
    INLINE auto by_corners(const Dual<T, A>& result) const {
        Dual<T, A & CORNERS> direct;
        direct.v = result.v;
        each_partial<A & CORNERS>([&](auto i) INLINE_LAMBDA { direct[i] = result[i]; });
        const auto overlap = through_both<OVERLAP>(result, overlap_of_corners(), direct);
        const auto size = through_both<SIZE>(result, size_of_corners(), overlap);
        const auto hull = through_both<HULL>(result, hull_of_corners(), size);
        const auto offset = through_both<OFFSET>(result, offset_of_corners(), hull);
        const auto change = through_both<CHANGE>(result, change_of_corners(), offset);
        return through_both<INNER>(result, inner_edges_of_corners(), change);
    }

    // The same by the coordinates themselves.
    template <unsigned A>
    INLINE auto by_coordinates(const Dual<T, A>& result) const {
        return unscaled(stretched(by_corners(result), scale, scale));
    }
    template <unsigned A>
    INLINE auto by_coordinates(const Unscaled<T, A>& result) const { return result; }

    // 1 where all coordinates are equal, inverted or not, else 0.
    INLINE T same() const {
        const auto a = box1.low();
        const auto b = box1.high();
        const auto c = box2.low();
        const auto d = box2.high();
        return T(int(a.x.v == c.x.v) & int(a.y.v == c.y.v) & int(b.x.v == d.x.v) & int(b.y.v == d.y.v));
    }

    // What measures an area, a length or a number, and the user's eps, which is scaled like it.
    template <int Units = 2, class D>
    INLINE auto padded(const D& measure) const {
        T e = eps;
        for (int i = 0; i < Units; ++i) e *= scale;
        return measure + constant(e);
    }
    // The quotient with eps in the denominator.
    template <int Units = 2, class N, class D>
    INLINE auto ratio(const N& numerator, const D& denominator, T undefined = T(0)) const {
        return quotient(numerator, padded<Units>(denominator), undefined);
    }

private:
    template <unsigned I, class X, class Y>
    static INLINE auto variables(const Vector<X, Y>& a) { return vector(variable<I>(a.x), variable<I + 1>(a.y)); }
    template <unsigned I, class R, class V, class S>
    static INLINE auto through_both(const R& result, const V& length, const S& sum) {
        return through<I + 1>(result, length.y, through<I>(result, length.x, sum));
    }

    // Over all four corner values, so that an inverted box stays inside its hull.
    INLINE auto hull_of_corners() const {
        const auto a = box1.low();
        const auto b = box1.high();
        const auto c = box2.low();
        const auto d = box2.high();
        return vector(max(max(b.x, a.x), max(d.x, c.x)) - min(min(a.x, b.x), min(c.x, d.x)),
                      max(max(b.y, a.y), max(d.y, c.y)) - min(min(a.y, b.y), min(c.y, d.y))) * scale;
    }
    INLINE auto size_of_corners() const { return box1.size() * scale; }
    INLINE auto overlap_of_corners() const {
        return vector(min(box1.high().x, box2.high().x) - max(box1.low().x, box2.low().x),
                      min(box1.high().y, box2.high().y) - max(box1.low().y, box2.low().y));
    }
    INLINE auto unscaled_overlap() const { return variables<OVERLAP>(overlap_of_corners()); }
    // Differences first: map coordinates keep their digits.
    INLINE auto offset_of_corners() const {
        return vector(0.5 * ((box1.low().x - box2.low().x) + (box1.high().x - box2.high().x)),
                      0.5 * ((box1.low().y - box2.low().y) + (box1.high().y - box2.high().y))) * scale;
    }
    INLINE auto change_of_corners() const {
        const auto low = low_offset();
        const auto high = high_offset();
        return vector(high.x - low.x, high.y - low.y);
    }
    INLINE auto inner_edges_of_corners() const {
        const auto a = box1.low();
        const auto b = box1.high();
        const auto c = box2.low();
        const auto d = box2.high();
        const auto x = min(min(a.x, b.x), min(c.x, d.x));
        const auto y = min(min(a.y, b.y), min(c.y, d.y));
        return vector((max(a.x, c.x) - x) + (min(b.x, d.x) - x), (max(a.y, c.y) - y) + (min(b.y, d.y) - y)) * scale;
    }
};

// The same boxes with x and y in units of their own, which areas and their ratios allow: no side is thin, so
// that slopes can be multiplied by large ones. Partials are by lengths in these units.
template <class P>
struct ByAxis {
    using Scalar = typename P::Scalar;
    P plain;  // in the units of the boxes
    Scalar scale_x, scale_y;

    INLINE explicit ByAxis(const P& pair) : plain(copy(pair.box1), copy(pair.box2), pair.eps, Scalar(1)) {
        const auto hull = plain.hull();
        scale_x = unit_scale(hull.x.v);
        scale_y = unit_scale(hull.y.v);
    }
    // Number by number: a copied array would keep the loop from vectorising.
    template <class B>
    static INLINE B copy(const B& box) { return {{box.corner[0], box.corner[1], box.corner[2], box.corner[3]}}; }
    template <class X, class Y>
    INLINE auto scaled(const Vector<X, Y>& a) const { return vector(a.x * scale_x, a.y * scale_y); }
    INLINE auto hull() const { return scaled(plain.hull()); }
    INLINE auto overlap() const { return scaled(plain.overlap()); }
    INLINE auto area1() const { return area(scaled(plain.size1())); }
    INLINE auto area2() const { return area(scaled(plain.size2())); }
    INLINE auto same() const { return plain.same(); }
    template <class D>
    INLINE auto padded(const D& measure) const { return measure + constant(plain.eps * scale_x * scale_y); }
    template <class N, class D>
    INLINE auto ratio(const N& numerator, const D& denominator, Scalar undefined = Scalar(0)) const {
        return quotient(numerator, padded(denominator), undefined);
    }
    template <unsigned A>
    INLINE auto by_coordinates(const Dual<Scalar, A>& result) const {
        return unscaled(plain.by_corners(stretched(result, scale_x, scale_y)));
    }
};
template <class P>
INLINE ByAxis<P> by_axis(const P& pair) { return ByAxis<P>(pair); }
