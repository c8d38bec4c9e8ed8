// Elementary functions: polynomials in float32, so that loops over them vectorise; <cmath> in float64.
#pragma once

#include "dual.h"

// A polynomial by Horner's scheme, from its highest coefficient.
template <class... Coefficients>
INLINE float polynomial(float x, float highest, Coefficients... others) {
    ((highest = fused(highest, x, others)), ...);
    return highest;
}

// atan on [0, 1]: a minimax polynomial, within 0.9 units of the last place.
INLINE float atan_unit(float x) {
    const float z = x * x;
    const float p = polynomial(z, -0.0017988828f, 0.010939086f, -0.031225562f, 0.058008086f, -0.08406591f,
                               0.10953345f, -0.14264485f, 0.19998574f, -0.33333302f);
    return fused(x * z, p, x);
}
INLINE double atan_unit(double x) { return std::atan(x); }

// The angle of (x, y) for x >= 0, not both 0.
template <class T, unsigned A, unsigned B>
INLINE auto atan2(const Dual<T, A>& y, const Dual<T, B>& x) {
    const T side = std::abs(y.v);
    const bool steep = side > x.v;
    const T t = atan_unit((x.v < side ? x.v : side) / (steep ? side : x.v));
    const T angle = steep ? T(1.57079632679489661923) - t : t;
    const T inverse = 1 / (x.v * x.v + y.v * y.v);
    return chain(std::copysign(angle, y.v), x.v * inverse, y, -y.v * inverse, x);
}

// exp, saturated at the ends of float32's range; within 0.7 units of the last place.
INLINE float exponential(float x) {
    x = x < -105.0f ? -105.0f : x > 88.0f ? 88.0f : x;
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float shifted = x * 1.44269504f + magic, n = shifted - magic;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
    float p = polynomial(r, 0.0013814832f, 0.008368708f, 0.04166838f, 0.16666521f, 0.49999994f);
    p = (r * r * p + r) + 1.0f;
    // 2^n in two factors, so that results below the smallest normal number fade out.
    std::int32_t bits, offset;
    std::memcpy(&bits, &shifted, sizeof bits);
    std::memcpy(&offset, &magic, sizeof offset);
    const std::int32_t half = (bits - offset) >> 1, rest = (bits - offset) - half;
    const std::uint32_t factors[] = {std::uint32_t(half + 127) << 23, std::uint32_t(rest + 127) << 23};
    float a, b;
    std::memcpy(&a, &factors[0], sizeof a);
    std::memcpy(&b, &factors[1], sizeof b);
    return p * a * b;
}
INLINE double exponential(double x) { return std::exp(x); }

// Natural logarithm of a normal number, within 0.7 units of the last place; log(1) is 0.
INLINE float logarithm(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    // The exponent that brings x to [sqrt(1/2), sqrt(2)).
    const std::uint32_t shifted = bits - 0x3f3504f3u;
    const std::int32_t exponent = std::int32_t(shifted) >> 23;
    const std::uint32_t mantissa_bits = bits - (shifted & 0xff800000u);
    float m;
    std::memcpy(&m, &mantissa_bits, sizeof m);
    const float f = m - 1.0f, z = f * f, e = float(exponent);
    const float p = polynomial(f, -0.078602105f, 0.12881406f, -0.13128403f, 0.14181213f, -0.16624597f, 0.20002286f,
                               -0.25000808f, 0.33333316f);
    const float tail = f * z * p + e * -2.12194440e-4f - 0.5f * z;
    return x != x ? x : (f + tail) + e * 0.693359375f;
}
INLINE double logarithm(double x) { return std::log(x); }

INLINE float raised(float x, float exponent) { return exponential(exponent * logarithm(x)); }
INLINE double raised(double x, double exponent) { return std::pow(x, exponent); }

template <class T, unsigned A>
INLINE auto absolute(const Dual<T, A>& a) {
    return chain(std::abs(a.v), a.v > 0 ? T(1) : a.v < 0 ? T(-1) : T(0), a);
}

// chain, with partial 0 where the slope is 0 although a partial may have overflowed there.
template <class T, unsigned A>
INLINE auto fading_chain(T v, T slope, const Dual<T, A>& a) {
    auto r = chain(v, slope, a);
    each_partial<A>([&](auto i) INLINE_LAMBDA { r[i] = slope == 0 ? T(0) : r[i]; });
    return r;
}

template <class T, unsigned A>
INLINE auto exponential(const Dual<T, A>& a) {
    const T e = exponential(a.v);
    return fading_chain(e, e, a);
}
// 1 - exp(-a)
template <class T, unsigned A>
INLINE auto saturation(const Dual<T, A>& a) {
    const T e = exponential(-a.v);
    return fading_chain(1 - e, e, a);
}
template <class T, unsigned A>
INLINE auto logarithm(const Dual<T, A>& a) {
    return chain(logarithm(a.v), 1 / a.v, a);
}

// Square root, with slope 0 at 0 in place of an infinite one.
template <class T, unsigned A>
INLINE auto root(const Dual<T, A>& a) {
    const bool vanishes = a.v < std::numeric_limits<T>::min();
    const T r = std::sqrt(vanishes ? T(1) : a.v);
    return fading_chain(vanishes ? T(0) : r, vanishes ? T(0) : T(0.5) / r, a);
}

// a^exponent for a >= 0, with slope 0 at 0 where it would be infinite.
template <class T, unsigned A>
INLINE auto power(const Dual<T, A>& a, double exponent) {
    const T p = T(exponent), low = std::numeric_limits<T>::min();
    const T v = raised(a.v < low ? low : a.v, p);
    const bool zero = a.v <= 0;
    return chain(zero ? T(p == 0) : v, zero ? T(p == 1) : p * v / (a.v < low ? low : a.v), a);
}

template <class T, unsigned A>
INLINE auto at_least(const Dual<T, A>& a, double low) {
    return chain(a.v < T(low) ? T(low) : a.v, a.v < T(low) ? T(0) : T(1), a);
}
template <class T, unsigned A>
INLINE auto at_most(const Dual<T, A>& a, double high) {
    return chain(a.v > T(high) ? T(high) : a.v, a.v > T(high) ? T(0) : T(1), a);
}

// The smooth L1 norm of a >= 0: a parabola below beta, a line above.
template <class T, unsigned A>
INLINE auto smooth_l1(const Dual<T, A>& a, double beta) {
    const bool below = a.v < T(beta);
    return chain(below ? a.v * a.v * T(0.5 / beta) : a.v - T(0.5 * beta), below ? a.v / T(beta) : T(1), a);
}

// The power of two that brings a side to [0.5, 1).
INLINE float unit_scale(float side) {
    const float low = std::numeric_limits<float>::min(), high = std::numeric_limits<float>::max() / 8;
    side = side < low ? low : side > high ? high : side;
    std::uint32_t bits;
    std::memcpy(&bits, &side, sizeof bits);
    bits = (253u << 23) - (bits & 0x7f800000u);
    std::memcpy(&side, &bits, sizeof bits);
    return side;
}
INLINE double unit_scale(double side) {
    const double low = std::numeric_limits<double>::min(), high = std::numeric_limits<double>::max() / 8;
    side = side < low ? low : side > high ? high : side;
    std::uint64_t bits;
    std::memcpy(&bits, &side, sizeof bits);
    bits = (std::uint64_t(2045) << 52) - (bits & 0x7ff0000000000000u);
    std::memcpy(&side, &bits, sizeof bits);
    return side;
}
