// Non-maximum suppression: hard and soft, without a matrix.
#pragma once

#include <cmath>

#include "best.h"

// Boxes by descending score, group by group.
template <class T>
struct SuppressCall {
    Index groups;
    const std::int64_t* counts;
    const T* boxes;
    unsigned char* keep;
    int format;
    double threshold;
};

// Boxes in any order, and their scores, which are used up: those of picked boxes become -infinity or NaN, which none
// is less than. The number of picks goes to `picks`, their indices and scores to `order` and `picked`.
template <class T>
struct SoftSuppressCall {
    Index groups;
    const std::int64_t* counts;
    const T* boxes;
    T* score;
    std::int64_t* order;
    T* picked;
    std::int64_t* picks;
    int format, gaussian;
    double sigma, threshold, least;
};

constexpr Index LOOK = 2 * LANES;  // boxes between two looks whether one of them suppresses

// Boxes in groups, one for each class, of `counts` boxes each; only boxes of one group see each other.
template <class T>
struct Groups {
    Index groups;
    const std::int64_t* counts;
    const T* boxes;
    const Format& format;

    template <class C>
    explicit Groups(const C& call)
        : groups(call.groups), counts(call.counts), boxes(call.boxes), format(FORMATS[call.format]) {}

    template <class G>
    void each(G g) const {
        Index begin = 0;
        for (Index i = 0; i < groups; begin += counts[i++]) g(begin, begin + counts[i]);
    }
    // The blocks of one group.
    std::vector<Known<T>> blocks(Index begin, Index end) const {
        std::vector<Known<T>> result;
        result.reserve((end - begin + CHUNK - 1) / CHUNK);
        for (Index start = begin; start < end; start += CHUNK)
            result.emplace_back(format, format.sized, boxes + 4 * start, std::min(CHUNK, end - start));
        return result;
    }
};

// The boxes that were kept so far, side by side.
template <class T>
struct Kept {
    const Format& format;
    std::vector<Known<T>> blocks;
    Index count = 0;

    void add(const Known<T>& from, Index i) {
        const Index b = count / CHUNK, at = count % CHUNK;
        if (b == Index(blocks.size())) {
            const std::vector<T> nothing(4 * CHUNK);
            blocks.emplace_back(format, format.sized, nothing.data(), CHUNK);
        }
        Known<T>& to = blocks[b];
        for (int k = 0; k < 8; ++k) to.value[k][at] = from.value[k][i];
        for (int k = 0; k < 2; ++k) to.position[k][at] = from.position[k][i];
        to.ordinary = from.ordinary && (at == 0 || to.ordinary);
        ++count;
    }
};

// The greatest number of T that is not above the threshold: what is above one is above the other.
template <class T>
T at_most(double threshold) {
    const T t = T(threshold);
    return t > threshold ? std::nextafter(t, -std::numeric_limits<T>::infinity()) : t;
}

// Whether one of the first `count` boxes of a block is more similar to box j than the threshold.
template <bool Scaled, bool Relative, class T, class F>
bool any_above(F formula, const Known<T>& block, Index count, const Known<T>& boxes, Index j, T threshold) {
    for (Index start = 0; start < count; start += LOOK) {
        Step<T> hits = 0;
        IVDEP
        for (Index i = start; i < start + LOOK; ++i) {
            const T s = similarity<Scaled, Relative>(formula, block, i, boxes, j);
            hits |= Step<T>(i < count) & Step<T>(s > threshold);
        }
        if (hits) return true;
    }
    return false;
}

template <class T, class F>
bool suppressed(F formula, const Kept<T>& kept, const Known<T>& boxes, Index j, T threshold) {
    bool found = false;
    for (Index left = 0; left < kept.count && !found; left += CHUNK) {
        const Known<T>& block = kept.blocks[left / CHUNK];
        dispatch(kept.format.sized, block, boxes, [&](auto scaled, auto relative) {
            found = any_above<scaled, relative>(formula, block, std::min(CHUNK, kept.count - left), boxes, j, threshold);
        });
    }
    return found;
}

