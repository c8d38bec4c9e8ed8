// The best partner of every box, without a matrix.
#pragma once

#include <type_traits>

#include "matrix.h"

// An index as wide as the number beside it, so that a loop over both vectorises.
template <class T>
using Step = typename std::conditional<sizeof(T) == 4, std::int32_t, std::int64_t>::type;

constexpr Index FEW = 16;  // rows that would leave most lanes idle

// The best columns of a block of rows so far. A column wins by being better, so the first of equals
// stays and NaN never wins.
template <class T>
struct Best {
    T value[CHUNK];
    Step<T> step[CHUNK];  // the column in this block of columns, -1 for one of an earlier block

    // Many rows: the lanes are rows.
    template <bool Scaled, bool Relative, class F>
    void down(F formula, const Known<T>& rows, Index count, const Known<T>& columns, Index width) {
        for (Index j = 0; j < width; ++j) {
            const Step<T> column = Step<T>(j);
            IVDEP
            for (Index i = 0; i < (count + LANES - 1) / LANES * LANES; ++i) {
                const T s = similarity<Scaled, Relative>(formula, rows, i, columns, j);
                // Loaded in any case, lest the compiler make the stores a branch.
                const T old_value = value[i];
                const Step<T> old_step = step[i];
                const bool better = s > old_value;
                const T new_value = better ? s : old_value;
                const Step<T> new_step = better ? column : old_step;
                value[i] = new_value;
                step[i] = new_step;
            }
        }
    }

    // Few rows: the lanes are columns.
    template <bool Scaled, bool Relative, class F>
    void across(F formula, const Known<T>& rows, Index count, const Known<T>& columns, Index width) {
        T line[CHUNK];
        for (Index i = 0; i < count; ++i) {
            matrix_row<Scaled, Relative>(formula, rows, i, columns, width, line);
            for (Index j = 0; j < width; ++j)
                if (line[j] > value[i]) value[i] = line[j], step[i] = Step<T>(j);
        }
    }
};

// `batch` times `rows` results, each the greatest similarity to one of `columns` boxes, and which; -infinity and -1
// where there is none.
template <class T>
struct BestCall {
    Index batch, rows, columns;
    const T* boxes1;
    const T* boxes2;
    T* value;
    std::int64_t* index;
    int format1, format2, threads;
};

template <class T, class F>
void best_part(F formula, const BestCall<T>& call, Index begin, Index end) {
    const Format &f1 = FORMATS[call.format1], &f2 = FORMATS[call.format2];
    const bool relative = f1.sized && f2.sized;
    Best<T> best;
    Index stop;
    for (Index start = begin; start < end; start = stop) {  // rows of one matrix of the batch
        const Index matrix = start / call.rows;
        stop = std::min({end, start + CHUNK, (matrix + 1) * call.rows});
        const Index count = stop - start;
        const Known<T> rows(f1, relative, call.boxes1 + 4 * start, count);
        std::fill(best.value, best.value + CHUNK, -std::numeric_limits<T>::infinity());
        std::fill(call.index + start, call.index + stop, std::int64_t(-1));
        for (Index left = 0; left < call.columns; left += CHUNK) {
            const Index width = std::min(CHUNK, call.columns - left);
            const Known<T> columns(f2, relative, call.boxes2 + 4 * (matrix * call.columns + left), width);
            std::fill(best.step, best.step + CHUNK, Step<T>(-1));
            dispatch(relative, rows, columns, [&](auto scaled, auto moved) {
                if (count < FEW) best.template across<scaled, moved>(formula, rows, count, columns, width);
                else best.template down<scaled, moved>(formula, rows, count, columns, width);
            });
            for (Index i = 0; i < count; ++i)
                if (best.step[i] >= 0) call.index[start + i] = left + best.step[i];
        }
        std::copy(best.value, best.value + count, call.value + start);
    }
}

template <class T, class F>
void best(F formula, const BestCall<T>& call) {
    split_rows(call.batch * call.rows, call.columns, call.threads, [&](Index, Index begin, Index end) {
        best_part(formula, call, begin, end);
    });
}

// Exports NAME_best_f32 and NAME_best_f64.
#define BEST_OF(NAME, T, SUFFIX) \
    EXPORT void NAME##_best_##SUFFIX(const BestCall<T>* call) { best([](const auto& pair) { return NAME(pair); }, *call); }
#define BEST(NAME) BEST_OF(NAME, float, f32) BEST_OF(NAME, double, f64)
