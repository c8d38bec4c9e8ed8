// Paired boxes: loss and gradient in one pass over memory.
#pragma once

#include "rows.h"

template <unsigned Mask, class T>
INLINE Box<T, Mask> load(const T* corners) {
    return {{corners[0], corners[1], corners[2], corners[3]}};
}

// Loss and, where wanted, `factor` times its gradient, of up to CHUNK rows. The partials are interleaved
// in a loop of their own: GCC groups the work of four stores side by side at three times the cost.
template <bool Gradient, class T, class F>
void paired_rows(F formula, Index rows, const T* pred, const T* target, T eps, T factor, T* loss, T* gradient) {
    constexpr unsigned mask = Gradient ? 15u : 0u;
    T left[CHUNK], top[CHUNK], right[CHUNK], bottom[CHUNK];
    IVDEP
    for (Index i = 0; i < rows; ++i) {
        const Pair<T, Box<T, mask>, Box<T, 0>> pair(load<mask>(pred + 4 * i), load<0>(target + 4 * i), eps);
        const auto result = pair.by_coordinates(formula(pair)).dual;
        loss[i] = result.v;
        if constexpr (Gradient) {
            left[i] = result.d[0] * factor;
            top[i] = result.d[1] * factor;
            right[i] = result.d[2] * factor;
            bottom[i] = result.d[3] * factor;
        }
    }
    if constexpr (Gradient) {
        IVDEP
        for (Index i = 0; i < rows; ++i) {
            gradient[4 * i] = left[i];
            gradient[4 * i + 1] = top[i];
            gradient[4 * i + 2] = right[i];
            gradient[4 * i + 3] = bottom[i];
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

constexpr int MAX_PARAMETERS = 8;

// Boxes and gradient of `rows` x 4, loss of `rows`. Without `loss` the losses are summed into `total`; without
// `gradient` none is computed. `factor` multiplies the total and the gradient.
template <class T>
struct PairedCall {
    Index rows;
    const T* pred;
    const T* target;
    T* loss;
    T* gradient;
    T* total;
    int format1, format2, threads;
    double eps, factor, parameters[MAX_PARAMETERS];
};

// `ValueAlone` says whether the formula has a loop without the gradient; without it the gradient is
// computed and forgotten, which halves the code of a formula that is rarely called so.
template <bool ValueAlone, class T, class F>
double paired_part(F formula, const PairedCall<T>& call, Index begin, Index end) {
    const Format &f1 = FORMATS[call.format1], &f2 = FORMATS[call.format2];
    const bool converted = call.format1 != 0 || call.format2 != 0, relative = f1.sized && f2.sized;
    T corners1[4 * CHUNK], corners2[4 * CHUNK], losses[CHUNK], unused[4 * CHUNK];
    double total = 0;
    for (Index start = begin; start < end; start += CHUNK) {
        const Index rows = std::min(CHUNK, end - start);
        const T *pred = call.pred + 4 * start, *target = call.target + 4 * start;
        T* loss = call.loss ? call.loss + start : losses;
        T* gradient = call.gradient ? call.gradient + 4 * start : unused;
        if (converted) {
            for (Index i = 0; i < rows; ++i) {
                const T x = relative ? target[4 * i] : T(0), y = relative ? target[4 * i + 1] : T(0);
                to_corners(f1, pred + 4 * i, x, y, corners1 + 4 * i);
                to_corners(f2, target + 4 * i, x, y, corners2 + 4 * i);
            }
            pred = corners1, target = corners2;
        }
        if (ValueAlone && !call.gradient)
            paired_rows<!ValueAlone>(formula, rows, pred, target, T(call.eps), T(call.factor), loss, gradient);
        else
            paired_rows<true>(formula, rows, pred, target, T(call.eps), T(call.factor), loss, gradient);
        if (call.gradient && call.format1 != 0)
            for (Index i = 0; i < rows; ++i) to_halves(f1, gradient + 4 * i);
        if (!call.loss) total += sum(rows, loss);
    }
    return total;
}

template <bool ValueAlone, class T, class F>
void paired(F formula, const PairedCall<T>& call) {
    std::vector<double> totals(std::max(call.threads, 1));
    split_rows(call.rows, 1, call.threads, [&](Index part, Index begin, Index end) {
        totals[part] = paired_part<ValueAlone>(formula, call, begin, end);
    });
    if (call.total) *call.total = T(sum(Index(totals.size()), totals.data()) * call.factor);
}

// Exports NAME_f32 and NAME_f64.
#define PAIRED_OF(NAME, VALUE_ALONE, T, SUFFIX)                                                             \
    EXPORT void NAME##_##SUFFIX(const PairedCall<T>* call) {                                                \
        const double* parameters = call->parameters;                                                        \
        paired<VALUE_ALONE>([=](const auto& pair) INLINE_LAMBDA { return NAME(pair, parameters); }, *call); \
    }
#define PAIRED(NAME, VALUE_ALONE) PAIRED_OF(NAME, VALUE_ALONE, float, f32) PAIRED_OF(NAME, VALUE_ALONE, double, f64)
