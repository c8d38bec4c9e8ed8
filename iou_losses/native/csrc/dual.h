// Numbers that carry their partial derivatives, so that no gradient is written by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(_MSC_VER) && !defined(__clang__)
#define INLINE __forceinline
#define INLINE_LAMBDA
#define IVDEP __pragma(loop(ivdep))
#elif defined(__clang__)
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define IVDEP _Pragma("GCC ivdep")
#endif

// A value and its partials by the four coordinates of the prediction. Bit i of `Mask` says whether
// partial i exists: what depends on x alone carries two, a constant none, and none is ever a stored
// zero, which the compiler could not drop. With an empty mask this is a plain number.
template <class T, unsigned Mask>
struct Dual {
    T v;
    T d[4];
};

template <class T>
struct Dual<T, 0u> {
    T v;
};
template <class T>
using Plain = Dual<T, 0u>;

template <class F>
INLINE void each_partial(F f) {
    f(std::integral_constant<unsigned, 0>{});
    f(std::integral_constant<unsigned, 1>{});
    f(std::integral_constant<unsigned, 2>{});
    f(std::integral_constant<unsigned, 3>{});
}

// The chain rule: value v, partials ca * da + cb * db.
template <class T, unsigned A, unsigned B>
INLINE Dual<T, A | B> chain(T v, T ca, const Dual<T, A>& a, T cb, const Dual<T, B>& b) {
    Dual<T, A | B> r;
    r.v = v;
    each_partial([&](auto i) {
        constexpr bool in_a = A >> i & 1, in_b = B >> i & 1;
        if constexpr (in_a && in_b) r.d[i] = ca * a.d[i] + cb * b.d[i];
        else if constexpr (in_a) r.d[i] = ca * a.d[i];
        else if constexpr (in_b) r.d[i] = cb * b.d[i];
    });
    return r;
}

template <class T, unsigned A>
INLINE Dual<T, A> chain(T v, T ca, const Dual<T, A>& a) {
    return chain(v, ca, a, T(0), Plain<T>{v});
}

template <class T>
INLINE Plain<T> constant(T v) {
    return Plain<T>{v};
}

// A constant of the gradient.
template <class T, unsigned A>
INLINE Plain<T> detach(const Dual<T, A>& a) {
    return constant(a.v);
}

template <class T>
using Number = typename std::enable_if<std::is_floating_point<T>::value, T>::type;

template <class T, unsigned A, unsigned B>
INLINE auto operator+(const Dual<T, A>& a, const Dual<T, B>& b) { return chain(a.v + b.v, T(1), a, T(1), b); }
template <class T, unsigned A, unsigned B>
INLINE auto operator-(const Dual<T, A>& a, const Dual<T, B>& b) { return chain(a.v - b.v, T(1), a, T(-1), b); }
template <class T, unsigned A, unsigned B>
INLINE auto operator*(const Dual<T, A>& a, const Dual<T, B>& b) { return chain(a.v * b.v, b.v, a, a.v, b); }
template <class T, unsigned A>
INLINE auto operator-(const Dual<T, A>& a) { return chain(-a.v, T(-1), a); }
template <class T, unsigned A>
INLINE auto operator-(double c, const Dual<T, A>& a) { return chain(T(c) - a.v, T(-1), a); }
template <class T, unsigned A>
INLINE auto operator*(double c, const Dual<T, A>& a) { return chain(T(c) * a.v, T(c), a); }

template <class T, unsigned A>
INLINE auto square(const Dual<T, A>& a) { return chain(a.v * a.v, 2 * a.v, a); }

// Ties split the slope evenly, as torch's minimum and maximum do.
template <class T, unsigned A, unsigned B>
INLINE auto min(const Dual<T, A>& a, const Dual<T, B>& b) {
    const T share = a.v < b.v ? T(1) : a.v == b.v ? T(0.5) : T(0);
    return chain(a.v < b.v ? a.v : b.v, share, a, 1 - share, b);
}
template <class T, unsigned A, unsigned B>
INLINE auto max(const Dual<T, A>& a, const Dual<T, B>& b) {
    const T share = a.v > b.v ? T(1) : a.v == b.v ? T(0.5) : T(0);
    return chain(a.v > b.v ? a.v : b.v, share, a, 1 - share, b);
}

template <class T, unsigned A, unsigned B>
INLINE auto select(bool first, const Dual<T, A>& a, const Dual<T, B>& b) {
    return chain(first ? a.v : b.v, first ? T(1) : T(0), a, first ? T(0) : T(1), b);
}

// A length: 0 for an inverted box, NaN for NaN, and slope 1 at 0, so that a line can grow.
template <class T, unsigned A>
INLINE auto extent(const Dual<T, A>& a) {
    return chain(a.v < 0 ? T(0) : a.v, a.v < 0 ? T(0) : T(1), a);
}

// Clamped by value only: a clamped slope would let rounding noise choose it.
template <class T, unsigned A>
INLINE auto not_negative(Dual<T, A> a) {
    a.v = a.v < 0 ? T(0) : a.v;
    return a;
}

// A true division, and `undefined` with slope 0 where the denominator is below the smallest normal
// number. NaN compares false and stays NaN.
template <class T, unsigned A, unsigned B>
INLINE auto quotient(const Dual<T, A>& numerator, const Dual<T, B>& denominator, T undefined = T(0)) {
    const bool vanishes = denominator.v < std::numeric_limits<T>::min();
    const T safe = vanishes ? T(1) : denominator.v;
    const T fraction = numerator.v / safe;
    const T inverse = vanishes ? T(0) : T(1) / safe;
    auto r = chain(fraction, T(1), numerator, -fraction, denominator);
    r.v = vanishes ? undefined : fraction;
    each_partial([&](auto i) {
        if constexpr ((A | B) >> i & 1) r.d[i] *= inverse;
    });
    return r;
}
