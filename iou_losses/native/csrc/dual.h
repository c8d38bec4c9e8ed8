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

// What a partial is by, in x and in y: the low and high corner of the prediction, or a length of the pair,
// from which most of a formula starts.
enum Variable : unsigned { LOW = 0, HIGH = 2, OVERLAP = 4, SIZE = 6, HULL = 8, OFFSET = 10, CHANGE = 12, INNER = 14 };
constexpr unsigned CORNERS = 0xf;

template <unsigned I>
using Partial = std::integral_constant<unsigned, I>;

constexpr unsigned count(unsigned mask) { return mask ? 1 + count(mask & (mask - 1)) : 0; }
constexpr unsigned below(unsigned i) { return (1u << i) - 1; }

// A value and its partials. Bit i of `Mask` says whether partial i exists: an area carries those of two
// lengths, a constant none, and none is ever a stored zero, which the compiler could not drop. With an
// empty mask this is a plain number.
template <class T, unsigned Mask>
struct Dual {
    T v;
    T d[count(Mask)];

    template <unsigned I>
    INLINE T& operator[](Partial<I>) { return d[count(Mask & below(I))]; }
    template <unsigned I>
    INLINE const T& operator[](Partial<I>) const { return d[count(Mask & below(I))]; }
};

template <class T>
struct Dual<T, 0u> {
    T v;
};
template <class T>
using Plain = Dual<T, 0u>;

template <unsigned Mask, class F>
INLINE void each_partial(F f) {
    if constexpr (Mask != 0) {
        constexpr unsigned rest = Mask & (Mask - 1), lowest = count((Mask ^ rest) - 1);
        f(Partial<lowest>{});
        each_partial<rest>(f);
    }
}

// a * b + c, rounded once where the processor can: not for sums that have to cancel exactly.
template <class T>
INLINE T fused(T a, T b, T c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}

// The chain rule: value v, partials ca * da + cb * db.
template <class T, unsigned A, unsigned B>
INLINE Dual<T, A | B> chain(T v, T ca, const Dual<T, A>& a, T cb, const Dual<T, B>& b) {
    Dual<T, A | B> r;
    r.v = v;
    each_partial<A | B>([&](auto i) INLINE_LAMBDA {
        constexpr bool in_a = A >> i & 1, in_b = B >> i & 1;
        if constexpr (in_a && in_b) r[i] = ca * a[i] + cb * b[i];
        else if constexpr (in_a) r[i] = ca * a[i];
        else r[i] = cb * b[i];
    });
    return r;
}

template <class T, unsigned A>
INLINE Dual<T, A> chain(T v, T ca, const Dual<T, A>& a) {
    return chain(v, ca, a, T(0), Plain<T>{v});
}

// The value as a variable of its own: partials of what is computed from it are by it.
template <unsigned I, class T, unsigned A>
INLINE auto variable(const Dual<T, A>& a) {
    Dual<T, (A ? 1u << I : 0u)> r;
    r.v = a.v;
    if constexpr (A != 0) r.d[0] = T(1);
    return r;
}

// Adds the partials that `result` has by way of `length`, which is its variable I. Shares of a tie and slopes
// of an extent are powers of two or 0, so that nothing which has to cancel is rounded.
template <unsigned I, class T, unsigned A, unsigned B, unsigned C>
INLINE auto through(const Dual<T, A>& result, const Dual<T, B>& length, const Dual<T, C>& sum) {
    if constexpr (!(A >> I & 1)) {
        return sum;
    } else {
        Dual<T, B | C> r;
        r.v = sum.v;
        const T slope = result[Partial<I>{}];
        each_partial<B | C>([&](auto i) INLINE_LAMBDA {
            constexpr bool in_length = B >> i & 1, in_sum = C >> i & 1;
            if constexpr (in_length && in_sum) r[i] = fused(slope, length[i], sum[i]);
            else if constexpr (in_length) r[i] = slope * length[i];
            else r[i] = sum[i];
        });
        return r;
    }
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
    each_partial<A | B>([&](auto i) INLINE_LAMBDA { r[i] *= inverse; });
    return r;
}
