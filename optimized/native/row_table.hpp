// A table from rows to token slots, for a caller whose slots are in the memory of the host.
//
// A page is mostly a run of consecutive slots, of which the table has the first: four bytes a page.
// Once a page comes that is not, the table has every slot of every page.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "runs.hpp"

namespace kvcanon {

class RowTable {
  public:
    // Throws: BadArgument where the slots could not be numbered with 31 bits.
    RowTable(int64_t rows, int64_t page_size);

    int64_t page_size() const { return page_size_; }

    // Set the slots of rows; `slots` has those of their pages, one after the other.
    // Throws: BadArgument for rows or slots out of range; nothing has changed then.
    template <typename Number>
    void put(const Runs& rows, const Number* slots);

    // Write the slots of rows to `out`, which has room for them. Throws: BadArgument.
    void get(const Runs& rows, int64_t* out) const;

  private:
    struct Freed {
        void operator()(int32_t* memory) const { std::free(memory); }
    };
    using Entries = std::unique_ptr<int32_t[], Freed>;

    // Memory of zeros, which is not resident before it is written.
    static Entries zeros(int64_t count);

    void check(const Runs& rows) const;
    void keep_every_slot();

    const int64_t rows_, page_size_;
    // Entries a row: one, or one a slot.
    int64_t width_ = 1;
    Entries entries_;
};

}  // namespace kvcanon
