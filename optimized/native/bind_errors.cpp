#include "bind_errors.hpp"

#include <nanobind/stl/string.h>

#include "errors.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

template <typename... Fields>
void raise(const char* name, const Fields&... fields) {
    try {
        nb::object type = nb::module_::import_("kvcanon.spec.errors").attr(name);
        nb::object error = type(fields...);
        PyErr_SetObject(type.ptr(), error.ptr());
    } catch (nb::python_error& other) {
        // An interrupt, or no memory for the error: the call was refused all the same.
        other.restore();
    }
}

void translate(const std::exception_ptr& thrown, void* /*unused*/) {
    try {
        std::rethrow_exception(thrown);
    } catch (const BadArgument& error) {
        raise("BadArgument", error.argument, error.problem);
    } catch (const OutOfSlots& error) {
        raise("OutOfSlots", error.pool, error.asked, error.free);
    } catch (const PrefixNotCached& error) {
        raise("PrefixNotCached", error.asked, error.cached);
    } catch (const ReceiptSpent& error) {
        raise("ReceiptSpent", error.receipt);
    } catch (const SlotNotHeld& error) {
        raise("SlotNotHeld", error.pool, error.slot);
    } catch (const TransferPending& error) {
        raise("TransferPending", error.transfer);
    } catch (const CacheBusy& error) {
        raise("CacheBusy", error.receipts);
    } catch (const SpecViolation& error) {
        raise("SpecViolation", error.words);
    } catch (const Unusable& error) {
        raise("CacheUnusable", error.words);
    } catch (const OutOfMemory& error) {
        PyErr_SetString(PyExc_MemoryError, error.words);
    }
}

}  // namespace

void raise_in_python(const char* name, nb::handle field) {
    raise(name, field);
    throw nb::python_error();
}

void bind_errors() { nb::register_exception_translator(translate); }

}  // namespace kvcanon
