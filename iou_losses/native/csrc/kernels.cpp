// The entry points: pointers in, pointers out, a C ABI. PAIRED(f) exports f_f32 and f_f64, a loss with
// its gradient; MATRIX(f) exports f_matrix_f32 and f_matrix_f64. All arrays are contiguous.

#include <algorithm>
#include <thread>
#include <vector>

#include "formulas.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

using Index = std::int64_t;

constexpr Index CHUNK = 512;        // rows or columns at once: what they need stays in the L1 cache
constexpr Index LANES = 16;         // a multiple of every vector width
constexpr Index THREAD_WORK = 1 << 16;  // boxes or pairs that are worth the start of a thread

// The formats of boxes.py, in its order: corners as linear functions of the two halves of a box.
struct Format {
    double low_first, low_second, high_first, high_second, high_plus;
    bool sized;  // a position and a size
};
constexpr Format FORMATS[] = {
    {1, 0, 0, 1, 0, false},      // xyxy
    {1, 0, 1, 1, 0, true},       // xywh
    {1, -0.5, 1, 0.5, 0, true},  // cxcywh
    {-1, 0, 0, 1, 0, false},     // ltrb
    {1, 0, 0, 1, 1, false},      // xyxy_inclusive
};

// Corners from the halves of a box; the position of the origin is taken off the first half.
template <class T>
INLINE void to_corners(const Format& f, const T* box, T origin_x, T origin_y, T* corners) {
    const T first_x = box[0] - origin_x, first_y = box[1] - origin_y;
    corners[0] = T(f.low_first) * first_x + T(f.low_second) * box[2];
    corners[1] = T(f.low_first) * first_y + T(f.low_second) * box[3];
    corners[2] = T(f.high_first) * first_x + T(f.high_second) * box[2] + T(f.high_plus);
    corners[3] = T(f.high_first) * first_y + T(f.high_second) * box[3] + T(f.high_plus);
}

// The transpose of the same map takes a gradient by corners to one by halves.
template <class T>
INLINE void to_halves(const Format& f, T* gradient) {
    for (int i = 0; i < 2; ++i) {
        const T low = gradient[i], high = gradient[i + 2];
        gradient[i] = T(f.low_first) * low + T(f.high_first) * high;
        gradient[i + 2] = T(f.low_second) * low + T(f.high_second) * high;
    }
}

// Calls work(part, begin, end) on contiguous parts of the rows, each on a thread of its own. Threads
// live for one call: a pool would not survive a fork.
template <class F>
void split_rows(Index rows, Index work_per_row, int threads, F work) {
    const Index worth = rows * std::max<Index>(1, work_per_row) / THREAD_WORK;
    const Index parts = std::max<Index>(1, std::min<Index>(std::min<Index>(threads, rows), worth));
    std::vector<std::thread> others;
    for (Index part = 1; part < parts; ++part)
        others.emplace_back([=, &work] { work(part, rows * part / parts, rows * (part + 1) / parts); });
    work(Index(0), Index(0), rows / parts);
    for (auto& other : others) other.join();
}

// ---- Paired boxes ---------------------------------------------------------------------------------

template <unsigned Mask, class T>
INLINE Box<T, Mask> load(const T* corners) {
    return {{corners[0], corners[1], corners[2], corners[3]}};
}

// Loss and, where wanted, `factor` times its gradient, in one pass.
template <bool Gradient, class T, class F>
void paired_rows(F formula, Index rows, const T* pred, const T* target, T eps, T factor, T* loss, T* gradient) {
    constexpr unsigned mask = Gradient ? 15u : 0u;
    IVDEP
    for (Index i = 0; i < rows; ++i) {
        const Pair<T, Box<T, mask>, Box<T, 0>> pair(load<mask>(pred + 4 * i), load<0>(target + 4 * i), eps);
        const auto result = formula(pair);
        loss[i] = result.v;
        if constexpr (Gradient) {
            const T scale = pair.scale * factor;
            gradient[4 * i] = result.d[0] * scale;
            gradient[4 * i + 1] = result.d[1] * scale;
            gradient[4 * i + 2] = result.d[2] * scale;
            gradient[4 * i + 3] = result.d[3] * scale;
        }
    }
}

template <class T>
double sum(Index rows, const T* loss) {
    double lane[LANES] = {};
    Index i = 0;
    for (; i + LANES <= rows; i += LANES)
        for (Index k = 0; k < LANES; ++k) lane[k] += loss[i + k];
    for (; i < rows; ++i) lane[0] += loss[i];
    double total = 0;
    for (double part : lane) total += part;
    return total;
}

// What one call works on. Without `loss` the losses are summed; without `gradient` none is computed.
template <class T>
struct PairedCall {
    Index rows;
    const T* pred;
    const T* target;
    int format1, format2;
    double eps, factor;
    T* loss;
    T* gradient;
};

