#include "runs.hpp"

namespace kvcanon {

namespace {

// The length of the run that starts at `slots`. Whole blocks are compared, so that the common case,
// a long run, becomes vector code.
size_t length_of_run(const Slot* slots, size_t count) {
    constexpr size_t BLOCK = 64;
    // Unsigned, so that a caller's wrong numbers cannot overflow.
    const uint32_t first = static_cast<uint32_t>(slots[0]);
    size_t at = 1;
    while (at + BLOCK <= count) {
        uint32_t differs = 0;
        for (size_t i = 0; i < BLOCK; ++i) {
            differs |=
                static_cast<uint32_t>(slots[at + i]) ^ (first + static_cast<uint32_t>(at + i));
        }
        if (differs != 0) break;
        at += BLOCK;
    }
    while (at < count && static_cast<uint32_t>(slots[at]) == first + static_cast<uint32_t>(at)) {
        ++at;
    }
    return at;
}

}  // namespace

Runs runs_of(const Slot* slots, size_t count) {
    Runs runs;
    for (size_t at = 0; at < count;) {
        const size_t size = length_of_run(slots + at, count - at);
        runs.append({slots[at], static_cast<int32_t>(size)});
        at += size;
    }
    return runs;
}

void expand(const Runs& runs, Slot* out) {
    // A copy of the run, since the compiler must assume that `out` overlaps the run itself.
    for (const Run run : runs) {
        const auto first = static_cast<uint32_t>(run.begin);
        for (int32_t i = 0; i < run.size; ++i) {
            out[i] = static_cast<Slot>(first + static_cast<uint32_t>(i));
        }
        out += run.size;
    }
}

}  // namespace kvcanon
