// A table from rows to token slots, for a caller whose slots are in the memory of the host.
//
// It has one slot a page where the slots of a page follow each other, as those of an allocator do,
// and every slot of another page. Memory for every slot of a page is used again, and not given
// back.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "chunked_array.hpp"
#include "runs.hpp"

namespace kvcanon {

class RowTable {
  public:
    // Throws: BadArgument where the slots could not be numbered with 31 bits.
    RowTable(int64_t rows, int64_t page_size);

    int64_t page_size() const { return page_size_; }

    // Set the slots of rows; `slots` has those of their pages, one after the other.
    // Throws: BadArgument for rows or slots out of range; nothing has changed then. If memory runs
    // out, some of these rows may have changed, and no others.
    void put(const Runs& rows, const int64_t* slots);

    // Write the slots of rows to `out`, which has room for them; 0 where nothing was put. Throws:
    // BadArgument.
    void get(const Runs& rows, int64_t* out) const;

    // Pages of which every slot is kept.
    int64_t scattered_pages() const {
        return static_cast<int64_t>(places_) - static_cast<int64_t>(unused_.size());
    }

  private:
    struct Freed {
        void operator()(int32_t* memory) const { std::free(memory); }
    };

    void check(const Runs& rows) const;
    // Put slots of pages of one token, which are as they are in the table.
    void put_single(const Runs& rows, const int64_t* slots);
    // One page, or several whose slots follow each other.
    struct Part {
        int64_t row, pages;
        bool is_run;
    };
    // Divide new slots into parts. Throws: BadArgument for a number out of range.
    void look_at(const Runs& rows, const int64_t* slots);
    void set_first(int64_t row, int64_t slot);
    void set_every(int64_t row, const int64_t* slots);
    int32_t new_place();
    int32_t* every_slot(int32_t entry) const;

    const int64_t rows_, page_size_;
    // Of each page of one token its slot. Of a larger one 0 while nothing was put there, the first
    // slot and 1 more, or the negative of its place among those of which every slot is kept, and 1
    // less. Not resident before it is written.
    std::unique_ptr<int32_t[], Freed> entries_;
    // The places, in chunks that never move; how many there are; and those that may be used again.
    std::vector<std::unique_ptr<int32_t[]>> chunks_;
    int32_t places_ = 0;
    ChunkedArray<int32_t> unused_;
    // Those of the running call.
    std::vector<Part> parts_;
};

}  // namespace kvcanon
