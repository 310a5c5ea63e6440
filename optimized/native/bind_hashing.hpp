// Binds the page hashes of `_core`.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_hashing(nanobind::module_& m);

}  // namespace kvcanon
