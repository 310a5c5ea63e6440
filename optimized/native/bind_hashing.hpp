// What `_core` offers of page names to Python.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_hashing(nanobind::module_& m);

}  // namespace kvcanon
