#include "bind_numbers.hpp"

#include "bind_errors.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

// The number as a Python int.
nb::object index_of(nb::handle number, const char* name) {
    PyObject* index = PyNumber_Index(number.ptr());
    if (index == nullptr) {
        PyErr_Clear();
        const nb::str type(number.type().attr("__name__"));
        throw BadArgument(name, std::string("must be a whole number; got ") + type.c_str());
    }
    return nb::steal(index);
}

}  // namespace

int64_t whole_number(nb::handle number, const char* name) {
    nb::object index;
    if (!PyLong_CheckExact(number.ptr())) number = index = index_of(number, name);
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0) {
        throw BadArgument(name, "is a number that does not fit in 64 bits");
    }
    return value;
}

std::optional<int64_t> whole_number_or_none(nb::handle number, const char* name) {
    if (number.is_none()) return std::nullopt;
    return whole_number(number, name);
}

uint64_t receipt_number(nb::handle receipt) {
    const nb::object index = index_of(receipt, "receipt");
    const unsigned long long value = PyLong_AsUnsignedLongLong(index.ptr());
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        raise_in_python("ReceiptSpent", index);
    }
    return value;
}

}  // namespace kvcanon
