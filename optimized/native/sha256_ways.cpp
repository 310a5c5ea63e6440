#include "sha256_ways.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace kvcanon {

namespace {

alignas(16) constexpr uint32_t ROUND_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t word, int bits) { return (word >> bits) | (word << (32 - bits)); }

// The names of FIPS 180-4, section 4.1.2.
uint32_t choose(uint32_t x, uint32_t y, uint32_t z) { return (x & y) ^ (~x & z); }
uint32_t majority(uint32_t x, uint32_t y, uint32_t z) { return (x & y) ^ (x & z) ^ (y & z); }
uint32_t big_sigma_0(uint32_t x) { return rotate(x, 2) ^ rotate(x, 13) ^ rotate(x, 22); }
uint32_t big_sigma_1(uint32_t x) { return rotate(x, 6) ^ rotate(x, 11) ^ rotate(x, 25); }
uint32_t small_sigma_0(uint32_t x) { return rotate(x, 7) ^ rotate(x, 18) ^ (x >> 3); }
uint32_t small_sigma_1(uint32_t x) { return rotate(x, 17) ^ rotate(x, 19) ^ (x >> 10); }

uint32_t load_big_endian(const uint8_t* data) {
    return uint32_t{data[0]} << 24 | uint32_t{data[1]} << 16 | uint32_t{data[2]} << 8 |
           uint32_t{data[3]};
}

void compress_block(uint32_t* state, const uint8_t* block) {
    uint32_t schedule[64];
    for (int i = 0; i < 16; ++i) schedule[i] = load_big_endian(block + 4 * i);
    for (int i = 16; i < 64; ++i) {
        schedule[i] = small_sigma_1(schedule[i - 2]) + schedule[i - 7] +
                      small_sigma_0(schedule[i - 15]) + schedule[i - 16];
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
        const uint32_t t1 = h + big_sigma_1(e) + choose(e, f, g) + ROUND_CONSTANTS[i] + schedule[i];
        const uint32_t t2 = big_sigma_0(a) + majority(a, b, c);
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void compress_portable(uint32_t* state, const uint8_t* data, size_t blocks) {
    for (size_t i = 0; i < blocks; ++i) compress_block(state, data + 64 * i);
}

void store_name_portable(const uint32_t* state, uint8_t* out) {
    for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
}

}  // namespace

Sha256 portable_sha256() {
    return {"portable", compress_portable, nullptr, store_name_portable};
}

#if defined(__x86_64__)

namespace {

#define KVCANON_SHA_NI __attribute__((target("sha,sse4.1"), always_inline)) inline

// Turn the bytes of each of four words round: the hash is defined for big endian words.
KVCANON_SHA_NI __m128i swap_bytes(__m128i words) {
    return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

// One message between two blocks. The instructions want its eight words as two vectors, and from
// the highest lane to the lowest they read a b e f and c d g h.
struct Lanes {
    __m128i abef;
    __m128i cdgh;
};

KVCANON_SHA_NI Lanes load_lanes(const uint32_t* state) {
    const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
    const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1);
    const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    return {_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xF0)};
}

KVCANON_SHA_NI void store_lanes(const Lanes& lanes, uint32_t* state) {
    const __m128i feba = _mm_shuffle_epi32(lanes.abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(lanes.cdgh, 0xB1);
    const __m128i dcba = _mm_blend_epi16(feba, dchg, 0xF0);
    const __m128i hgfe = _mm_alignr_epi8(dchg, feba, 8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state), dcba);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), hgfe);
}

// The next 16 words of a message, and from there on the 16 words of its schedule that are in use:
// four vectors, of which `words[i % 4]` holds those of rounds 4 i to 4 i + 3.
struct Schedule {
    __m128i words[4];
};

KVCANON_SHA_NI Schedule load_schedule(const uint8_t* block) {
    Schedule schedule;
    for (int i = 0; i < 4; ++i) {
        const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + i);
        schedule.words[i] = swap_bytes(loaded);
    }
    return schedule;
}

