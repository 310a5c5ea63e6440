#include "row_table.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "errors.hpp"

namespace kvcanon {

namespace {

constexpr int64_t MOST = std::numeric_limits<int32_t>::max();
constexpr int64_t LEAST_BLOCK = 16;
// Places that are allocated at once.
constexpr int32_t CHUNK = 16;

// Call with a count that is mostly the same, so that there is code for this one alone.
template <typename Work>
inline auto with_count(int64_t count, Work work) {
    return count == LEAST_BLOCK ? work(LEAST_BLOCK) : work(count);
}

// Whether slots follow each other. The loop has no branches, so that it becomes vector code.
template <typename Number>
inline bool follow_each_other(const Number* slots, int64_t count) {
    // Unsigned: no sum can overflow.
    const auto first = static_cast<uint64_t>(slots[0]);
    uint64_t differs = 0;
    for (int64_t i = 0; i < count; ++i) {
        differs |= static_cast<uint64_t>(slots[i]) ^ (first + static_cast<uint64_t>(i));
    }
    return differs == 0;
}

template <typename Number>
void check_slots(const Number* slots, int64_t count) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; ++i) all |= static_cast<uint64_t>(slots[i]);
    if (all <= static_cast<uint64_t>(MOST)) return;
    throw BadArgument("slots", "must be integers in 0 .. " + std::to_string(MOST));
}

}  // namespace

RowTable::RowTable(int64_t rows, int64_t page_size)
    : rows_(rows),
      page_size_(page_size),
      block_size_(page_size < 1 ? 1 : page_size * ((LEAST_BLOCK - 1) / page_size + 1)) {
    if (rows < 0) throw BadArgument("rows", "is " + std::to_string(rows) + "; at least 0");
    if (page_size < 1) {
        throw BadArgument("page_size", "is " + std::to_string(page_size) + "; at least 1");
    }
    if (rows > MOST / page_size) {
        throw BadArgument("rows", "is " + std::to_string(rows) + ": pages of " +
                                      std::to_string(page_size) +
                                      " tokens would have more slots than 31 bits can number");
    }
    const int64_t blocks = rows * page_size / block_size_ + 1;
    entries_.reset(static_cast<int32_t*>(std::calloc(static_cast<size_t>(blocks), 4)));
    if (entries_ == nullptr) throw std::bad_alloc();
}

void RowTable::check(const Runs& rows) const {
    for (const Run& run : rows) {
        if (run.begin >= 0 && run.begin + int64_t{run.size} <= rows_) continue;
        throw BadArgument("rows", "end at " + std::to_string(run.begin + int64_t{run.size}) +
                                      "; the table has " + std::to_string(rows_) + " rows");
    }
}

template <typename Number>
void RowTable::put(const Runs& rows, const Number* slots) {
    check(rows);
    check_slots(slots, rows.slots() * page_size_);
    for (const Run& run : rows) {
        int64_t block = run.begin * page_size_ / block_size_;
        int64_t from = run.begin * page_size_ % block_size_;
        for (int64_t left = run.size * page_size_; left != 0; ++block, from = 0) {
            const int64_t count = std::min(left, block_size_ - from);
            put_in_block(block, from, count, slots);
            slots += count;
            left -= count;
        }
    }
}

template void RowTable::put(const Runs& rows, const int32_t* slots);
template void RowTable::put(const Runs& rows, const int64_t* slots);

template <typename Number>
void RowTable::put_in_block(int64_t block, int64_t from, int64_t count, const Number* slots) {
    int32_t& entry = entries_[block];
    const int64_t first = int64_t{slots[0]} - from;
    const bool is_run = 0 <= first && first < MOST &&
                        with_count(count, [&](int64_t n) { return follow_each_other(slots, n); });
    const bool is_whole = count == block_size_;
    if (is_run && (is_whole || entry == 0 || entry == first + 1)) {
        if (entry < 0) unused_.push_back(-1 - entry);
        entry = static_cast<int32_t>(first + 1);
        return;
    }
    if (entry >= 0) scatter(block);
    int32_t* every = every_slot(entry) + from;
    for (int64_t i = 0; i < count; ++i) every[i] = static_cast<int32_t>(slots[i]);
}

void RowTable::scatter(int64_t block) {
    if (unused_.empty()) {
        // So that no later call needs memory to give a place up.
        unused_.reserve(static_cast<size_t>(places_) + CHUNK);
        chunks_.push_back(std::make_unique<int32_t[]>(static_cast<size_t>(CHUNK * block_size_)));
        for (int32_t i = CHUNK; i != 0; --i) unused_.push_back(places_ + i - 1);
        places_ += CHUNK;
    }
    int32_t& entry = entries_[block];
    const int64_t first = entry == 0 ? 0 : entry - 1, step = entry == 0 ? 0 : 1;
    entry = -1 - unused_.back();
    unused_.pop_back();
    int32_t* every = every_slot(entry);
    // Slots that nothing was put to may be too large for 31 bits.
    for (int64_t i = 0; i < block_size_; ++i) {
        every[i] = static_cast<int32_t>(std::min(first + i * step, MOST));
    }
}

int32_t* RowTable::every_slot(int32_t entry) const {
    const int32_t place = -1 - entry;
    return chunks_[static_cast<size_t>(place / CHUNK)].get() + place % CHUNK * block_size_;
}

void RowTable::get(const Runs& rows, int64_t* out) const {
    check(rows);
    for (const Run& run : rows) {
        int64_t block = run.begin * page_size_ / block_size_;
        int64_t from = run.begin * page_size_ % block_size_;
        for (int64_t left = run.size * page_size_; left != 0; ++block, from = 0) {
            const int32_t entry = entries_[block];
            const int64_t count = std::min(left, block_size_ - from);
            if (entry > 0) {
                const int64_t first = int64_t{entry} - 1 + from;
                with_count(count, [&](int64_t n) {
                    for (int64_t i = 0; i < n; ++i) out[i] = first + i;
                });
            } else if (entry < 0) {
                const int32_t* every = every_slot(entry) + from;
                with_count(count, [&](int64_t n) {
                    for (int64_t i = 0; i < n; ++i) out[i] = every[i];
                });
            } else {
                std::fill_n(out, count, 0);
            }
            out += count;
            left -= count;
        }
    }
}

}  // namespace kvcanon
