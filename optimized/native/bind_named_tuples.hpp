// Named tuples of Python, made here: an engine reads all of a result's fields in each request, and
// a property that calls C++ would take it several times as long.
#pragma once

#include <nanobind/nanobind.h>

namespace kvcanon {

// A named tuple with these values, in the order of its fields. It is allocated as `tuple` allocates
// one of a subclass, since the constructor of its own is Python code.
template <typename... Values>
nanobind::object named_tuple(PyObject* type, const Values&... values) {
    static const auto allocate =
        reinterpret_cast<allocfunc>(PyType_GetSlot(&PyTuple_Type, Py_tp_alloc));
    nanobind::object made =
        nanobind::steal(allocate(reinterpret_cast<PyTypeObject*>(type), sizeof...(Values)));
    if (!made.is_valid()) nanobind::raise_python_error();
    Py_ssize_t at = 0;
    (PyTuple_SetItem(made.ptr(), at++, nanobind::cast(values).release().ptr()), ...);
    return made;
}

}  // namespace kvcanon
