// Binds the cache and its view: kvcanon.optimized._core.CacheCore and Tree.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_core(nanobind::module_& m);

}  // namespace kvcanon
