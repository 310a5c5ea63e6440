// What SGLang's tree core calls of the native module besides `Nodes`: tables of its token slots,
// and the calls of every request with SGLang's own objects.
#pragma once

#include <nanobind/nanobind.h>

#include "row_table.hpp"
#include "torch_exchange.hpp"

namespace kvcanon {

// Check that so many slots have the pages of rows from a first page on. Throws: BadArgument.
void require_pages(int64_t page_tokens, const Runs& rows, int64_t slots, int64_t first_page);

// Set the slots of rows, from the whole pages of `slots` as of `first_page`. Throws: BadArgument.
void put_pages(RowTable& table, const Runs& rows, const Int64s& slots, int64_t first_page);

// The token slots of rows, in their order: a new tensor. Throws: BadArgument.
nanobind::object slots_of_rows(const RowTable& table, const Runs& rows);

void bind_row_table(nanobind::module_& m);

// Adds the class of the calls of every request.
void bind_engine_nodes(nanobind::module_& m);

}  // namespace kvcanon
