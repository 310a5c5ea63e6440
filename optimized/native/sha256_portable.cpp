#include <algorithm>
#include <cstring>
#include <iterator>

#include "sha256_ways.hpp"

namespace kvcanon {

namespace {

uint32_t rotate(uint32_t word, int bits) { return (word >> bits) | (word << (32 - bits)); }

// The functions of FIPS 180-4, section 4.1.2, by its names.
uint32_t choose(uint32_t x, uint32_t y, uint32_t z) { return (x & y) ^ (~x & z); }
uint32_t majority(uint32_t x, uint32_t y, uint32_t z) { return (x & y) ^ (x & z) ^ (y & z); }
uint32_t big_sigma_0(uint32_t x) { return rotate(x, 2) ^ rotate(x, 13) ^ rotate(x, 22); }
uint32_t big_sigma_1(uint32_t x) { return rotate(x, 6) ^ rotate(x, 11) ^ rotate(x, 25); }
uint32_t small_sigma_0(uint32_t x) { return rotate(x, 7) ^ rotate(x, 18) ^ (x >> 3); }
uint32_t small_sigma_1(uint32_t x) { return rotate(x, 17) ^ rotate(x, 19) ^ (x >> 10); }

// The first 16 words of `schedule` are those of the message; the others follow from them.
void compress(uint32_t* state, uint32_t* schedule) {
    for (size_t i = WORDS_PER_BLOCK; i < 64; ++i) {
        schedule[i] = small_sigma_1(schedule[i - 2]) + schedule[i - 7] +
                      small_sigma_0(schedule[i - 15]) + schedule[i - 16];
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (size_t i = 0; i < 64; ++i) {
        const uint32_t t1 = h + big_sigma_1(e) + choose(e, f, g) + ROUND_CONSTANTS[i] + schedule[i];
        const uint32_t t2 = big_sigma_0(a) + majority(a, b, c);
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void load_hash(const uint8_t* from, uint32_t* hash) {
    std::memcpy(hash, from, HASH_BYTES);
    std::transform(hash, hash + WORDS_PER_HASH, hash, swap_bytes);
}

void store_hash(const uint32_t* hash, uint8_t* to) {
    uint32_t swapped[WORDS_PER_HASH];
    std::transform(hash, hash + WORDS_PER_HASH, swapped, swap_bytes);
    std::memcpy(to, swapped, HASH_BYTES);
}

void hash_run(const HashRun& run, size_t words_per_page, size_t pages) {
    const MessageLayout layout(run.parent != nullptr, words_per_page);
    uint32_t hash[WORDS_PER_HASH] = {};
    if (run.parent != nullptr) load_hash(run.parent, hash);
    for (size_t page = 0; page < pages; ++page) {
        uint32_t state[8];
        std::copy(std::begin(INITIAL_STATE), std::end(INITIAL_STATE), state);
        for (size_t block = 0; block < layout.blocks; ++block) {
            uint32_t schedule[64];
            for (size_t i = 0; i < WORDS_PER_BLOCK; ++i) {
                const size_t at = block * WORDS_PER_BLOCK + i;
                schedule[i] = at < layout.page_begin
                                  ? hash[at]
                                  : word_after_name(layout, at, run.words + page * words_per_page);
            }
            compress(state, schedule);
        }
        std::copy(std::begin(state), std::end(state), hash);
        store_hash(hash, run.out + page * HASH_BYTES);
    }
}

}  // namespace

HashWay portable_way() { return {"portable", hash_run, nullptr}; }

}  // namespace kvcanon
