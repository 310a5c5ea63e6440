// The pages that a stream announced, found by the page before them and their tokens.
//
// Engines compute hashes in ways of their own, so a prompt's pages cannot be found by a hash of the
// prompt. They are remembered as they were announced, beyond the time for which they are cached: a
// page can come back by an event without tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "sha256.hpp"

namespace kvcanon {

// What a page follows: the seed of a namespace, or the key of the page before it.
struct Origin {
    std::array<uint8_t, HASH_BYTES> bytes{};
    // 0 for the first page of the default namespace.
    size_t length = 0;

    static Origin of_page(uint64_t key);
};

class AnnouncedPages {
  public:
    // The page that follows `origin` with these tokens has this key.
    void note(const Origin& origin, const uint32_t* words, size_t count, uint64_t key);
    std::optional<uint64_t> find(const Origin& origin, const uint32_t* words, size_t count) const;

  private:
    using Keys = std::unordered_map<uint64_t, uint64_t>;
    // Once so many are recent, they are the older ones, and those before them are forgotten.
    static constexpr size_t MOST_RECENT = size_t{1} << 19;

    Keys recent_, older_;
};

}  // namespace kvcanon
