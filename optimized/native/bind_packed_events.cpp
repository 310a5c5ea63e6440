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

// Bytes that `put` writes, and of which it returns the end. They are copied once, since the stable
// ABI has no bytes that can be shortened.
template <typename Put>
nb::bytes bytes_from(size_t most, Put put) {
    const std::unique_ptr<uint8_t[]> written(new uint8_t[most]);
    const uint8_t* end = put(written.get());
    return nb::bytes(written.get(), static_cast<size_t>(end - written.get()));
}

// Kind, namespace, medium, the hash of the page before, hashes and tokens of each event.
nb::list parts_of(const PackedEvents& self) {
    nb::list listed;
    for (const PackedEvents::Item& item : self.items) {
        const bool is_stored = item.kind == EventKind::STORED;
        listed.append(nb::make_tuple(
            static_cast<int>(item.kind), item.number, static_cast<int>(item.medium),
            item.has_parent ? nb::object(nb::int_(self.parent_of(item))) : nb::object(nb::none()),
            bytes_from(PackedEvents::most_hash_bytes(item),
                       [&](uint8_t* at) { return self.put_hashes(item, at); }),
            is_stored ? bytes_from(self.most_token_bytes(item),
                                   [&](uint8_t* at) { return self.put_tokens(item, at); })
                      : nb::bytes("", 0)));
    }
    return listed;
}

}  // namespace

void bind_packed_events(nb::module_& m, nb::class_<CacheCore>& core) {
    nb::class_<PackedEvents>(m, "PackedEvents",
                             "Events that were taken, ready to be encoded by any thread.")
        .def("__len__", [](const PackedEvents& self) { return self.items.size(); })
        .def_prop_ro(
            "pages", [](const PackedEvents& self) { return self.pages; },
            "Pages that were stored or removed.")
        .def("parts", &parts_of, nb::sig("def parts(self) -> list[PackedPart]"),
             R"(Return each event as a tuple.

It has what happened (0 stored, 1 removed, 2 cleared), the number of the namespace, the
medium, the hash of the page before or None, and as MessagePack the list of hashes and the
list of tokens. Hashes are SGLang's.)")
        .def("encode", &encode, nb::arg("dialect"), nb::arg("timestamp"), nb::arg("rank"),
             "Encode the batch as MessagePack: bytes. The GIL is released.");
    core.def("take_packed_events", &take_packed_events, nb::sig(TAKE_PACKED_EVENTS.signature),
             TAKE_PACKED_EVENTS.text);
}

}  // namespace kvcanon
