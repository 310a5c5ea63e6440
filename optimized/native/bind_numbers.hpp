// Numbers from Python to the core: everything that Python can use as an index comes in as 64 bits,
// or is refused.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace kvcanon {

// A count, an index or a number of a client. Throws: BadArgument.
int64_t whole_number(nanobind::handle number, const char* name);

// Like `whole_number`; nothing where the argument is None.
std::optional<int64_t> whole_number_or_none(nanobind::handle number, const char* name);

// The number of a receipt. Throws: BadArgument, and ReceiptSpent, as a Python exception, where no
// receipt can have that number.
uint64_t receipt_number(nanobind::handle receipt);

}  // namespace kvcanon
