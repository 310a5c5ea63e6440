#include <memory>
#include <string>
#include <utility>

#include "cache_core.hpp"
#include "docstrings.hpp"
#include "emit.hpp"
#include "pack_events.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

constexpr Docstring TAKE_PACKED_EVENTS{
    "def take_packed_events(self) -> PackedEvents",
    R"(Return the events since the last call for the wire, and forget them.

They are those of `take_events`, in a form that another thread can encode.)"};

PackedEvents take_packed_events(CacheCore& core) {
    return core.operate(Operation::TAKE_EVENTS, [&] {
        PackedEvents packed = pack_events(core.state);
        // Not before, so that no event is lost if there is no memory for the copy.
        forget_events(core.state);
        return packed;
    });
}

nb::bytes encode(const PackedEvents& self, int dialect, double timestamp, int64_t rank) {
    if (dialect < 0 || dialect > static_cast<int>(Dialect::LEGACY)) {
        throw nb::value_error("The dialect is a number from 0 to 2.");
    }
    std::string encoded;
    {
        const nb::gil_scoped_release release;
        encoded = self.encode(static_cast<Dialect>(dialect), timestamp, rank);
    }
    return nb::bytes(encoded.data(), encoded.size());
}

}  // namespace

void bind_packed_events(nb::module_& m, nb::class_<CacheCore>& core) {
    nb::class_<PackedEvents>(m, "PackedEvents",
                             "Events that were taken, ready to be encoded by any thread.")
        .def("__len__", [](const PackedEvents& self) { return self.items.size(); })
        .def_prop_ro(
            "pages", [](const PackedEvents& self) { return self.pages; },
            "Pages that were stored or removed.")
        .def("encode", &encode, nb::arg("dialect"), nb::arg("timestamp"), nb::arg("rank"),
             "Encode the batch as MessagePack: bytes. The GIL is released.");
    core.def("take_packed_events", &take_packed_events, nb::sig(TAKE_PACKED_EVENTS.signature),
             TAKE_PACKED_EVENTS.text);
}

}  // namespace kvcanon
