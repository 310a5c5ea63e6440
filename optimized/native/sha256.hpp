// Names of pages: chains of SHA-256, as kvcanon.spec.hashing defines them.
//
// The hash of a page is SHA-256 over the hash of the page before it and its own tokens, each a
// 32-bit word, little endian. The first page of a chain follows the seed of its namespace.
//
// One chain cannot run in parallel, since each page needs the hash of the page before. But the
// processor's SHA instructions mostly wait for each other, so two independent chains take hardly
// longer than one. That is why jobs come in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcanon {

constexpr size_t HASH_BYTES = 32;

// A chain of hashes to compute: where its pages are, and where the hashes go.
struct HashJob {
    const uint8_t* seed;  // The namespace's seed, or the name of the page before the first.
    size_t seed_len;      // 0 or NAME_BYTES.
    const uint32_t* words;
    size_t words_per_page;
    size_t pages;
    uint8_t* out;  // NAME_BYTES for each page.
};

struct HashWay;

// The implementations of SHA-256 that this processor can run, the fastest first; the last is plain
// C++.
const std::vector<HashWay>& hash_ways();

// Compute the page hashes of one chain.
void hash_pages(const uint8_t* seed, size_t seed_len, const uint32_t* words, size_t words_per_page,
                size_t pages, uint8_t* out);

// Compute the page hashes of several chains, none of which continues another.
void hash_pages_batch(const HashJob* jobs, size_t count);

// The same with one implementation, so that tests can compare them.
void hash_pages_batch(const HashWay& way, const HashJob* jobs, size_t count);

}  // namespace kvcanon
