#include "runs.hpp"

namespace kvcanon {

namespace {

// How many numbers from `slots` on count up by one. Blocks are compared whole, so that the
// compiler makes vector code of the common case, a long run.
size_t length_of_run(const Slot* slots, size_t count) {
    constexpr size_t BLOCK = 64;
    // Unsigned, so that garbage that a caller hands over cannot overflow.
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
    // A copy of the run: `out` could lie over the run itself, for all that the compiler knows.
    for (const Run run : runs) {
        const auto first = static_cast<uint32_t>(run.begin);
        for (int32_t i = 0; i < run.size; ++i) {
            out[i] = static_cast<Slot>(first + static_cast<uint32_t>(i));
        }
        out += run.size;
    }
}

}  // namespace kvcanon
