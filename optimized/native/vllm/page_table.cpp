#include "page_table.hpp"

#include <cstring>
#include <functional>
#include <string>

#include "errors.hpp"

namespace kvcanon {

namespace {

uint32_t hash_of(const PageKey& key) {
    return static_cast<uint32_t>(std::hash<std::string_view>()(key.bytes()));
}

}  // namespace

PageKey::PageKey(std::string_view hash, uint32_t group)
    : size_(static_cast<uint8_t>(hash.size() + GROUP_BYTES)) {
    if (hash.size() > MOST_HASH_BYTES) {
        throw BadArgument("hashes", "has a hash of " + std::to_string(hash.size()) +
                                        " bytes; kvcanon takes at most " +
                                        std::to_string(MOST_HASH_BYTES));
    }
    std::memcpy(bytes_.data(), hash.data(), hash.size());
    for (size_t i = 0; i < GROUP_BYTES; ++i) {
        bytes_[hash.size() + i] = static_cast<char>(group >> (8 * (GROUP_BYTES - 1 - i)) & 0xff);
    }
}

uint32_t PageKey::group() const {
    uint32_t group = 0;
    for (const char byte : bytes().substr(size_ - GROUP_BYTES)) {
        group = group << 8 | static_cast<uint8_t>(byte);
    }
    return group;
}

void PageTable::reserve(size_t pages) {
    while (places_.size() < 2 * pages) grow();
}

HashedPage* PageTable::find(const PageKey& key) {
    const Place& place = places_[place_of(key, hash_of(key))];
    return place.page == NO_PAGE ? nullptr : &pages_[place.page];
}

HashedPage& PageTable::find_or_add(const PageKey& key) {
    const uint32_t key_hash = hash_of(key);
    size_t at = place_of(key, key_hash);
    if (places_[at].page != NO_PAGE) return pages_[places_[at].page];
    if (2 * (size_ + 1) > places_.size()) {
        grow();
        at = place_of(key, key_hash);
    }
    if (unused_.empty()) {
        unused_.push_back(static_cast<uint32_t>(pages_.size()));
        pages_.push_back(HashedPage{});
    }
    const uint32_t number = unused_.back();
    unused_.pop_back();
    places_[at] = {key_hash, number};
    ++size_;
    pages_[number].key = key;
    return pages_[number];
}

void PageTable::prefetch(const PageKey& key) const {
    __builtin_prefetch(&places_[hash_of(key) & mask()]);
}

void PageTable::erase(HashedPage& page) {
    size_t free = place_of(page.key, hash_of(page.key));
    unused_.push_back(places_[free].page);
    page = HashedPage{};
    // What stands behind it, and belongs before, moves up.
    for (size_t at = (free + 1) & mask(); places_[at].page != NO_PAGE; at = (at + 1) & mask()) {
        const size_t home = places_[at].key_hash & mask();
        if (((at - home) & mask()) < ((at - free) & mask())) continue;
        places_[free] = places_[at];
        free = at;
    }
    places_[free] = {};
    --size_;
}

size_t PageTable::place_of(const PageKey& key, uint32_t key_hash) const {
    size_t at = key_hash & mask();
    while (places_[at].page != NO_PAGE && (places_[at].key_hash != key_hash ||
                                           pages_[places_[at].page].key.bytes() != key.bytes())) {
        at = (at + 1) & mask();
    }
    return at;
}

void PageTable::grow() {
    std::vector<Place> before(2 * places_.size());
    places_.swap(before);
    for (const Place& place : before) {
        if (place.page == NO_PAGE) continue;
        size_t at = place.key_hash & mask();
        while (places_[at].page != NO_PAGE) at = (at + 1) & mask();
        places_[at] = place;
    }
}

}  // namespace kvcanon
