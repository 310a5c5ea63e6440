// Names of pages: chains of SHA-256, as kvcanon.spec.hashing defines them.
//
// The name of a page is SHA-256 over the name of the page before it and its own tokens, each a
// 32-bit word, little endian. The first page of a chain follows the seed of its namespace.
//
// What readers get wrong: one chain cannot be made parallel, since each page waits for the name of
// the one before. The processor's SHA instructions wait most of the time, though, so two chains
// that do not depend on each other take hardly longer than one. Hence the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvcanon {

constexpr size_t HASH_BYTES = 32;

// A chain of names that is to be computed: where its pages lie, and where the names go.
struct HashJob {
    const uint8_t* seed;  // The namespace's seed, or the name of the page before the first.
    size_t seed_len;      // 0 or NAME_BYTES.
    const uint32_t* words;
    size_t words_per_page;
    size_t pages;
    uint8_t* out;  // NAME_BYTES for each page.
};

struct HashWay;

// The ways to compute SHA-256 that this processor knows, the fastest first; the last is plain C++.
const std::vector<HashWay>& hash_ways();

// The names of the pages of one chain.
void hash_pages(const uint8_t* seed, size_t seed_len, const uint32_t* words, size_t words_per_page,
                size_t pages, uint8_t* out);

// The names of several chains, none of which follows another's page.
void hash_pages_batch(const HashJob* jobs, size_t count);

// The same in a way of the caller's choice, so that tests can compare them.
void hash_pages_batch(const HashWay& way, const HashJob* jobs, size_t count);

}  // namespace kvcanon
