// Elementary functions: polynomials in float32, so that loops over them vectorise; <cmath> in float64.
#pragma once

#include "dual.h"

// atan on [0, 1]: a minimax polynomial, within 0.9 units of the last place.
INLINE float atan_unit(float x) {
    const float z = x * x;
    float p = -0.0017988828f;
    p = p * z + 0.010939086f;
    p = p * z + -0.031225562f;
    p = p * z + 0.058008086f;
    p = p * z + -0.08406591f;
    p = p * z + 0.10953345f;
    p = p * z + -0.14264485f;
    p = p * z + 0.19998574f;
    p = p * z + -0.33333302f;
    return x + x * z * p;
}
INLINE double atan_unit(double x) { return std::atan(x); }

// atan2(r, 1 - r) for r in [0, 1]: the angle whose tangent is r / (1 - r).
template <class T, unsigned A>
INLINE auto share_angle(const Dual<T, A>& r) {
    const T rest = 1 - r.v;
    const bool steep = r.v > rest;
    const T t = atan_unit(steep ? rest / r.v : r.v / rest);
    const T angle = steep ? T(1.57079632679489661923) - t : t;
    return chain(angle, 1 / (r.v * r.v + rest * rest), r);
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
