// Every box with every other: similarity matrices without temporaries.
#pragma once

#include <type_traits>

#include "rows.h"

// Up to CHUNK boxes side by side, with what depends on each alone.
template <class T>
struct Known {
    T value[8][CHUNK];  // corners, width, height, area, angle
    T position[2][CHUNK];
    bool ordinary;  // all coordinates are 0 or of ordinary size: the scale would not change a bit

    // The boxes behind `count`, up to a multiple of LANES, are at 0.
    Known(const Format& format, bool relative, const T* boxes, Index count) : ordinary(!relative) {
        int unusual = 0;
        for (Index i = 0; i < (count + LANES - 1) / LANES * LANES; ++i) {
            T nothing[4] = {}, corners[4];
            const T* box = i < count ? boxes + 4 * i : nothing;
            position[0][i] = relative ? box[0] : T(0);
            position[1][i] = relative ? box[1] : T(0);
            to_corners(format, box, position[0][i], position[1][i], corners);
            for (int k = 0; k < 4; ++k) {
                value[k][i] = corners[k];
                const T side = std::abs(corners[k]);
                unusual |= !(side == 0 || (side >= T(1) / 65536 && side <= 65536));
            }
        }
        ordinary = ordinary && !unusual;
        IVDEP
        for (Index i = 0; i < (count + LANES - 1) / LANES * LANES; ++i) {
            const Box<T, 0> box{{value[0][i], value[1][i], value[2][i], value[3][i]}};
            const auto size = box.size();
            value[4][i] = size.x.v;
            value[5][i] = size.y.v;
            value[6][i] = area(size).v;
            value[7][i] = box.angle(unit_scale(larger(size.x.v, size.y.v))).v;
        }
    }

    template <bool Scaled>
    INLINE KnownBox<T, Scaled> box(Index i) const {
        KnownBox<T, Scaled> b;
        for (int k = 0; k < 4; ++k) b.corner[k] = value[k][i];
        b.w = value[4][i], b.h = value[5][i], b.known_area = value[6][i], b.known_angle = value[7][i];
        return b;
    }
};

// The similarity of box i of one block with box j of another.
template <bool Scaled, bool Relative, class T, class F>
INLINE T similarity(F formula, const Known<T>& first, Index i, const Known<T>& second, Index j) {
    using KnownT = KnownBox<T, Scaled>;
    KnownT box1 = first.template box<Scaled>(i);
    if constexpr (Relative) {
        const T x = first.position[0][i] - second.position[0][j], y = first.position[1][i] - second.position[1][j];
        box1.corner[0] += x, box1.corner[1] += y, box1.corner[2] += x, box1.corner[3] += y;
        // The size of the corners as rounded, lest the overlap exceed it.
        const auto size = static_cast<const Box<T, 0>&>(box1).size();
        box1.w = size.x.v, box1.h = size.y.v;
    }
    return formula(Pair<T, KnownT, KnownT, Scaled>(box1, second.template box<Scaled>(j), T(0))).v;
}

// Calls f(scaled, relative), two constants, as the blocks require.
template <class T, class G>
INLINE void dispatch(bool relative, const Known<T>& first, const Known<T>& second, G f) {
    using Yes = std::true_type;
    using No = std::false_type;
    if (relative) f(Yes{}, Yes{});
    else if (first.ordinary && second.ordinary) f(No{}, No{});
    else f(Yes{}, No{});
}

template <bool Scaled, bool Relative, class T, class F>
void matrix_row(F formula, const Known<T>& rows, Index i, const Known<T>& columns, Index count, T* result) {
    T line[CHUNK];
    IVDEP
    for (Index j = 0; j < (count + LANES - 1) / LANES * LANES; ++j)
        line[j] = similarity<Scaled, Relative>(formula, rows, i, columns, j);
    std::copy(line, line + count, result);
}

// `batch` matrices of `rows` x `columns`.
template <class T>
struct MatrixCall {
    Index batch, rows, columns;
    const T* boxes1;
    const T* boxes2;
    T* result;
    int format1, format2, threads;
};

template <class T, class F>
void matrix_part(F formula, const MatrixCall<T>& call, Index begin, Index end) {
    const Format &f1 = FORMATS[call.format1], &f2 = FORMATS[call.format2];
    const bool relative = f1.sized && f2.sized;
    Index stop;
    for (Index start = begin; start < end; start = stop) {  // rows of one matrix of the batch
        const Index matrix = start / call.rows;
        stop = std::min({end, start + CHUNK, (matrix + 1) * call.rows});
        const Known<T> rows(f1, relative, call.boxes1 + 4 * start, stop - start);
        for (Index left = 0; left < call.columns; left += CHUNK) {
            const Index count = std::min(CHUNK, call.columns - left);
            const Known<T> columns(f2, relative, call.boxes2 + 4 * (matrix * call.columns + left), count);
            dispatch(relative, rows, columns, [&](auto scaled, auto moved) {
                T* result = call.result + start * call.columns + left;
                for (Index i = 0; i < stop - start; ++i, result += call.columns)
                    matrix_row<scaled, moved>(formula, rows, i, columns, count, result);
            });
        }
    }
}

template <class T, class F>
void matrix(F formula, const MatrixCall<T>& call) {
    split_rows(call.batch * call.rows, call.columns, call.threads, [&](Index, Index begin, Index end) {
        matrix_part(formula, call, begin, end);
    });
}

// Exports NAME_matrix_f32 and NAME_matrix_f64.
#define MATRIX_OF(NAME, T, SUFFIX)                                                \
    EXPORT void NAME##_matrix_##SUFFIX(const MatrixCall<T>* call) {               \
        matrix([](const auto& pair) INLINE_LAMBDA { return NAME(pair); }, *call); \
    }
#define MATRIX(NAME) MATRIX_OF(NAME, float, f32) MATRIX_OF(NAME, double, f64)
