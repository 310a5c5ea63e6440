// A set of slots of one pool, as a bitmap with a summary: one bit a slot, and one a word of those.
//
// Slots that are freed in any order become neighbours again, so that later allocations are runs.
// The set is not a stack: the lowest slots are taken first, so that a pool that is never full stays
// dense and its end is never touched.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "runs.hpp"

namespace kvcanon {

class SlotSet {
  public:
    // With `together`, consecutive slots are taken where there are enough in a row.
    explicit SlotSet(int32_t capacity = 0, bool together = false)
        : capacity_(capacity),
          together_(together),
          words_((static_cast<size_t>(capacity) + 63) / 64, 0),
          summary_((words_.size() + 63) / 64, 0) {}

    int32_t capacity() const { return capacity_; }
    bool together() const { return together_; }
    int32_t size() const { return size_; }

    bool contains(Slot slot) const {
        return 0 <= slot && slot < capacity_ && ((words_[slot >> 6] >> (slot & 63)) & 1) != 0;
    }

    // Whether every slot of the run is in the set.
    bool contains(Run run) const {
        if (!is_within(run)) return false;
        bool all = true;
        for_words(run, [&](size_t word, uint64_t mask) { all &= (words_[word] & mask) == mask; });
        return all;
    }

    // Add slots, none of which is in the set.
    void add(Run run) {
        assert(is_within(run));
        for_words(run, [&](size_t word, uint64_t mask) {
            assert((words_[word] & mask) == 0);
            words_[word] |= mask;
            summary_[word >> 6] |= uint64_t{1} << (word & 63);
        });
        first_word_ = std::min(first_word_, static_cast<size_t>(run.begin) >> 6);
        size_ += run.size;
    }

    // Remove slots, all of which are in the set.
    void remove(Run run) {
        assert(is_within(run));
        for_words(run, [&](size_t word, uint64_t mask) {
            assert((words_[word] & mask) == mask);
            words_[word] &= ~mask;
            if (words_[word] == 0) summary_[word >> 6] &= ~(uint64_t{1} << (word & 63));
        });
        size_ -= run.size;
    }

    void add(const Runs& runs) {
        for (const Run& run : runs) add(run);
    }

    void remove(const Runs& runs) {
        for (const Run& run : runs) remove(run);
    }

    // Remove the lowest `count` slots and return them, or the lowest that follow each other. The
    // set must have so many. If memory runs out, it keeps them all.
    Runs take(int32_t count);

    // All slots, lowest first.
    std::vector<Slot> list() const;

  private:
    bool is_within(Run run) const {
        return 0 <= run.begin && run.size <= capacity_ && run.begin <= capacity_ - run.size;
    }

    // Append a run to those that were taken; if memory runs out, take these back.
    void append_or_undo(Run run, Runs& taken);

    template <typename Each>
    static void for_words(Run run, Each each) {
        int64_t at = run.begin;
        const int64_t end = at + run.size;
        while (at < end) {
            const int64_t bit = at & 63;
            const int64_t bits = std::min<int64_t>(64 - bit, end - at);
            const uint64_t ones = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
            each(static_cast<size_t>(at >> 6), ones << bit);
            at += bits;
        }
    }

    // The first word from `word` on that is not empty; the number of words where none is.
    size_t next_word(size_t word) const;

    // The first of the lowest `count` slots in a row; -1 where a search of some length finds none.
    Slot find_together(int32_t count) const;

    int32_t capacity_;
    bool together_;
    int32_t size_ = 0;
    // No word before this one has a slot.
    size_t first_word_ = 0;
    std::vector<uint64_t> words_;
    std::vector<uint64_t> summary_;
};

}  // namespace kvcanon
