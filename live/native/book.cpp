#include "book.hpp"

namespace kvcanon {

void KeyMarks::note(uint64_t key) {
    if (marks_.empty()) marks_.resize(FEW);
    if (++noted_ > FEW && marks_.size() == FEW) marks_.assign(MANY, 0);
    marks_[key & (marks_.size() - 1)] = mark_of(key);
}

bool KeyMarks::has(uint64_t key) const {
    return !marks_.empty() && marks_[key & (marks_.size() - 1)] == mark_of(key);
}

std::vector<uint16_t> Book::tiers_of(Origin seed, const std::vector<uint32_t>& tokens) {
    std::vector<uint16_t> tiers;
    const auto size = static_cast<size_t>(block_size);
    for (size_t at = 0; size != 0 && at + size <= tokens.size(); at += size) {
        const auto key = announced.find(seed, tokens.data() + at, size);
        if (!key) break;
        const Block* block = table.find(*key);
        if (block == nullptr) break;
        tiers.push_back(block->tiers);
        seed = Origin::of_page(*key);
    }
    return tiers;
}

bool Book::take_copy(uint64_t key, int tier) {
    auto& copies = copies_[static_cast<size_t>(tier)];
    const auto found = copies.find(key);
    if (found == copies.end()) return false;
    if (--found->second == 0) copies.erase(found);
    return true;
}

void Book::forget_copies() {
    for (auto& copies : copies_) copies.clear();
}

size_t Book::bytes() const {
    // A node of the map of copies: its key, its count, a link and what the allocator adds.
    constexpr size_t COPY_BYTES = 40;
    size_t total = table.bytes() + departed.bytes() + reported.bytes();
    for (const auto& copies : copies_) total += copies.size() * COPY_BYTES;
    return total;
}

}  // namespace kvcanon
