// The lists of an event, hashes and tokens, as MessagePack in SGLang's dialect.
//
// They are written straight from the tree's spans to memory that has room for them. Each function
// that writes returns where the list ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcanon {

// The first eight bytes, the highest first.
uint64_t eight_bytes(const uint8_t* bytes);

// A page's hash as SGLang sends it: its first 64 bits, with a sign.
int64_t sent_hash(const uint8_t* hash);

// Memory that a list of so many hashes needs at most.
size_t most_hash_bytes(size_t count);

// Write `count` hashes, of which each is `step` bytes after the one before.
uint8_t* put_hashes(uint8_t* at, const uint8_t* first, size_t count, ptrdiff_t step);

// Memory that a list of so many tokens, or bigrams of two words, needs at most.
size_t most_token_bytes(size_t units, size_t unit_words);

// Write tokens, or bigrams of two words.
uint8_t* put_tokens(uint8_t* at, const uint32_t* word, size_t units, size_t unit_words);

}  // namespace kvcanon