// Rounds 4 i to 4 i + 3, where `group` is i; the words that they used make room for those of 16
// rounds later.
KVCANON_SHA_NI void four_rounds(Lanes& lanes, Schedule& schedule, int group) {
    const __m128i constants =
        _mm_load_si128(reinterpret_cast<const __m128i*>(ROUND_CONSTANTS) + group);
    __m128i& oldest = schedule.words[group % 4];
    const __m128i next = schedule.words[(group + 1) % 4];
    const __m128i last = schedule.words[(group + 3) % 4];
    const __m128i added = _mm_add_epi32(oldest, constants);
    lanes.cdgh = _mm_sha256rnds2_epu32(lanes.cdgh, lanes.abef, added);
    lanes.abef = _mm_sha256rnds2_epu32(lanes.abef, lanes.cdgh, _mm_shuffle_epi32(added, 0x0E));
    if (group >= 12) return;
    const __m128i seventh = _mm_alignr_epi8(last, schedule.words[(group + 2) % 4], 4);
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(oldest, next), seventh);
    oldest = _mm_sha256msg2_epu32(sum, last);
}

KVCANON_SHA_NI void add_lanes(Lanes& lanes, const Lanes& before) {
    lanes.abef = _mm_add_epi32(lanes.abef, before.abef);
    lanes.cdgh = _mm_add_epi32(lanes.cdgh, before.cdgh);
}

__attribute__((target("sha,sse4.1"))) void compress_sha_ni(uint32_t* state, const uint8_t* data,
                                                           size_t blocks) {
    Lanes lanes = load_lanes(state);
    for (size_t block = 0; block < blocks; ++block) {
        const Lanes before = lanes;
        Schedule schedule = load_schedule(data + 64 * block);
#pragma GCC unroll 16
        for (int group = 0; group < 16; ++group) four_rounds(lanes, schedule, group);
        add_lanes(lanes, before);
    }
    store_lanes(lanes, state);
}

// Each round waits for the one before it, so the rounds of a second message fit in between.
__attribute__((target("sha,sse4.1"))) void compress_two_sha_ni(uint32_t* state_0,
                                                               const uint8_t* data_0,
                                                               uint32_t* state_1,
                                                               const uint8_t* data_1,
                                                               size_t blocks) {
    Lanes lanes_0 = load_lanes(state_0);
    Lanes lanes_1 = load_lanes(state_1);
    for (size_t block = 0; block < blocks; ++block) {
        const Lanes before_0 = lanes_0;
        const Lanes before_1 = lanes_1;
        Schedule schedule_0 = load_schedule(data_0 + 64 * block);
        Schedule schedule_1 = load_schedule(data_1 + 64 * block);
#pragma GCC unroll 16
        for (int group = 0; group < 16; ++group) {
            four_rounds(lanes_0, schedule_0, group);
            four_rounds(lanes_1, schedule_1, group);
        }
        add_lanes(lanes_0, before_0);
        add_lanes(lanes_1, before_1);
    }
    store_lanes(lanes_0, state_0);
    store_lanes(lanes_1, state_1);
}

// A name is read again as two vectors, at once, so it is written as two.
__attribute__((target("sha,sse4.1"))) void store_name_sha_ni(const uint32_t* state, uint8_t* out) {
    for (int i = 0; i < 2; ++i) {
        const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state) + i);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + i, swap_bytes(words));
    }
}

#undef KVCANON_SHA_NI

}  // namespace

bool has_sha_ni() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return false;
    // SSSE3 and SSE4.1 come with every processor that has SHA, but a virtual machine may hide them.
    if ((ecx & bit_SSSE3) == 0 || (ecx & bit_SSE4_1) == 0) return false;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_SHA) != 0;
}

Sha256 sha_ni_sha256() {
    return {"sha_ni", compress_sha_ni, compress_two_sha_ni, store_name_sha_ni};
}

#endif

const std::vector<Sha256>& sha256_ways() {
    static const std::vector<Sha256> ways = [] {
        std::vector<Sha256> found;
#if defined(__x86_64__)
        if (has_sha_ni()) found.push_back(sha_ni_sha256());
#endif
        found.push_back(portable_sha256());
        return found;
    }();
    return ways;
}

}  // namespace kvcanon
