// Random pairs of boxes of every kind through all entry points, for a build with sanitizers: soak PAIRS [SEED]
//
// So many pairs go through the paired losses in turn, as many or more through the matrices and the best partners, and
// a share of the boxes through suppression. Besides the sanitizers' findings, a value or slope that is not finite
// for numbers of ordinary magnitude is one.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "engine.h"

struct Random {  // splitmix64
    std::uint64_t state;

    std::uint64_t bits() {
        std::uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    Count below(Count n) { return Count(bits() % std::uint64_t(n)); }
    bool chance() { return bits() >> 63; }
    double uniform(double low, double high) { return low + (high - low) * double(bits() >> 11) * 0x1p-53; }
    double side() { return std::ldexp(uniform(1, 2), int(below(120)) - 60); }  // of any binary order
};

enum Kind { ORDINARY, NEAR, INVERTED, COLLAPSED, IDENTICAL, THIN, ANY_SIZE, DENORMAL, NOT_A_NUMBER, INFINITE, ANY_BITS };
constexpr int KINDS = ANY_BITS + 1;

template <class T>
void ordinary_box(Random& random, T* box) {
    for (int i = 0; i < 2; ++i) {
        box[i] = T(random.uniform(-100, 400));
        box[i + 2] = box[i] + T(random.uniform(1, 300));
    }
}

// One coordinate at least, of either box.
template <class T>
void poison(Random& random, T* pair, T value) {
    do pair[random.below(8)] = random.chance() ? value : -value;
    while (random.chance());
}

// Writes the two boxes to the eight numbers of `pair`.
template <class T>
void make_pair(Random& random, Kind kind, T* pair) {
    T *pred = pair, *target = pair + 4;
    ordinary_box(random, pred);
    ordinary_box(random, target);
    switch (kind) {
    case ORDINARY: break;
    case NEAR:
        for (int i = 0; i < 4; ++i) target[i] = pred[i] + T(random.uniform(-20, 20));
        break;
    case INVERTED:
        for (int i : {0, 1, 4, 5})
            if (random.chance()) std::swap(pair[i], pair[i + 2]);
        break;
    case COLLAPSED:
        for (int i : {0, 1, 4, 5})
            if (random.chance()) pair[i + 2] = pair[i];
        break;
    case IDENTICAL: std::copy(pred, pred + 4, target); break;
    case THIN:
        for (int i : {0, 5})
            if (random.chance()) pair[i + 2] = pair[i] + T(std::ldexp(1.0, -int(random.below(20))));
        break;
    case ANY_SIZE:
        for (int i = 0; i < 8; ++i) pair[i] = T(random.chance() ? random.side() : -random.side());
        if (random.chance())
            for (int i : {0, 1, 4, 5}) pair[i] = 0;  // sides of any size beside each other
        break;
    case DENORMAL:
        for (int i = 0; i < 8; ++i)
            if (random.chance()) pair[i] = std::numeric_limits<T>::denorm_min() * T(random.below(1 << 20));
        break;
    case NOT_A_NUMBER: poison(random, pair, std::numeric_limits<T>::quiet_NaN()); break;
    case INFINITE: poison(random, pair, std::numeric_limits<T>::infinity()); break;
    case ANY_BITS:
        for (int i = 0; i < 8; ++i) {
            const std::uint64_t bits = random.bits();
            std::memcpy(pair + i, &bits, sizeof(T));
        }
    }
}

template <class T>
struct Boxes {
    std::vector<T> pred, target;  // of exactly this size: an address sanitizer guards both ends
    std::vector<bool> tame;       // coordinates of ordinary magnitude

    Boxes(Random& random, Count rows) : pred(4 * rows), target(4 * rows), tame(rows) {
        for (Count i = 0; i < rows; ++i) {
            const Kind kind = Kind(random.below(KINDS));
            T pair[8];
            make_pair(random, kind, pair);
            std::copy(pair, pair + 4, &pred[4 * i]);
            std::copy(pair + 4, pair + 8, &target[4 * i]);
            tame[i] = kind < DENORMAL;
        }
    }
};

struct Tally {
    Count pairs = 0, similarities = 0, suppressed = 0;
    std::map<std::string, Count> infinite;  // by loss

