// What paired boxes and matrices share: formats, blocks of rows, threads.
#pragma once

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "pair.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

// An entry point takes one pointer, to all that its call consists of, arrays being contiguous: a caller that is no
// C program fills one block of memory in place of many registers.

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
    for (Index part = 1; part < parts; ++part) {
        const auto run = [=, &work] { work(part, rows * part / parts, rows * (part + 1) / parts); };
        try {
            others.emplace_back(run);
        } catch (const std::system_error&) {  // no thread is to be had
            run();
        }
    }
    work(Index(0), Index(0), rows / parts);
    for (auto& other : others) other.join();
}
