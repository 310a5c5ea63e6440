// Errors from the core to Python: each becomes the exception of the same name in
// `kvcanon.spec.errors`.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_errors();

// Raise an error of `kvcanon.spec.errors` with one field that is a Python object, such as an
// integer too large for 64 bits.
[[noreturn]] void raise_in_python(const char* name, nanobind::handle field);

}  // namespace kvcanon
