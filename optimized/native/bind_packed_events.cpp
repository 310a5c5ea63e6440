#include <memory>
#include <string>
#include <utility>

#include "cache_core.hpp"
#include "docstrings.hpp"
#include "emit.hpp"
#include "event_lists.hpp"
#include "pack_events.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

constexpr Docstring TAKE_PACKED_EVENTS{
    "def take_packed_events(self) -> PackedEvents",
    R"(Return the events since the last call for the wire, and forget them.

They are those of `take_events`, in a form that another thread can encode.)"};

constexpr Docstring TAKE_EVENT_PARTS{
    "def take_event_parts(self) -> list[PackedPart]",
    R"(Return the events since the last call, each as a tuple, and forget them.

They are those of `take_events`, with their lists encoded already, so that an engine's own
event needs only their bytes. A tuple has what happened (0 stored, 1 removed, 2 cleared),
the number of the namespace, the medium, the hash of the page before or None, and as
MessagePack the list of hashes and the list of tokens. Hashes are SGLang's.)"};

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

nb::bytes hashes_of(const Event& event) {
    const auto pages = static_cast<size_t>(event.pages);
    const bool is_removed = event.kind == EventKind::REMOVED;
    constexpr auto STEP = static_cast<ptrdiff_t>(HASH_BYTES);
    // Of what was removed the last page comes first.
    const int32_t first = event.offset + (is_removed ? event.pages - 1 : 0);
    return bytes_from(most_hash_bytes(pages), [&](uint8_t* at) {
        return put_hashes(at, hash_of(event.span.get(), first), pages, is_removed ? -STEP : STEP);
    });
}

nb::tuple stored_part(const State& state, const Event& event, int64_t number) {
    const TokenSpan* span = event.span.get();
    const auto page_words = static_cast<size_t>(state.config.page_words);
    const auto unit_words = static_cast<size_t>(state.config.unit_words);
    const size_t units = static_cast<size_t>(event.pages) * page_words / unit_words;
    const uint8_t* before = hash_before(span, event.offset);
    nb::object parent = nb::none();
    if (before != nullptr) parent = nb::int_(sent_hash(before));
    const nb::bytes tokens = bytes_from(most_token_bytes(units, unit_words), [&](uint8_t* at) {
        const uint32_t* words = span->words + static_cast<size_t>(event.offset) * page_words;
        return put_tokens(at, words, units, unit_words);
    });
    return nb::make_tuple(static_cast<int>(event.kind), number, static_cast<int>(event.medium),
                          parent, hashes_of(event), tokens);
}

nb::list take_event_parts(CacheCore& core) {
    return core.operate(Operation::TAKE_EVENTS, [&] {
        State& state = core.state;
        nb::list listed;
        for (const Event& event : pending_events(state)) {
            const TokenSpan* span = event.span.get();
            const int64_t number =
                span == nullptr ? 0 : state.namespaces->number_of(span->namespace_id);
            if (event.kind == EventKind::STORED) {
                listed.append(stored_part(state, event, number));
                continue;
            }
            listed.append(nb::make_tuple(
                static_cast<int>(event.kind), number, static_cast<int>(event.medium), nb::none(),
                span == nullptr ? nb::bytes("", 0) : hashes_of(event), nb::bytes("", 0)));
        }
        // Not before, so that no event is lost if there is no memory for the list.
        forget_events(state);
        return listed;
    });
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
             "Encode the batch as MessagePack. The GIL is released.\n\n"
             "The dialect is its place in `kvcanon.live.dialects.DIALECTS`.");
    core.def("take_packed_events", &take_packed_events, nb::sig(TAKE_PACKED_EVENTS.signature),
             TAKE_PACKED_EVENTS.text);
    core.def("take_event_parts", &take_event_parts, nb::sig(TAKE_EVENT_PARTS.signature),
             TAKE_EVENT_PARTS.text);
}

}  // namespace kvcanon
