// A table from rows to token slots, for a caller whose slots are in the memory of the host.
//
// An allocator mostly hands out consecutive slots, and a node has consecutive rows where there are
// enough. So the table is cut into blocks of a page or 16 tokens: of a block whose slots follow
// each other it has the first, of another it has every slot. What a block is changes no other
// block. Memory for every slot of a block is used again, and not given back.
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

    // Write the slots of rows to `out`, which has room for them. Throws: BadArgument.
    void get(const Runs& rows, int64_t* out) const;

    // Blocks of which every slot is kept.
    int64_t scattered_blocks() const {
        return static_cast<int64_t>(places_) - static_cast<int64_t>(unused_.size());
    }

  private:
    struct Freed {
        void operator()(int32_t* memory) const { std::free(memory); }
    };

    void check(const Runs& rows) const;
    // Slots of one block, or those of several whole ones that follow each other.
    struct Part {
        int64_t block, from, count;
        bool is_run;
    };
    // Divide new slots into parts. Throws: BadArgument for a number out of range.
    void look_at(const Runs& rows, const int64_t* slots);
    void set_first(int64_t block, int64_t slot);
    void put_in_block(const Part& part, const int64_t* slots);
    // Begin to keep every slot of a block; they are the same as before.
    void scatter(int64_t block);
    int32_t* every_slot(int32_t entry) const;

    const int64_t rows_, page_size_;
    // Tokens a block, a multiple of the page size.
    const int64_t block_size_;
    // Of each block 0 while nothing was put there, the first slot and 1 more, or the negative of
    // its place among those of which every slot is kept, and 1 less. Not resident before it is
    // written.
    std::unique_ptr<int32_t[], Freed> entries_;
    // The places, in chunks that never move; how many there are; and those that may be used again.
    std::vector<std::unique_ptr<int32_t[]>> chunks_;
    int32_t places_ = 0;
    ChunkedArray<int32_t> unused_;
    // Those of the running call.
    std::vector<Part> parts_;
};

}  // namespace kvcanon
