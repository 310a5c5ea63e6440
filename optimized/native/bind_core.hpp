// The tree as Python sees it: kvcanon.optimized._core.Tree.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_core(nanobind::module_& m);

}  // namespace kvcanon
