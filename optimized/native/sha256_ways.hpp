// What the implementations of SHA-256 share: their jobs, and the layout of the message.
//
// The message of a page is the hash before it, if there is one, and its words, then one bit, zeros,
// and its length in bits, up to a whole number of blocks. Each part begins at a 32-bit word, so a
// message is never built byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sha256.hpp"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Tokens are hashed as they lie in memory, so the processor must be little endian."
#endif

namespace kvcanon {

// Consecutive pages of a chain. A run without a parent has one page.
struct HashRun {
    const uint8_t* parent;  // The name of the page before the first, or null.
    const uint32_t* words;
    uint8_t* out;
};

struct HashWay {
    const char* name;
    void (*one)(const HashRun& run, size_t words_per_page, size_t pages);
    // Two runs at once; null where that is no faster than one after the other.
    void (*two)(const HashRun& first, const HashRun& second, size_t words_per_page, size_t pages);
};

constexpr size_t WORDS_PER_HASH = 8;
constexpr size_t WORDS_PER_BLOCK = 16;

// The position of each part in a message, counted in words.
struct MessageLayout {
    size_t page_begin;
    size_t page_end;  // Here stands the bit that ends the message, as the highest of its word.
    size_t blocks;
    uint64_t bits;  // In the last two words, the higher half first.

    MessageLayout(bool has_parent, size_t words_per_page)
        : page_begin(has_parent ? WORDS_PER_HASH : 0),
          page_end(page_begin + words_per_page),
          blocks((page_end + 1 + 2 + WORDS_PER_BLOCK - 1) / WORDS_PER_BLOCK),
          bits(uint64_t{page_end} * 32) {}
};

constexpr uint32_t END_OF_MESSAGE = 0x80000000;

// Reverse the bytes of a word: SHA-256 reads and stores words with the highest byte first.
constexpr uint32_t swap_bytes(uint32_t word) {
    word = (word & 0x00ff00ff) << 8 | (word >> 8 & 0x00ff00ff);
    return word << 16 | word >> 16;
}

// Word `at` of a message, from where its page begins.
inline uint32_t word_after_name(const MessageLayout& layout, size_t at, const uint32_t* page) {
    if (at < layout.page_end) return swap_bytes(page[at - layout.page_begin]);
    if (at == layout.page_end) return END_OF_MESSAGE;
    const size_t end = layout.blocks * WORDS_PER_BLOCK;
    if (at == end - 2) return static_cast<uint32_t>(layout.bits >> 32);
    if (at == end - 1) return static_cast<uint32_t>(layout.bits);
    return 0;
}

// FIPS 180-4, sections 5.3.3 and 4.2.2.
constexpr uint32_t INITIAL_STATE[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

alignas(16) constexpr uint32_t ROUND_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Plain C++, for every processor.
HashWay portable_way();

#if defined(__x86_64__)
// The SHA extensions of x86-64.
bool has_sha_ni();
HashWay sha_ni_way();
#elif defined(__aarch64__) && defined(__linux__)
// The SHA-2 instructions of Armv8.
bool has_armv8_sha2();
HashWay armv8_sha2_way();
#endif

}  // namespace kvcanon
