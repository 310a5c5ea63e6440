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

Slot SlotSet::find_together(int32_t count) const {
    // Words that are looked at: so that a call takes no longer in a large pool.
    constexpr int MOST = 4096;
    int64_t begin = 0, length = 0;
    size_t after = 0;
    size_t word = next_word(first_word_);
    for (int looked = 0; word < words_.size() && looked < MOST; ++looked) {
        if (word != after) length = 0;
        uint64_t bits = words_[word];
        for (int at = 0; at < 64;) {
            if (bits == 0) {
                length = 0;
                break;
            }
            const int gap = __builtin_ctzll(bits);
            if (gap != 0) length = 0;
            bits >>= gap;
            at += gap;
            if (length == 0) begin = static_cast<int64_t>(word) * 64 + at;
            const uint64_t rest = ~bits;
            const int ones = rest == 0 ? 64 : __builtin_ctzll(rest);
            length += ones;
            if (length >= count) return static_cast<Slot>(begin);
            at += ones;
            bits = ones == 64 ? 0 : bits >> ones;
        }
        after = word + 1;
        word = next_word(after);
    }
    return -1;
}

Runs SlotSet::take(int32_t count) {
    assert(0 <= count && count <= size_);
    Runs taken;
    if (count == 0) return taken;
    const Slot together = together_ ? find_together(count) : -1;
    if (together >= 0) {
        const Run run{together, count};
        taken.append(run);
        remove(run);
        return taken;
    }
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