    Count findings() const {
        Count count = 0;
        for (const auto& entry : infinite) count += entry.second;
        return count;
    }
};

template <class T>
void soak_paired(Random& random, const Loss<T>& loss, Count rows, Tally& tally) {
    const Boxes<T> boxes(random, rows);
    PairedCall<T> call{};
    for (double& parameter : call.parameters) parameter = random.uniform(0.5, 1);  // of use to every formula
    const bool with_loss = random.chance(), with_gradient = random.chance();
    std::vector<T> value(with_loss ? rows : 0), gradient(with_gradient ? 4 * rows : 0);
    T total = 0;
    call.rows = rows, call.pred = boxes.pred.data(), call.target = boxes.target.data();
    call.gradient = with_gradient ? gradient.data() : nullptr;
    (with_loss ? call.loss : call.total) = with_loss ? value.data() : &total;
    call.format1 = int(random.below(FORMAT_COUNT)), call.format2 = int(random.below(FORMAT_COUNT));
    call.threads = 1 + int(random.below(3));
    call.eps = random.chance() ? 0 : 1e-7, call.factor = 1 / double(rows);
    loss.run(&call);
    for (Count i = 0; i < rows; ++i) {
        bool finite = !with_loss || std::isfinite(value[i]);
        for (Count k = 4 * i; with_gradient && k < 4 * i + 4; ++k) finite &= std::isfinite(gradient[k]);
        if (boxes.tame[i] && !finite) ++tally.infinite[loss.name];
    }
    tally.pairs += rows;
}

template <class T>
void soak_matrix(Random& random, const Similarity<T>& similarity, Count rows, Tally& tally) {
    const Count batch = 1 + random.below(3), columns = 1 + random.below(random.chance() ? 100 : 3);
    const Boxes<T> boxes1(random, batch * rows), boxes2(random, batch * columns);
    const int format1 = int(random.below(FORMAT_COUNT)), format2 = int(random.below(FORMAT_COUNT));
    const int threads = 1 + int(random.below(3));
    if (random.chance()) {
        std::vector<T> result(batch * rows * columns);
        const MatrixCall<T> call{batch, rows, columns, boxes1.pred.data(), boxes2.target.data(), result.data(),
                                 format1, format2, threads};
        similarity.matrix(&call);
    } else {
        std::vector<T> value(batch * rows);
        std::vector<std::int64_t> index(batch * rows);
        const BestCall<T> call{batch, rows, columns, boxes1.pred.data(), boxes2.target.data(), value.data(),
                               index.data(), format1, format2, threads};
        similarity.best(&call);
    }
    tally.similarities += batch * rows * columns;
}

template <class T>
void soak_suppression(Random& random, const Similarity<T>& similarity, Tally& tally) {
    std::vector<std::int64_t> counts(1 + random.below(4));
    Count boxes_count = 0;
    for (auto& count : counts) boxes_count += count = random.below(random.chance() ? 20 : 600);
    const Boxes<T> boxes(random, boxes_count);
    const int format = int(random.below(FORMAT_COUNT));
    const double threshold = random.uniform(-1, 1);
    std::vector<unsigned char> keep(boxes_count);
    const SuppressCall<T> hard{Count(counts.size()), counts.data(), boxes.pred.data(), keep.data(), format, threshold};
    similarity.suppress(&hard);
    std::vector<T> score(boxes_count), picked(boxes_count);
    for (T& s : score) s = random.below(50) ? T(random.uniform(0, 1)) : std::numeric_limits<T>::quiet_NaN();
    std::vector<std::int64_t> order(boxes_count);
    std::int64_t picks;
    const SoftSuppressCall<T> soft{Count(counts.size()), counts.data(), boxes.pred.data(), score.data(), order.data(),
                                   picked.data(), &picks, format, random.chance(), 0.5, threshold, 0.05};
    similarity.soft_suppress(&soft);
    tally.suppressed += boxes_count;
}

template <class T>
void soak(Random& random, Count pairs, Tally& tally) {
    const Count end = tally.pairs + pairs;
    for (Count turn = 0; tally.pairs < end; ++turn) {
        // Most calls are small; some are worth several threads, when as many pairs are left.
        const Count rows = std::min(end - tally.pairs, turn % 97 == 96 ? 200000 : 1 + random.below(3000));
        const auto& similarity = Engine<T>::similarities[random.below(std::size(Engine<T>::similarities))];
        soak_paired(random, Engine<T>::losses[turn % std::size(Engine<T>::losses)], rows, tally);
        if (tally.similarities < tally.pairs) soak_matrix(random, similarity, 1 + random.below(600), tally);
        if (turn % 16 == 0) soak_suppression(random, similarity, tally);
    }
}

int main(int argc, char** argv) {
    const Count pairs = argc > 1 ? std::atoll(argv[1]) : 1000000;
    Random random{argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1};
    const auto start = std::chrono::steady_clock::now();
    Tally tally;
    soak<float>(random, pairs - pairs / 2, tally);
    soak<double>(random, pairs / 2, tally);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const auto& [name, count] : tally.infinite)
        std::printf("%s: %lld rows of ordinary magnitude are not finite\n", name.c_str(), (long long)count);
    std::printf("pairs=%lld similarities=%lld suppressed=%lld not_finite=%lld seconds=%.0f\n", (long long)tally.pairs,
                (long long)tally.similarities, (long long)tally.suppressed, (long long)tally.findings(),
                seconds.count());
    return tally.findings() ? 1 : 0;
}
