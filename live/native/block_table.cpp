#include "block_table.hpp"

#include <cstring>

namespace kvcanon {

size_t BlockTable::home(uint64_t key) const {
    // Hashes of other engines need not be spread evenly.
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15;
    key ^= key >> 29;
    return static_cast<size_t>(key) & (index_.size() - 1);
}

size_t BlockTable::place_of(uint64_t key) const {
    const size_t mask = index_.size() - 1;
    size_t place = home(key);
    while (index_[place] != NOBODY && at(index_[place]).key != key) place = (place + 1) & mask;
    return place;
}

Block* BlockTable::find(uint64_t key) {
    const uint32_t found = index_[place_of(key)];
    return found == NOBODY ? nullptr : &at(found);
}

Block& BlockTable::add(uint64_t key) {
    if ((size_ + 1) * 10 > index_.size() * 7) resize(index_.size() * 2);
    uint32_t block = unused_;
    if (block != NOBODY) {
        unused_ = static_cast<uint32_t>(at(block).key);
    } else {
        if (made_ == chunks_.size() * CHUNK) chunks_.push_back(std::make_unique<Block[]>(CHUNK));
        block = made_++;
    }
    index_[place_of(key)] = block;
    ++size_;
    Block& added = at(block);
    std::memset(&added, 0, sizeof added);
    added.key = key;
    return added;
}

void BlockTable::remove(uint64_t key) {
    const size_t mask = index_.size() - 1;
    size_t empty = place_of(key);
    const uint32_t block = index_[empty];
    if (block == NOBODY) return;
    at(block).key = unused_;
    unused_ = block;
    --size_;
    index_[empty] = NOBODY;
    // What comes after the empty place moves there if a search for it would stop there.
    for (size_t next = (empty + 1) & mask; index_[next] != NOBODY; next = (next + 1) & mask) {
        const size_t wanted = home(at(index_[next]).key);
        if (((next - wanted) & mask) < ((next - empty) & mask)) continue;
        index_[empty] = index_[next];
        index_[next] = NOBODY;
        empty = next;
    }
}

void BlockTable::clear() {
    chunks_.clear();
    index_.assign(FEWEST, NOBODY);
    index_.shrink_to_fit();
    unused_ = NOBODY;
    made_ = 0;
    size_ = 0;
}

void BlockTable::resize(size_t places) {
    std::vector<uint32_t> blocks;
    blocks.swap(index_);
    index_.assign(places, NOBODY);
    for (const uint32_t block : blocks) {
        if (block != NOBODY) index_[place_of(at(block).key)] = block;
    }
}

}  // namespace kvcanon
