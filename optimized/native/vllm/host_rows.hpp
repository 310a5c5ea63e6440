// The rows of a host tier: which are free, which are held, and which page leaves first.
//
// A row is held while a copy fills or reads it and while an answer promised its page. A row that
// nothing holds is free if it has no page, else it may be evicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "page_table.hpp"

namespace kvcanon {

struct HostRow {
    // None where what it has is not found any more, or where it is free.
    HashedPage* page = nullptr;
    // The job that fills it, or 0.
    int64_t filled_by = 0;
    int32_t holds = 0;
    // Its neighbours among the rows that may be evicted; NOWHERE for a row that is not one of them.
    int32_t older = NOWHERE, newer = NOWHERE;
    // Whether its page leaves once nothing holds it, since a load has moved it to the device.
    bool is_leaving = false;
};

class HostRows {
  public:
    explicit HostRows(int32_t count);

    HostRow& operator[](int32_t row) { return rows_[static_cast<size_t>(row)]; }
    const HostRow& operator[](int32_t row) const { return rows_[static_cast<size_t>(row)]; }

    int32_t count() const { return static_cast<int32_t>(rows_.size()) - 1; }
    // Rows that have a page and that nothing holds.
    int64_t evictable() const { return evictable_; }

    bool has_free() const { return !free_.empty(); }
    // Rows that are free or may be evicted.
    int64_t takeable() const { return static_cast<int64_t>(free_.size()) + evictable_; }
    // Take a free row, and hold it.
    int32_t take_free();
    // The row that is evicted next; NOWHERE where all are held or free.
    int32_t oldest() const { return evictable_ == 0 ? NOWHERE : end().newer; }

    void hold(int32_t row);
    // Take one hold back. After the last, a row with a page is the one that was used last.
    void let_go(int32_t row);
    // Make a row the one that was used last, unless it is held.
    void use(int32_t row);
    // Take the page of a row away; it comes free once nothing holds it.
    void empty(int32_t row);

  private:
    // Stands before the oldest row and behind the newest.
    const HostRow& end() const { return rows_.back(); }
    void link(int32_t row);
    void unlink(int32_t row);

    std::vector<HostRow> rows_;
    std::vector<int32_t> free_;
    int64_t evictable_ = 0;
};

}  // namespace kvcanon
