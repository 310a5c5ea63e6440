#include "sha256_ways.hpp"

#if defined(__aarch64__) && defined(__linux__)

// CMakeLists.txt enables the instructions in this file only. None of them runs before the check
// that the processor has them.
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

namespace kvcanon {

namespace {

constexpr size_t WORDS_PER_VECTOR = 4;

// The eight words of a hash, in the order of the message and of the instructions.
struct Hash {
    uint32x4_t abcd;
    uint32x4_t efgh;
};

using State = Hash;

// The 16 words of the message's schedule that are in use: vector i % 4 holds those of rounds 4 i to
// 4 i + 3.
struct Schedule {
    uint32x4_t words[4];
};

inline uint32x4_t load_swapped(const void* from) {
    return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(static_cast<const uint8_t*>(from))));
}

inline void store_hash(const Hash& hash, uint8_t* to) {
    vst1q_u8(to, vrev32q_u8(vreinterpretq_u8_u32(hash.abcd)));
    vst1q_u8(to + 16, vrev32q_u8(vreinterpretq_u8_u32(hash.efgh)));
}

inline uint32x4_t load_vector(const MessageLayout& layout, size_t at, const Hash& hash,
                              const uint32_t* page) {
    if (at < layout.page_begin) return at == 0 ? hash.abcd : hash.efgh;
    if (at + WORDS_PER_VECTOR <= layout.page_end) {
        return load_swapped(page + (at - layout.page_begin));
    }
    uint32_t words[WORDS_PER_VECTOR];
    for (size_t i = 0; i < WORDS_PER_VECTOR; ++i) words[i] = word_after_name(layout, at + i, page);
    return vld1q_u32(words);
}

// Rounds 4 i to 4 i + 3, where `group` is i. The words that they used make room for those of 16
// rounds later.
inline void four_rounds(State& state, Schedule& schedule, size_t group) {
    uint32x4_t& oldest = schedule.words[group % 4];
    const uint32x4_t added = vaddq_u32(oldest, vld1q_u32(ROUND_CONSTANTS + 4 * group));
    const uint32x4_t abcd = state.abcd;
    state.abcd = vsha256hq_u32(abcd, state.efgh, added);
    state.efgh = vsha256h2q_u32(state.efgh, abcd, added);
    if (group >= 12) return;
    oldest = vsha256su1q_u32(vsha256su0q_u32(oldest, schedule.words[(group + 1) % 4]),
                             schedule.words[(group + 2) % 4], schedule.words[(group + 3) % 4]);
}

// Each round waits for the one before it. With two runs their rounds alternate, so that one runs
// while the other waits.
template <size_t RUNS>
inline void hash_runs(const HashRun (&runs)[RUNS], size_t words_per_page, size_t pages) {
    const MessageLayout layout(runs[0].parent != nullptr, words_per_page);
    Hash hashes[RUNS] = {};
    if (runs[0].parent != nullptr) {
        for (size_t i = 0; i < RUNS; ++i) {
            hashes[i] = {load_swapped(runs[i].parent), load_swapped(runs[i].parent + 16)};
        }
    }
    for (size_t page = 0; page < pages; ++page) {
        State states[RUNS];
        for (State& state : states) {
            state = {vld1q_u32(INITIAL_STATE), vld1q_u32(INITIAL_STATE + 4)};
        }
        for (size_t block = 0; block < layout.blocks; ++block) {
            State before[RUNS];
            Schedule schedules[RUNS];
            for (size_t i = 0; i < RUNS; ++i) {
                before[i] = states[i];
                for (size_t j = 0; j < 4; ++j) {
                    const size_t at = block * WORDS_PER_BLOCK + j * WORDS_PER_VECTOR;
                    schedules[i].words[j] =
                        load_vector(layout, at, hashes[i], runs[i].words + page * words_per_page);
                }
            }
#pragma GCC unroll 16
            for (size_t group = 0; group < 16; ++group) {
                for (size_t i = 0; i < RUNS; ++i) four_rounds(states[i], schedules[i], group);
            }
            for (size_t i = 0; i < RUNS; ++i) {
                states[i].abcd = vaddq_u32(states[i].abcd, before[i].abcd);
                states[i].efgh = vaddq_u32(states[i].efgh, before[i].efgh);
            }
        }
        for (size_t i = 0; i < RUNS; ++i) {
            hashes[i] = states[i];
            store_hash(hashes[i], runs[i].out + page * HASH_BYTES);
        }
    }
}

void hash_one(const HashRun& run, size_t words_per_page, size_t pages) {
    hash_runs<1>({run}, words_per_page, pages);
}

void hash_two(const HashRun& first, const HashRun& second, size_t words_per_page, size_t pages) {
    hash_runs<2>({first, second}, words_per_page, pages);
}

}  // namespace

bool has_armv8_sha2() { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }

HashWay armv8_sha2_way() { return {"armv8_sha2", hash_one, hash_two}; }

}  // namespace kvcanon

#endif