template <class T, class F>
double paired_part(F formula, const PairedCall<T>& call, Index begin, Index end) {
    const Format &f1 = FORMATS[call.format1], &f2 = FORMATS[call.format2];
    const bool converted = call.format1 != 0 || call.format2 != 0, relative = f1.sized && f2.sized;
    T corners1[4 * CHUNK], corners2[4 * CHUNK], losses[CHUNK];
    double total = 0;
    for (Index start = begin; start < end; start += CHUNK) {
        const Index rows = std::min(CHUNK, end - start);
        const T *pred = call.pred + 4 * start, *target = call.target + 4 * start;
        T* loss = call.loss ? call.loss + start : losses;
        T* gradient = call.gradient ? call.gradient + 4 * start : nullptr;
        if (converted) {
            for (Index i = 0; i < rows; ++i) {
                const T x = relative ? target[4 * i] : T(0), y = relative ? target[4 * i + 1] : T(0);
                to_corners(f1, pred + 4 * i, x, y, corners1 + 4 * i);
                to_corners(f2, target + 4 * i, x, y, corners2 + 4 * i);
            }
            pred = corners1, target = corners2;
        }
        if (gradient) paired_rows<true>(formula, rows, pred, target, T(call.eps), T(call.factor), loss, gradient);
        else paired_rows<false>(formula, rows, pred, target, T(call.eps), T(call.factor), loss, gradient);
        if (gradient && call.format1 != 0)
            for (Index i = 0; i < rows; ++i) to_halves(f1, gradient + 4 * i);
        if (!call.loss) total += sum(rows, loss);
    }
    return total;
}

template <class T, class F>
void paired(F formula, const PairedCall<T>& call, T* total, int threads) {
    std::vector<double> totals(std::max(threads, 1));
    split_rows(call.rows, 1, threads, [&](Index part, Index begin, Index end) {
        totals[part] = paired_part(formula, call, begin, end);
    });
    if (total) *total = T(sum(Index(totals.size()), totals.data()) * call.factor);
}

// ---- Every box with every other -------------------------------------------------------------------

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

template <bool Scaled, bool Relative, class T, class F>
void matrix_row(F formula, const Known<T>& rows, Index i, const Known<T>& columns, Index count, T* result) {
    using KnownT = KnownBox<T, Scaled>;
    const KnownT row = rows.template box<Scaled>(i);
    T line[CHUNK];
    IVDEP
    for (Index j = 0; j < (count + LANES - 1) / LANES * LANES; ++j) {
        KnownT box1 = row;
        if constexpr (Relative) {
            const T x = rows.position[0][i] - columns.position[0][j], y = rows.position[1][i] - columns.position[1][j];
            box1.corner[0] += x, box1.corner[1] += y, box1.corner[2] += x, box1.corner[3] += y;
            // The size of the corners as rounded, lest the overlap exceed it.
            const auto size = static_cast<const Box<T, 0>&>(box1).size();
            box1.w = size.x.v, box1.h = size.y.v;
        }
        line[j] = formula(Pair<T, KnownT, KnownT, Scaled>(box1, columns.template box<Scaled>(j), T(0))).v;
    }
    std::copy(line, line + count, result);
}

template <class T>
struct MatrixCall {
    Index batch, rows, columns;
    const T* boxes1;
    const T* boxes2;
    int format1, format2;
    T* result;
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
            for (Index i = 0; i < stop - start; ++i) {
                T* result = call.result + (start + i) * call.columns + left;
                if (relative) matrix_row<true, true>(formula, rows, i, columns, count, result);
                else if (rows.ordinary && columns.ordinary) matrix_row<false, false>(formula, rows, i, columns, count, result);
                else matrix_row<true, false>(formula, rows, i, columns, count, result);
            }
        }
    }
}

template <class T, class F>
void matrix(F formula, const MatrixCall<T>& call, int threads) {
    split_rows(call.batch * call.rows, call.columns, threads, [&](Index, Index begin, Index end) {
        matrix_part(formula, call, begin, end);
    });
}

}  // namespace

#define PAIRED_OF(NAME, T, SUFFIX)                                                                               \
    EXPORT void NAME##_##SUFFIX(std::int64_t rows, const T* pred, const T* target, int format1, int format2,     \
                                double eps, double factor, const double* parameters, T* loss, T* gradient,       \
                                T* total, int threads) {                                                         \
        paired([=](const auto& pair) { return NAME(pair, parameters); },                                         \
               PairedCall<T>{rows, pred, target, format1, format2, eps, factor, loss, gradient},     \
               total, threads);                                                                                  \
    }
#define MATRIX_OF(NAME, T, SUFFIX)                                                                               \
    EXPORT void NAME##_matrix_##SUFFIX(std::int64_t batch, std::int64_t rows, std::int64_t columns,              \
                                       const T* boxes1, const T* boxes2, int format1, int format2, T* result,    \
                                       int threads) {                                                            \
        matrix([](const auto& pair) { return NAME(pair); },                                                      \
               MatrixCall<T>{batch, rows, columns, boxes1, boxes2, format1, format2, result}, threads);          \
    }
#define PAIRED(NAME) PAIRED_OF(NAME, float, f32) PAIRED_OF(NAME, double, f64)
#define MATRIX(NAME) MATRIX_OF(NAME, float, f32) MATRIX_OF(NAME, double, f64)

PAIRED(iou_cost)
PAIRED(giou_cost)
PAIRED(diou_cost)
PAIRED(ciou_cost)
MATRIX(iou)
MATRIX(giou)
MATRIX(diou)
MATRIX(ciou)
