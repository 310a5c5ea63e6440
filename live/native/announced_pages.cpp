#include "announced_pages.hpp"

#include <cstring>
#include <utility>

namespace kvcanon {

namespace {

uint64_t name_of(const Origin& origin, const uint32_t* words, size_t count) {
    uint8_t digest[HASH_BYTES];
    hash_pages(origin.bytes.data(), origin.length, words, count, 1, digest);
    uint64_t name = 0;
    std::memcpy(&name, digest, sizeof name);
    return name;
}

}  // namespace

Origin Origin::of_page(uint64_t key) {
    Origin origin;
    std::memcpy(origin.bytes.data(), &key, sizeof key);
    origin.length = HASH_BYTES;
    return origin;
}

void AnnouncedPages::note(const Origin& origin, const uint32_t* words, size_t count, uint64_t key) {
    recent_[name_of(origin, words, count)] = key;
    if (recent_.size() < MOST_RECENT) return;
    older_ = std::move(recent_);
    recent_ = Keys();
}

std::optional<uint64_t> AnnouncedPages::find(const Origin& origin, const uint32_t* words,
                                             size_t count) const {
    const uint64_t name = name_of(origin, words, count);
    for (const Keys* keys : {&recent_, &older_}) {
        const auto found = keys->find(name);
        if (found != keys->end()) return found->second;
    }
    return std::nullopt;
}

}  // namespace kvcanon
