#include "namespaces.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace kvcanon {

std::optional<uint32_t> Namespaces::find(const std::string& encoded) const {
    const auto found = ids_.find(encoded);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

std::vector<int64_t> Namespaces::next_forgotten() const {
    std::vector<int64_t> numbers;
    if (idle_ >= MOST_IDLE) numbers.push_back(number_of(first_));
    if (idle_ > MOST_IDLE) numbers.push_back(number_of(entries_[first_].next));
    return numbers;
}

uint32_t Namespaces::add(const std::string& encoded, const uint8_t* seed, size_t seed_bytes) {
    assert(!find(encoded));
    Entry added;
    added.encoded = encoded;
    std::memcpy(added.seed, seed, seed_bytes);
    added.seed_bytes = static_cast<uint8_t>(seed_bytes);
    const bool full = idle_ >= MOST_IDLE, over_full = idle_ > MOST_IDLE;
    const bool grows = !full && unused_ == NOBODY;
    const uint32_t index = full ? first_ : grows ? static_cast<uint32_t>(entries_.size()) : unused_;
    const auto place = ids_.emplace(encoded, index).first;
    if (grows) {
        added.generation = first_generation_;
        try {
            entries_.push_back(std::move(added));
        } catch (...) {
            ids_.erase(place);
            throw;
        }
    } else {
        if (over_full) forget(entries_[index].next);
        if (full) forget(index);
        unused_ = entries_[index].next;
        added.generation = entries_[index].generation;
        entries_[index] = std::move(added);
    }
    if (index != 0) join(index);
    return index;
}

void Namespaces::seed_storage(uint32_t index, const uint8_t* seed, size_t seed_bytes) {
    Entry& entry = entries_[index];
    std::memcpy(entry.storage_seed, seed, seed_bytes);
    entry.storage_seed_bytes = static_cast<uint8_t>(seed_bytes);
}

void Namespaces::forget_idle() {
    while (first_ != NOBODY) forget(first_);
    if (size() > 1) return;
    // Only the default namespace is left: give the memory back. Old numbers stay invalid, because
    // the indices begin with a generation that none of them had.
    for (const Entry& entry : entries_) {
        first_generation_ = std::max(first_generation_, entry.generation);
    }
    std::deque<Entry> kept(
        entries_.begin(),
        entries_.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(1, entries_.size())));
    entries_.swap(kept);
    unused_ = NOBODY;
}

std::optional<uint32_t> Namespaces::index_of(int64_t number) const {
    if (number < 0) return std::nullopt;
    const auto index = static_cast<uint32_t>(number);
    if (index >= entries_.size() || number != number_of(index)) return std::nullopt;
    if (index != 0 && entries_[index].encoded.empty()) return std::nullopt;
    return index;
}

void Namespaces::join(uint32_t index) {
    Entry& entry = entries_[index];
    entry.previous = last_;
    entry.next = NOBODY;
    (last_ != NOBODY ? entries_[last_].next : first_) = index;
    last_ = index;
    ++idle_;
}

void Namespaces::leave(uint32_t index) {
    Entry& entry = entries_[index];
    (entry.previous != NOBODY ? entries_[entry.previous].next : first_) = entry.next;
    (entry.next != NOBODY ? entries_[entry.next].previous : last_) = entry.previous;
    entry.previous = entry.next = NOBODY;
    --idle_;
}

void Namespaces::forget(uint32_t index) {
    assert(index != 0 && entries_[index].spans == 0);
    leave(index);
    Entry& entry = entries_[index];
    ids_.erase(entry.encoded);
    std::string().swap(entry.encoded);
    ++entry.generation;
    entry.next = unused_;
    unused_ = index;
}

}  // namespace kvcanon
