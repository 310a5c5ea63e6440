#include "wide_loops.hpp"

namespace kvcanon {

namespace {

// The loops have no branches, so that they become vector code. They are compiled into each of the
// functions below, for the processors that it is for.
#define KVCANON_LOOP __attribute__((always_inline)) inline

KVCANON_LOOP uint64_t narrow_all(const int64_t* numbers, int64_t count, uint32_t* out) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; ++i) {
        all |= static_cast<uint64_t>(numbers[i]);
        out[i] = static_cast<uint32_t>(numbers[i]);
    }
    return all;
}

KVCANON_LOOP void widen_all(const int32_t* numbers, int64_t count, int64_t* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = numbers[i];
}

KVCANON_LOOP uint64_t or_all(const int64_t* numbers, int64_t count) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; ++i) all |= static_cast<uint64_t>(numbers[i]);
    return all;
}

KVCANON_LOOP uint64_t differences(const int64_t* numbers, int64_t count) {
    // Unsigned: no sum can overflow.
    const auto first = static_cast<uint64_t>(numbers[0]);
    uint64_t differs = 0;
    for (int64_t i = 0; i < count; ++i) {
        differs |= static_cast<uint64_t>(numbers[i]) ^ (first + static_cast<uint64_t>(i));
    }
    return differs;
}

KVCANON_LOOP void write_up(int64_t first, int64_t count, int64_t* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = first + i;
}

struct Loops {
    uint64_t (*narrow)(const int64_t* numbers, int64_t count, uint32_t* out);
    void (*widen)(const int32_t* numbers, int64_t count, int64_t* out);
    uint64_t (*all_bits)(const int64_t* numbers, int64_t count);
    uint64_t (*differences)(const int64_t* numbers, int64_t count);
    void (*count_up)(int64_t first, int64_t count, int64_t* out);
};

uint64_t narrow_plain(const int64_t* numbers, int64_t count, uint32_t* out) {
    return narrow_all(numbers, count, out);
}
void widen_plain(const int32_t* numbers, int64_t count, int64_t* out) {
    widen_all(numbers, count, out);
}
uint64_t all_bits_plain(const int64_t* numbers, int64_t count) { return or_all(numbers, count); }
uint64_t differences_plain(const int64_t* numbers, int64_t count) {
    return differences(numbers, count);
}
void count_up_plain(int64_t first, int64_t count, int64_t* out) { write_up(first, count, out); }

constexpr Loops PLAIN = {&narrow_plain, &widen_plain, &all_bits_plain, &differences_plain,
                         &count_up_plain};

#if defined(__x86_64__)
#define KVCANON_AVX2 __attribute__((target("avx2")))

KVCANON_AVX2 uint64_t narrow_avx2(const int64_t* numbers, int64_t count, uint32_t* out) {
    return narrow_all(numbers, count, out);
}
KVCANON_AVX2 void widen_avx2(const int32_t* numbers, int64_t count, int64_t* out) {
    widen_all(numbers, count, out);
}
KVCANON_AVX2 uint64_t all_bits_avx2(const int64_t* numbers, int64_t count) {
    return or_all(numbers, count);
}
KVCANON_AVX2 uint64_t differences_avx2(const int64_t* numbers, int64_t count) {
    return differences(numbers, count);
}
KVCANON_AVX2 void count_up_avx2(int64_t first, int64_t count, int64_t* out) {
    write_up(first, count, out);
}

const Loops LOOPS =
    __builtin_cpu_supports("avx2")
        ? Loops{&narrow_avx2, &widen_avx2, &all_bits_avx2, &differences_avx2, &count_up_avx2}
        : PLAIN;
#else
constexpr Loops LOOPS = PLAIN;
#endif

}  // namespace

uint64_t narrow(const int64_t* numbers, int64_t count, uint32_t* out) {
    return LOOPS.narrow(numbers, count, out);
}

void widen(const int32_t* numbers, int64_t count, int64_t* out) {
    LOOPS.widen(numbers, count, out);
}

uint64_t all_bits(const int64_t* numbers, int64_t count) { return LOOPS.all_bits(numbers, count); }

bool follow_each_other(const int64_t* numbers, int64_t count) {
    const auto first = static_cast<uint64_t>(numbers[0]),
               last = static_cast<uint64_t>(numbers[count - 1]);
    return last - first == static_cast<uint64_t>(count - 1) &&
           LOOPS.differences(numbers, count) == 0;
}

void count_up(int64_t first, int64_t count, int64_t* out) { LOOPS.count_up(first, count, out); }

}  // namespace kvcanon
