#include "slot_set.hpp"

namespace kvcanon {

size_t SlotSet::next_word(size_t word) const {
    if (word >= words_.size()) return words_.size();
    size_t at = word >> 6;
    uint64_t bits = summary_[at] & (~uint64_t{0} << (word & 63));
    while (bits == 0) {
        if (++at == summary_.size()) return words_.size();
        bits = summary_[at];
    }
    return (at << 6) + static_cast<size_t>(__builtin_ctzll(bits));
}

void SlotSet::append_or_undo(Run run, Runs& taken) {
    try {
        taken.append(run);
    } catch (...) {
        add(taken);
        throw;
    }
}

Runs SlotSet::take(int32_t count) {
    assert(0 <= count && count <= size_);
    Runs taken;
    if (count == 0) return taken;
    size_t word = first_word_;
    while (count > 0) {
        word = next_word(word);
        assert(word < words_.size());
        const uint64_t bits = words_[word];
        const int first = __builtin_ctzll(bits);
        const uint64_t after = ~(bits >> first);
        const int32_t length = after == 0 ? 64 - first : __builtin_ctzll(after);
        const Run run{static_cast<Slot>(word * 64 + first), std::min(count, length)};
        append_or_undo(run, taken);
        remove(run);
        count -= run.size;
    }
    first_word_ = word;
    assert(size_ >= 0 && taken.slots() != 0);
    return taken;
}

std::vector<Slot> SlotSet::list() const {
    std::vector<Slot> slots;
    slots.reserve(static_cast<size_t>(size_));
    for (size_t word = next_word(0); word < words_.size(); word = next_word(word + 1)) {
        for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
            slots.push_back(static_cast<Slot>(word * 64 + __builtin_ctzll(bits)));
        }
    }
    return slots;
}

}  // namespace kvcanon
