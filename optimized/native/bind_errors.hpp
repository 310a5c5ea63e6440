// Refusals across the border: each becomes the exception of its name in `kvcanon.spec.errors`.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

void bind_errors();

// Refuse in words of Python, where a number of Python's is what is wrong: `field` is the error's
// only one.
[[noreturn]] void raise_in_python(const char* name, nanobind::handle field);

}  // namespace kvcanon
