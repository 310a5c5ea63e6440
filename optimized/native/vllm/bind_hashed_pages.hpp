// Binds the tables of a host tier: kvcanon.optimized._core.HashedPages.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_hashed_pages(nanobind::module_& m);

}  // namespace kvcanon
