#include "row_table.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <string>

#include "errors.hpp"
#include "wide_loops.hpp"

namespace kvcanon {

namespace {

constexpr int64_t MOST = std::numeric_limits<int32_t>::max();
constexpr int64_t LEAST_BLOCK = 16;
// Slots that are looked at as one where they follow each other, as most do.
constexpr int64_t STRETCH = 16 * LEAST_BLOCK;
// Places that are allocated at once.
constexpr int32_t CHUNK = 16;

// Throws: BadArgument for a number out of range.
void check_slots(const int64_t* slots, int64_t count) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; ++i) all |= static_cast<uint64_t>(slots[i]);
    if (all <= static_cast<uint64_t>(MOST)) return;
    throw BadArgument("slots", "must be integers in 0 .. " + std::to_string(MOST));
}

// Whether slots follow each other, and are of a block that begins with a slot that an entry can
// have; `from` is where in the block they begin.
bool is_run(const int64_t* slots, int64_t from, int64_t count) {
    const int64_t first = slots[0] - from;
    return 0 <= slots[0] && 0 <= first && first < MOST && slots[0] <= MOST - count + 1 &&
           follow_each_other(slots, count);
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

void RowTable::put(const Runs& rows, const int64_t* slots) {
    check(rows);
    // All are looked at before any is written, so that a number out of range changes nothing.
    look_at(rows, slots);
    for (const Part& part : parts_) {
        if (part.count <= block_size_) {
            put_in_block(part, slots);
        } else {
            for (int64_t at = 0; at != part.count; at += block_size_) {
                set_first(part.block + at / block_size_, slots[at]);
            }
        }
        slots += part.count;
    }
}

void RowTable::look_at(const Runs& rows, const int64_t* slots) {
    parts_.clear();
    const int64_t stretch = STRETCH / block_size_ * block_size_;
    // Up to where stretches were tried: no slot is looked at in more than two of them.
    const int64_t* tried = nullptr;
    for (const Run& run : rows) {
        int64_t block = run.begin * page_size_ / block_size_;
        int64_t from = run.begin * page_size_ % block_size_;
        for (int64_t left = run.size * page_size_; left != 0; from = 0) {
            Part part{block, from, std::min(left, block_size_ - from), true};
            if (from == 0 && left >= stretch && stretch > block_size_ && slots >= tried) {
                tried = slots + stretch;
                if (is_run(slots, 0, stretch)) part.count = stretch;
            }
            if (part.count <= block_size_ && !is_run(slots, from, part.count)) {
                check_slots(slots, part.count);
                part.is_run = false;
            }
            parts_.push_back(part);
            block += part.count <= block_size_ ? 1 : part.count / block_size_;
            slots += part.count;
            left -= part.count;
        }
    }
}

// Keep the first slot of a block alone.
void RowTable::set_first(int64_t block, int64_t slot) {
    int32_t& entry = entries_[block];
    if (entry < 0) unused_.push_back(-1 - entry);
    entry = static_cast<int32_t>(slot + 1);
}

void RowTable::put_in_block(const Part& part, const int64_t* slots) {
    const int32_t entry = entries_[part.block];
    const int64_t first = slots[0] - part.from;
    if (part.is_run && (part.count == block_size_ || entry == 0 || entry == first + 1)) {
        set_first(part.block, first);
        return;
    }
    if (entry >= 0) scatter(part.block);
    int32_t* every = every_slot(entries_[part.block]) + part.from;
    for (int64_t i = 0; i < part.count; ++i) every[i] = static_cast<int32_t>(slots[i]);
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
        for (int64_t left = run.size * page_size_; left != 0; from = 0) {
            const int32_t entry = entries_[block++];
            int64_t count = std::min(left, block_size_ - from);
            if (entry > 0) {
                const int64_t first = int64_t{entry} - 1 + from;
                // The slots of many blocks mostly follow each other.
                while (count < left && entries_[block] == first + count + 1) {
                    ++block;
                    count += std::min(left - count, block_size_);
                }
                count_up(first, count, out);
            } else if (entry < 0) {
                const int32_t* every = every_slot(entry) + from;
                for (int64_t i = 0; i < count; ++i) out[i] = every[i];
            } else {
                std::fill_n(out, count, 0);
            }
            out += count;
            left -= count;
        }
    }
}

}  // namespace kvcanon