// Keeps each box, in order, that no box kept before it is more similar to than the threshold.
template <class T, class F>
void suppress(F formula, const SuppressCall<T>& call) {
    const Groups<T> all(call);
    const T threshold = at_most<T>(call.threshold);
    Kept<T> kept{all.format, {}};
    all.each([&](Index begin, Index end) {
        kept.count = 0;
        for (Index start = begin; start < end; start += CHUNK) {
            const Index count = std::min(CHUNK, end - start);
            const Known<T> boxes(all.format, all.format.sized, all.boxes + 4 * start, count);
            for (Index j = 0; j < count; ++j) {
                call.keep[start + j] = !suppressed(formula, kept, boxes, j, threshold);
                if (call.keep[start + j]) kept.add(boxes, j);
            }
        }
    });
}

// How a score fades beside a box that was picked.
template <class T>
struct Fading {
    bool gaussian;
    T sigma, threshold;

    void apply(const T* similarity, Index count, T* score) const {
        if (gaussian) {
            for (Index i = 0; i < count; ++i)  // most boxes are apart, and exp is dear
                if (similarity[i] > 0) score[i] *= std::exp(-(similarity[i] * similarity[i]) / sigma);
        } else {
            for (Index i = 0; i < count; ++i) score[i] *= similarity[i] >= threshold ? 1 - similarity[i] : T(1);
        }
    }
};

// The first of the greatest scores; NaN is none. -1 where there is none above -infinity.
template <class T>
Index greatest(const T* score, Index count) {
    Index best = -1;
    T value = -std::numeric_limits<T>::infinity();
    for (Index i = 0; i < count; ++i)
        if (score[i] > value) value = score[i], best = i;
    return best;
}

// Picks the box of the greatest score again and again, while it is `least` or more, and fades the
// others.
template <class T, class F>
void soft_suppress(F formula, const SoftSuppressCall<T>& call) {
    const Groups<T> all(call);
    const Fading<T> fading{call.gaussian != 0, T(call.sigma), T(call.threshold)};
    const T least = T(call.least);
    T* const score = call.score;
    Index picks = 0;
    all.each([&](Index begin, Index end) {
        const std::vector<Known<T>> blocks = all.blocks(begin, end);
        std::vector<Index> top(blocks.size());  // of each block
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const Index start = begin + Index(b) * CHUNK, count = std::min(CHUNK, end - start);
            const Index first = greatest(score + start, count);
            top[b] = first < 0 ? -1 : start + first;
        }
        for (;;) {
            Index pick = -1;
            for (const Index t : top)
                if (t >= 0 && (pick < 0 || score[t] > score[pick])) pick = t;
            if (pick < 0 || !(score[pick] >= least)) return;
            call.order[picks] = pick, call.picked[picks++] = score[pick];
            score[pick] = -std::numeric_limits<T>::infinity();
            const Known<T>& row = blocks[(pick - begin) / CHUNK];
            for (std::size_t b = 0; b < blocks.size(); ++b) {
                if (top[b] < 0 || (top[b] != pick && score[top[b]] < least)) continue;
                const Index start = begin + Index(b) * CHUNK, count = std::min(CHUNK, end - start);
                T line[CHUNK];
                dispatch(all.format.sized, row, blocks[b], [&](auto scaled, auto relative) {
                    matrix_row<scaled, relative>(formula, row, (pick - begin) % CHUNK, blocks[b], count, line);
                });
                fading.apply(line, count, score + start);
                const Index first = greatest(score + start, count);
                top[b] = first < 0 ? -1 : start + first;
            }
        }
    });
    *call.picks = picks;
}

// Exports NAME_suppress_f32 and _f64, NAME_soft_suppress_f32 and _f64.
#define SUPPRESS_OF(NAME, T, SUFFIX)                                             \
    EXPORT void NAME##_suppress_##SUFFIX(const SuppressCall<T>* call) {          \
        suppress([](const auto& pair) { return NAME(pair); }, *call);            \
    }                                                                            \
    EXPORT void NAME##_soft_suppress_##SUFFIX(const SoftSuppressCall<T>* call) { \
        soft_suppress([](const auto& pair) { return NAME(pair); }, *call);       \
    }
#define SUPPRESS(NAME) SUPPRESS_OF(NAME, float, f32) SUPPRESS_OF(NAME, double, f64)
