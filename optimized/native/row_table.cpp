#include "row_table.hpp"

#include <limits>
#include <new>
#include <string>

#include "errors.hpp"

namespace kvcanon {

namespace {

constexpr int64_t MOST = std::numeric_limits<int32_t>::max();

// Whether the slots of each page follow each other. The loops have no branches, so that they become
// vector code.
template <typename Number>
bool are_whole_runs(const Number* slots, int64_t pages, int64_t page_size) {
    for (int64_t page = 0; page < pages; ++page, slots += page_size) {
        // Unsigned: what a caller gives may be any number.
        const auto first = static_cast<uint64_t>(slots[0]);
        uint64_t differs = 0;
        for (int64_t i = 0; i < page_size; ++i) {
            differs |= static_cast<uint64_t>(slots[i]) ^ (first + static_cast<uint64_t>(i));
        }
        if (differs != 0) return false;
    }
    return true;
}

// Of every `step`-th slot.
template <typename Number>
void check_slots(const Number* slots, int64_t count, int64_t step) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; i += step) all |= static_cast<uint64_t>(slots[i]);
    if (all <= static_cast<uint64_t>(MOST)) return;
    throw BadArgument("slots", "must be integers in 0 .. " + std::to_string(MOST));
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
    entries_ = zeros(rows);
}

RowTable::Entries RowTable::zeros(int64_t count) {
    Entries made(static_cast<int32_t*>(std::calloc(static_cast<size_t>(count) + 1, 4)));
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void RowTable::check(const Runs& rows) const {
    for (const Run& run : rows) {
        if (run.begin >= 0 && run.begin + int64_t{run.size} <= rows_) continue;
        throw BadArgument("rows", "end at " + std::to_string(run.begin + int64_t{run.size}) +
                                      "; the table has " + std::to_string(rows_) + " rows");
    }
}

void RowTable::keep_every_slot() {
    Entries every = zeros(rows_ * page_size_);
    for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t i = 0; i < page_size_; ++i) {
            every[row * page_size_ + i] = entries_[row] + static_cast<int32_t>(i);
        }
    }
    entries_ = std::move(every);
    width_ = page_size_;
}

template <typename Number>
void RowTable::put(const Runs& rows, const Number* slots) {
    check(rows);
    const int64_t pages = rows.slots();
    const bool whole_runs = page_size_ != 1 && are_whole_runs(slots, pages, page_size_);
    // The last slot of a run is the largest.
    if (whole_runs) {
        check_slots(slots, pages * page_size_, page_size_);
        check_slots(slots + page_size_ - 1, pages * page_size_ - page_size_ + 1, page_size_);
    } else {
        check_slots(slots, pages * page_size_, 1);
        if (width_ != page_size_) keep_every_slot();
    }
    const int64_t step = page_size_ / width_;
    for (const Run& run : rows) {
        int32_t* entry = entries_.get() + run.begin * width_;
        const int64_t count = run.size * width_;
        for (int64_t i = 0; i < count; ++i) entry[i] = static_cast<int32_t>(slots[i * step]);
        slots += run.size * page_size_;
    }
}

template void RowTable::put(const Runs& rows, const int32_t* slots);
template void RowTable::put(const Runs& rows, const int64_t* slots);

void RowTable::get(const Runs& rows, int64_t* out) const {
    check(rows);
    for (const Run& run : rows) {
        const int32_t* entry = entries_.get() + run.begin * width_;
        if (width_ == page_size_) {
            const int64_t count = run.size * width_;
            for (int64_t i = 0; i < count; ++i) out[i] = entry[i];
            out += count;
            continue;
        }
        for (int32_t row = 0; row < run.size; ++row, out += page_size_) {
            const int64_t first = entry[row];
            for (int64_t i = 0; i < page_size_; ++i) out[i] = first + i;
        }
    }
}

}  // namespace kvcanon
