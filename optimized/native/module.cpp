// The extension module kvcanon.optimized._core: each part of the core binds its own names.
#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bind_core.hpp"
#include "bind_hashing.hpp"
#include "sglang/bind_sglang.hpp"
#include "vllm/bind_hashed_pages.hpp"

NB_MODULE(_core, m) {
    // Its types and caches are those of one interpreter, as those of NumPy and torch are.
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        throw std::runtime_error(
            "kvcanon.optimized serves the main interpreter of a process only, and this is a "
            "subinterpreter; import it there, or start another process");
    }
#ifdef NDEBUG
    // A process that a signal ends has not released its caches; nobody has to read that.
    nanobind::set_leak_warnings(false);
#endif
    m.doc() = "The native core of kvcanon.optimized.";
    kvcanon::bind_hashing(m);
    kvcanon::bind_core(m);
    kvcanon::bind_row_table(m);
    kvcanon::bind_engine_nodes(m);
    kvcanon::bind_hashed_pages(m);
}
