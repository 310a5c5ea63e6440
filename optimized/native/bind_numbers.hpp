// Numbers across the border: whatever Python calls a whole number comes in as 64 bits, or is
// refused.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace kvcanon {

// A count, an index or a number of a client. Throws: BadArgument.
int64_t whole_number(nanobind::handle number, const char* name);

// The same, or nothing where it is None.
std::optional<int64_t> whole_number_or_none(nanobind::handle number, const char* name);

// A receipt as a client has it. Throws: BadArgument, and ReceiptSpent as Python's own exception
// where no receipt can have that number.
uint64_t receipt_number(nanobind::handle receipt);

}  // namespace kvcanon
