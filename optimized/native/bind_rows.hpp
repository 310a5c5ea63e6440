// Binds rows: kvcanon.optimized._core.Rows.
#pragma once

#include <nanobind/nanobind.h>

#include "runs.hpp"

namespace kvcanon {

// Rows for Python; None for none.
nanobind::object rows_or_none(const Runs& rows);

void bind_rows(nanobind::module_& m);

}  // namespace kvcanon
