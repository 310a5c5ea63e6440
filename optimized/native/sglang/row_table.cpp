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
// Slots that are looked at as one where they follow each other, as most do.
constexpr int64_t STRETCH = 256;
// Places that are allocated at once.
constexpr int32_t CHUNK = 16;

// Throws: BadArgument for a number out of range.
void check_slots(const int64_t* slots, int64_t count) {
    if (all_bits(slots, count) <= static_cast<uint64_t>(MOST)) return;
    throw BadArgument("slots", "must be integers in 0 .. " + std::to_string(MOST));
}

// Whether slots follow each other, and none is out of range.
bool is_run(const int64_t* slots, int64_t count) {
    return 0 <= slots[0] && slots[0] <= MOST - count + 1 && follow_each_other(slots, count);
}

}  // namespace

RowTable::RowTable(int64_t rows, int64_t page_size) : rows_(rows), page_size_(page_size) {
    if (rows < 0) throw BadArgument("rows", "is " + std::to_string(rows) + "; at least 0");
    if (page_size < 1) {
        throw BadArgument("page_size", "is " + std::to_string(page_size) + "; at least 1");
    }
    if (rows > MOST / page_size) {
        throw BadArgument("rows", "is " + std::to_string(rows) + ": pages of " +
                                      std::to_string(page_size) +
                                      " tokens would have more slots than 31 bits can number");
    }
    entries_.reset(static_cast<int32_t*>(std::calloc(static_cast<size_t>(rows) + 1, 4)));
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
    if (page_size_ == 1) {
        put_single(rows, slots);
        return;
    }
    // All are looked at before any is written, so that a number out of range changes nothing.
    look_at(rows, slots);
    for (const Part& part : parts_) {
        for (int64_t row = part.row; row != part.row + part.pages; ++row, slots += page_size_) {
            if (part.is_run) {
                set_first(row, slots[0]);
            } else {
                set_every(row, slots);
            }
        }
    }
}

void RowTable::put_single(const Runs& rows, const int64_t* slots) {
    check_slots(slots, rows.slots());
    for (const Run& run : rows) {
        narrow(slots, run.size, reinterpret_cast<uint32_t*>(&entries_[run.begin]));
        slots += run.size;
    }
}

void RowTable::look_at(const Runs& rows, const int64_t* slots) {
    parts_.clear();
    const int64_t stretch = STRETCH / page_size_;
    // Up to where stretches were tried: no slot is looked at in more than two of them.
    const int64_t* tried = nullptr;
    for (const Run& run : rows) {
        int64_t row = run.begin;
        const int64_t end = row + run.size;
        while (row != end) {
            Part part{row, 1, true};
            if (stretch > 1 && end - row >= stretch && slots >= tried) {
                tried = slots + stretch * page_size_;
                if (is_run(slots, stretch * page_size_)) part.pages = stretch;
            }
            if (part.pages == 1 && !is_run(slots, page_size_)) {
                check_slots(slots, page_size_);
                part.is_run = false;
            }
            parts_.push_back(part);
            row += part.pages;
            slots += part.pages * page_size_;
        }
    }
}

void RowTable::set_first(int64_t row, int64_t slot) {
    int32_t& entry = entries_[row];
    if (entry < 0) unused_.push_back(-1 - entry);
    entry = static_cast<int32_t>(slot + 1);
}

void RowTable::set_every(int64_t row, const int64_t* slots) {
    if (entries_[row] >= 0) entries_[row] = -1 - new_place();
    narrow(slots, page_size_, reinterpret_cast<uint32_t*>(every_slot(entries_[row])));
}

int32_t RowTable::new_place() {
    if (unused_.empty()) {
        // So that no later call needs memory to give a place up.
        unused_.reserve(static_cast<size_t>(places_) + CHUNK);
        chunks_.push_back(std::make_unique<int32_t[]>(static_cast<size_t>(CHUNK * page_size_)));
        for (int32_t i = CHUNK; i != 0; --i) unused_.push_back(places_ + i - 1);
        places_ += CHUNK;
    }
    const int32_t place = unused_.back();
    unused_.pop_back();
    return place;
}

int32_t* RowTable::every_slot(int32_t entry) const {
    const int32_t place = -1 - entry;
    return chunks_[static_cast<size_t>(place / CHUNK)].get() + place % CHUNK * page_size_;
}

void RowTable::get(const Runs& rows, int64_t* out) const {
    check(rows);
    for (const Run& run : rows) {
        if (page_size_ == 1) {
            widen(&entries_[run.begin], run.size, out);
            out += run.size;
            continue;
        }
        int64_t row = run.begin;
        const int64_t end = row + run.size;
        while (row != end) {
            const int32_t entry = entries_[row++];
            int64_t count = page_size_;
            if (entry > 0) {
                const int64_t first = int64_t{entry} - 1;
                // The slots of many pages mostly follow each other.
                for (; row != end && entries_[row] == first + count + 1; ++row) count += page_size_;
                count_up(first, count, out);
            } else if (entry < 0) {
                widen(every_slot(entry), count, out);
            } else {
                std::fill_n(out, count, 0);
            }
            out += count;
        }
    }
}

}  // namespace kvcanon
