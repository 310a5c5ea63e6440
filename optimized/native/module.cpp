// The extension module kvcanon.optimized._core: each part of the core binds its own names.
#include <nanobind/nanobind.h>

#include "bind_core.hpp"
#include "bind_hashing.hpp"

NB_MODULE(_core, m) {
#ifdef NDEBUG
    // A process that a signal ends has not released its caches; nobody has to read that.
    nanobind::set_leak_warnings(false);
#endif
    m.doc() = "The native core of kvcanon.optimized.";
    kvcanon::bind_hashing(m);
    kvcanon::bind_core(m);
}
