// The pages of a host tier by key: an open-addressed table over an arena of pages.
//
// A host has pages by the hundred thousand, and a look-up is as slow as the memory that it waits
// for: one place of the table, and the page with its key.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "chunked_array.hpp"

namespace kvcanon {

constexpr int32_t NOWHERE = -1;

// The hash of a block, and four bytes of its group, the highest first.
class PageKey {
  public:
    static constexpr size_t GROUP_BYTES = 4, MOST_HASH_BYTES = 32;

    PageKey() = default;
    // Throws: BadArgument for a hash of more bytes.
    PageKey(std::string_view hash, uint32_t group);

    std::string_view bytes() const { return {bytes_.data(), size_}; }
    std::string_view hash() const { return bytes().substr(0, size_ - GROUP_BYTES); }
    uint32_t group() const;

  private:
    std::array<char, MOST_HASH_BYTES + GROUP_BYTES> bytes_;
    uint8_t size_ = 0;
};

// A page whose bytes are in a block or in a row: one line of the processor's cache.
struct alignas(64) HashedPage {
    PageKey key;
    // Whether its row has its bytes, on all ranks.
    bool is_on_host = false;
    // Whether a request has used it on the device since it got its row, or that was used.
    bool is_used = false;
    // How many blocks hold it, and the last that was learnt of, if that still does.
    int32_t blocks = 0;
    int32_t block = NOWHERE;
    // Where it is on the host, or is being copied to.
    int32_t row = NOWHERE;
    // What a caller wants to know again of it: its place in a prompt, and an object of that.
    int32_t place = 0;
    nanobind::object prompt;
};

static_assert(sizeof(HashedPage) == 64, "a page is one line of the cache");

class PageTable {
  public:
    // Have places for so many pages, so that no call pays for the size of the table.
    void reserve(size_t pages);

    // The page of a key, or nullptr. It stays where it is until it is erased.
    HashedPage* find(const PageKey& key);
    HashedPage& find_or_add(const PageKey& key);
    // Begin to read what a look-up of this key reads, for one that soon follows.
    void prefetch(const PageKey& key) const;
    void erase(HashedPage& page);

    // All pages, in no order.
    template <typename Visit>
    void each(Visit visit) const {
        for (const Place& place : places_) {
            if (place.page != NO_PAGE) visit(pages_[place.page]);
        }
    }

  private:
    static constexpr uint32_t NO_PAGE = 0xffffffff;
    struct Place {
        // Most places that a look-up passes by have another hash; their pages are not read.
        uint32_t key_hash = 0;
        uint32_t page = NO_PAGE;
    };

    size_t mask() const { return places_.size() - 1; }
    // The place of a key, or the free one where it belongs.
    size_t place_of(const PageKey& key, uint32_t key_hash) const;
    void grow();

    // A power of two, of which at most half are used.
    std::vector<Place> places_ = std::vector<Place>(64);
    size_t size_ = 0;
    ChunkedArray<HashedPage> pages_;
    std::vector<uint32_t> unused_;
};

}  // namespace kvcanon
