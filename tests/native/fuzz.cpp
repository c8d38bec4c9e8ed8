// A libFuzzer target over the C entry points: the bytes choose the job, formats, numbers and boxes. Nothing may crash
// or trip a sanitizer, inputs stay as they are, outputs stay in their buffers and in their range.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "engine.h"

#define REQUIRE(WHAT) ((WHAT) ? void() : fail(#WHAT))
[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "not so: %s\n", what);
    std::abort();
}

// The input, again from the start where it ends.
struct Bytes {
    const std::uint8_t* data;
    std::size_t size, at = 0;

    template <class V>
    V take() {
        unsigned char raw[sizeof(V)];
        for (unsigned char& byte : raw) byte = size ? data[at++ % size] : 0;
        V value;
        std::memcpy(&value, raw, sizeof value);
        return value;
    }
    // From 0 to limit - 1.
    Count below(Count limit) { return take<std::uint16_t>() % limit; }
    int format() { return int(below(FORMAT_COUNT)); }
    int threads() { return int(below(4)); }
};

// Numbers between two zones that nobody may write to.
template <class V>
class Guarded {
    static constexpr Count ZONE = 64;
    static constexpr unsigned char MARK = 0xa5;
    Count count_;
    std::vector<unsigned char> raw_;

public:
    explicit Guarded(Count count) : count_(count), raw_((2 * ZONE + count) * sizeof(V), MARK) {}
    ~Guarded() {
        const Count edge = ZONE * sizeof(V), end = edge + count_ * sizeof(V);
        for (Count i = 0; i < edge; ++i) REQUIRE(raw_[i] == MARK && raw_[end + i] == MARK);
    }
    V* data() { return reinterpret_cast<V*>(raw_.data()) + ZONE; }
    V& operator[](Count i) { return data()[i]; }
};

// Numbers that the engine reads, in a block of their own, so that the address sanitizer sees a step beyond.
template <class V>
class Input {
    std::vector<V> values_, before_;

public:
    Input(Bytes& bytes, Count count) : values_(count) {
        for (V& value : values_) value = bytes.take<V>();
        before_ = values_;
    }
    ~Input() { REQUIRE(values_.empty() || !std::memcmp(values_.data(), before_.data(), values_.size() * sizeof(V))); }
    const V* data() const { return values_.data(); }
};

template <class T>
void fuzz_paired(Bytes& bytes) {
    const auto& loss = Engine<T>::losses[bytes.below(std::size(Engine<T>::losses))];
    const Count rows = bytes.below(1200);  // more than two blocks
    const bool with_loss = bytes.below(2), with_gradient = bytes.below(2);
    PairedCall<T> call{};
    call.rows = rows;
    call.format1 = bytes.format(), call.format2 = bytes.format(), call.threads = bytes.threads();
    call.eps = bytes.take<double>(), call.factor = bytes.take<double>();
    for (double& parameter : call.parameters) parameter = bytes.take<double>();
    const Input<T> pred(bytes, 4 * rows), target(bytes, 4 * rows);
    Guarded<T> value(with_loss ? rows : 0), gradient(with_gradient ? 4 * rows : 0), total(1);
    call.pred = pred.data(), call.target = target.data();
    call.gradient = with_gradient ? gradient.data() : nullptr;
    (with_loss ? call.loss : call.total) = with_loss ? value.data() : total.data();
    loss.run(&call);
}

template <class T>
void fuzz_matrix(Bytes& bytes) {
    const auto& similarity = Engine<T>::similarities[bytes.below(std::size(Engine<T>::similarities))];
    // One of the two may be of several blocks.
    const bool wide = bytes.below(2);
    const Count batch = bytes.below(4), rows = bytes.below(wide ? 20 : 1200), columns = bytes.below(wide ? 1200 : 20);
    const int format1 = bytes.format(), format2 = bytes.format(), threads = bytes.threads();
    const Input<T> boxes1(bytes, 4 * batch * rows), boxes2(bytes, 4 * batch * columns);
    {
        Guarded<T> result(batch * rows * columns);
        const MatrixCall<T> call{batch, rows, columns, boxes1.data(), boxes2.data(), result.data(),
                                 format1, format2, threads};
        similarity.matrix(&call);
    }
    Guarded<T> value(batch * rows);
    Guarded<std::int64_t> index(batch * rows);
    const BestCall<T> call{batch, rows, columns, boxes1.data(), boxes2.data(), value.data(), index.data(),
                           format1, format2, threads};
    similarity.best(&call);
    for (Count i = 0; i < batch * rows; ++i) REQUIRE(index[i] >= -1 && index[i] < columns);
}

// The sizes of some groups of boxes.
struct Sizes {
    std::vector<std::int64_t> counts;
    Count boxes = 0;

    explicit Sizes(Bytes& bytes) : counts(bytes.below(4)) {
        for (auto& count : counts) boxes += count = bytes.below(bytes.below(8) ? 40 : 600);
    }
};

template <class T>
void fuzz_suppression(Bytes& bytes) {
    const auto& similarity = Engine<T>::similarities[bytes.below(std::size(Engine<T>::similarities))];
    const Sizes groups(bytes);
    const int format = bytes.format();
    const double threshold = bytes.take<double>();
    const Input<T> boxes(bytes, 4 * groups.boxes);
    Guarded<unsigned char> keep(groups.boxes);
    const SuppressCall<T> call{Count(groups.counts.size()), groups.counts.data(), boxes.data(), keep.data(), format,
                               threshold};
    similarity.suppress(&call);
    for (Count i = 0; i < groups.boxes; ++i) REQUIRE(keep[i] <= 1);
}

template <class T>
void fuzz_soft_suppression(Bytes& bytes) {
    const auto& similarity = Engine<T>::similarities[bytes.below(std::size(Engine<T>::similarities))];
    const Sizes groups(bytes);
    const int format = bytes.format(), gaussian = int(bytes.below(2));
    const double sigma = bytes.take<double>(), threshold = bytes.take<double>(), least = bytes.take<double>();
    const Input<T> boxes(bytes, 4 * groups.boxes);
    Guarded<T> score(groups.boxes), picked(groups.boxes);
    for (Count i = 0; i < groups.boxes; ++i) score[i] = bytes.take<T>();
    Guarded<std::int64_t> order(groups.boxes), picks(1);
    const SoftSuppressCall<T> call{Count(groups.counts.size()), groups.counts.data(), boxes.data(), score.data(),
                                   order.data(), picked.data(), picks.data(), format, gaussian, sigma, threshold,
                                   least};
    similarity.soft_suppress(&call);
    REQUIRE(picks[0] >= 0 && picks[0] <= groups.boxes);
    std::vector<bool> seen(groups.boxes);
    for (Count i = 0; i < picks[0]; ++i) {
        REQUIRE(order[i] >= 0 && order[i] < groups.boxes && !seen[order[i]]);
        seen[order[i]] = true;
    }
}

template <class T>
void fuzz(Bytes& bytes) {
    constexpr void (*jobs[])(Bytes&) = {fuzz_paired<T>, fuzz_matrix<T>, fuzz_suppression<T>, fuzz_soft_suppression<T>};
    jobs[bytes.below(std::size(jobs))](bytes);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes bytes{data, size};
    bytes.below(2) ? fuzz<double>(bytes) : fuzz<float>(bytes);
    return 0;
}
