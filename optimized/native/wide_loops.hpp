// Loops over the numbers of a whole prompt, in the widest vectors that the processor has. They take
// most of the time of a request whose prompt has few nodes.
#pragma once

#include <cstdint>

namespace kvcanon {

// Write 64-bit numbers as 32-bit ones; returns all of their bits, so that whoever calls sees at
// once whether one of them needed more.
uint64_t narrow(const int64_t* numbers, int64_t count, uint32_t* out);

// Write 32-bit numbers as 64-bit ones.
void widen(const int32_t* numbers, int64_t count, int64_t* out);

// All bits of numbers, so that whoever calls sees at once whether one is negative or too large.
uint64_t all_bits(const int64_t* numbers, int64_t count);

// Whether each number is one more than that before it.
bool follow_each_other(const int64_t* numbers, int64_t count);

// Write consecutive numbers.
void count_up(int64_t first, int64_t count, int64_t* out);

}  // namespace kvcanon
