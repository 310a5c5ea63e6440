#include "sha256_ways.hpp"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

// Only the functions of this file are compiled for processors that have the extensions.
#define KVCANON_SHA_NI __attribute__((target("sha,sse4.1")))
#define KVCANON_SHA_NI_INLINE KVCANON_SHA_NI __attribute__((always_inline)) inline

namespace kvcanon {

namespace {

constexpr size_t WORDS_PER_VECTOR = 4;

// The eight words of a hash, the first in the lowest lane of the first vector, as in a message.
struct Hash {
    __m128i dcba;
    __m128i hgfe;
};

// The same words between two blocks, in the order of the instructions.
struct State {
    __m128i abef;
    __m128i cdgh;
};

// The 16 words of the message's schedule that are in use: vector i % 4 holds those of rounds 4 i to
// 4 i + 3.
struct Schedule {
    __m128i words[4];
};

KVCANON_SHA_NI_INLINE __m128i load(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

KVCANON_SHA_NI_INLINE __m128i swap_bytes(__m128i words) {
    return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

KVCANON_SHA_NI_INLINE Hash load_hash(const uint8_t* from) {
    return {swap_bytes(load(from)), swap_bytes(load(from + 16))};
}

KVCANON_SHA_NI_INLINE void store_hash(const Hash& hash, uint8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), swap_bytes(hash.dcba));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), swap_bytes(hash.hgfe));
}

KVCANON_SHA_NI_INLINE State initial_state() {
    const uint32_t* s = INITIAL_STATE;
    return {_mm_setr_epi32(static_cast<int>(s[5]), static_cast<int>(s[4]), static_cast<int>(s[1]),
                           static_cast<int>(s[0])),
            _mm_setr_epi32(static_cast<int>(s[7]), static_cast<int>(s[6]), static_cast<int>(s[3]),
                           static_cast<int>(s[2]))};
}

KVCANON_SHA_NI_INLINE Hash hash_of(const State& state) {
    const __m128i feba = _mm_shuffle_epi32(state.abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(state.cdgh, 0xB1);
    return {_mm_blend_epi16(feba, dchg, 0xF0), _mm_alignr_epi8(dchg, feba, 8)};
}

// Up to three words, and zeros. Nothing behind them is read: a page may be the last of its array.
KVCANON_SHA_NI_INLINE __m128i load_some(const uint32_t* words, size_t count) {
    if (count == 0) return _mm_setzero_si128();
    if (count == 1) return _mm_loadu_si32(words);
    const __m128i two = _mm_loadu_si64(words);
    return count == 2 ? two : _mm_insert_epi32(two, static_cast<int>(words[2]), 2);
}

// The vector at word `at` of a message, where not all of its words are the page's.
KVCANON_SHA_NI_INLINE __m128i load_edge(const MessageLayout& layout, size_t at, const Hash& hash,
                                        const uint32_t* page) {
    if (at < layout.page_begin) return at == 0 ? hash.dcba : hash.hgfe;
    const uint32_t* words = page + (at - layout.page_begin);
    if (at + WORDS_PER_VECTOR <= layout.page_end) return swap_bytes(load(words));
    __m128i vector = _mm_setzero_si128();
    if (at <= layout.page_end) {
        const int end = static_cast<int>(END_OF_MESSAGE);
        const size_t count = layout.page_end - at;
        const __m128i place =
            _mm_cmpeq_epi32(_mm_set1_epi32(static_cast<int>(count)), _mm_setr_epi32(0, 1, 2, 3));
        vector = _mm_or_si128(swap_bytes(load_some(words, count)),
                              _mm_and_si128(place, _mm_set1_epi32(end)));
    }
    if (at + WORDS_PER_VECTOR == layout.blocks * WORDS_PER_BLOCK) {
        const auto bits = static_cast<long long>(layout.bits << 32 | layout.bits >> 32);
        vector = _mm_or_si128(vector, _mm_set_epi64x(bits, 0));
    }
    return vector;
}

KVCANON_SHA_NI_INLINE Schedule load_block(const MessageLayout& layout, size_t block,
                                          const Hash& hash, const uint32_t* page) {
    const size_t at = block * WORDS_PER_BLOCK;
    Schedule schedule;
    if (at >= layout.page_begin && at + WORDS_PER_BLOCK <= layout.page_end) {
        const uint32_t* words = page + (at - layout.page_begin);
        for (size_t i = 0; i < 4; ++i) schedule.words[i] = swap_bytes(load(words + 4 * i));
    } else {
        for (size_t i = 0; i < 4; ++i) {
            schedule.words[i] = load_edge(layout, at + 4 * i, hash, page);
        }
    }
    return schedule;
}

// Rounds 4 i to 4 i + 3, where `group` is i. The words that they used make room for those of 16
// rounds later.
KVCANON_SHA_NI_INLINE void four_rounds(State& state, Schedule& schedule, int group) {
    __m128i& oldest = schedule.words[group % 4];
    const __m128i next = schedule.words[(group + 1) % 4];
    const __m128i last = schedule.words[(group + 3) % 4];
    const __m128i added =
        _mm_add_epi32(oldest, load(&ROUND_CONSTANTS[static_cast<size_t>(4 * group)]));
    state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, added);
    state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, _mm_shuffle_epi32(added, 0x0E));
    if (group >= 12) return;
    const __m128i seven_back = _mm_alignr_epi8(last, schedule.words[(group + 2) % 4], 4);
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(oldest, next), seven_back);
    oldest = _mm_sha256msg2_epu32(sum, last);
}

// Each round waits for the one before it. With two runs their rounds alternate, so that one runs
// while the other waits.
template <size_t RUNS>
KVCANON_SHA_NI_INLINE void hash_runs(const HashRun (&runs)[RUNS], size_t words_per_page,
                                     size_t pages) {
    const MessageLayout layout(runs[0].parent != nullptr, words_per_page);
    Hash hashes[RUNS] = {};
    if (runs[0].parent != nullptr) {
        for (size_t i = 0; i < RUNS; ++i) hashes[i] = load_hash(runs[i].parent);
    }
    for (size_t page = 0; page < pages; ++page) {
        State states[RUNS];
        for (State& state : states) state = initial_state();
        for (size_t block = 0; block < layout.blocks; ++block) {
            State before[RUNS];
            Schedule schedules[RUNS];
            for (size_t i = 0; i < RUNS; ++i) {
                before[i] = states[i];
                schedules[i] =
                    load_block(layout, block, hashes[i], runs[i].words + page * words_per_page);
            }
#pragma GCC unroll 16
            for (int group = 0; group < 16; ++group) {
                for (size_t i = 0; i < RUNS; ++i) four_rounds(states[i], schedules[i], group);
            }
            for (size_t i = 0; i < RUNS; ++i) {
                states[i].abef = _mm_add_epi32(states[i].abef, before[i].abef);
                states[i].cdgh = _mm_add_epi32(states[i].cdgh, before[i].cdgh);
            }
        }
        for (size_t i = 0; i < RUNS; ++i) {
            hashes[i] = hash_of(states[i]);
            store_hash(hashes[i], runs[i].out + page * HASH_BYTES);
        }
    }
}

KVCANON_SHA_NI void hash_one(const HashRun& run, size_t words_per_page, size_t pages) {
    hash_runs<1>({run}, words_per_page, pages);
}

KVCANON_SHA_NI void hash_two(const HashRun& first, const HashRun& second, size_t words_per_page,
                             size_t pages) {
    hash_runs<2>({first, second}, words_per_page, pages);
}

}  // namespace

bool has_sha_ni() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    // Every processor that has SHA has these, but a virtual machine may hide them.
    if ((ecx & bit_SSSE3) == 0 || (ecx & bit_SSE4_1) == 0) return false;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_SHA) != 0;
}

HashWay sha_ni_way() { return {"sha_ni", hash_one, hash_two}; }

}  // namespace kvcanon

#endif
