#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "bind_reprs.hpp"
#include "cache_core.hpp"
#include "docstrings.hpp"
#include "emit.hpp"
#include "enum_values.hpp"
#include "tier.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

// An event that was taken. It keeps its pages alive.
struct TakenEvent {
    // Declared before the event, whose span is counted there.
    std::shared_ptr<Namespaces> namespaces;
    Event event;
    int32_t page_words;

    TakenEvent(const State& state, const Event& taken)
        : namespaces(state.namespaces), event(taken), page_words(state.config.page_words) {
        if (event.span) pin(event.span.get());
    }
    TakenEvent(TakenEvent&& other) noexcept = default;
    TakenEvent& operator=(TakenEvent&&) = delete;
    ~TakenEvent() {
        if (event.span) unpin(event.span.get(), static_cast<size_t>(page_words));
    }

    const uint8_t* hash(int32_t index) const {
        // Of what was removed the last page comes first.
        const int32_t page = event.kind == EventKind::REMOVED ? event.pages - 1 - index : index;
        return hash_of(event.span.get(), event.offset + page);
    }
};

const char* kind(const TakenEvent& self) { return EVENT_KIND_VALUES[number_of(self.event.kind)]; }

nb::bytes hashes(const TakenEvent& self) {
    const auto bytes = static_cast<size_t>(self.event.pages) * HASH_BYTES;
    // Stored pages are in the order of the span.
    if (bytes == 0 || self.event.kind != EventKind::REMOVED) {
        return nb::bytes(bytes == 0 ? nullptr : self.hash(0), bytes);
    }
    std::string joined;
    joined.reserve(bytes);
    for (int32_t index = 0; index < self.event.pages; ++index) {
        joined.append(reinterpret_cast<const char*>(self.hash(index)), HASH_BYTES);
    }
    return nb::bytes(joined.data(), joined.size());
}

// The hash of the page before the first; None where there is none.
nb::object parent_hash(const TakenEvent& self) {
    const Event& event = self.event;
    if (!event.span) return nb::none();
    const uint8_t* hash = hash_before(event.span.get(), event.offset);
    if (hash == nullptr) return nb::none();
    return nb::bytes(reinterpret_cast<const char*>(hash), HASH_BYTES);
}

int64_t namespace_number(const TakenEvent& self) {
    const TokenSpan* span = self.event.span.get();
    return span == nullptr ? 0 : self.namespaces->number_of(span->namespace_id);
}

std::string repr_of_event(const TakenEvent& self) {
    return ReprText("Event")
        .add("kind", "'" + std::string(kind(self)) + "'")
        .add("medium", "'" + std::string(MEDIUM_VALUES[self.event.medium]) + "'")
        .add("namespace", namespace_number(self))
        .add("pages", self.event.pages)
        .done();
}

// The tokens without a copy: the array keeps the event alive, and the event its pages.
nb::ndarray<nb::numpy, const uint32_t, nb::ndim<2>> tokens(nb::handle_t<TakenEvent> event) {
    const auto& self = nb::cast<const TakenEvent&>(event);
    const auto pages = static_cast<size_t>(self.event.pages);
    const auto page_words = static_cast<size_t>(self.page_words);
    const uint32_t* words =
        pages == 0 ? nullptr
                   : self.event.span->words + static_cast<size_t>(self.event.offset) * page_words;
    return nb::ndarray<nb::numpy, const uint32_t, nb::ndim<2>>(words, {pages, page_words}, event);
}

nb::list listed_events(const State& state, const std::vector<Event>& events) {
    nb::list listed;
    for (const Event& event : events) {
        listed.append(nb::cast(TakenEvent(state, event), nb::rv_policy::move));
    }
    return listed;
}

nb::tuple events_after(State& state, uint64_t edition, size_t seen) {
    const std::vector<Event> events = pending_events(state);
    // Events made of what is resident are others whenever a node is cut.
    const bool same = edition == state.events.edition && !state.events.given_up;
    const bool only_more = same && seen <= events.size();
    const size_t known = only_more ? seen : 0;
    nb::list listed;
    for (size_t at = known; at < events.size(); ++at) {
        listed.append(nb::cast(TakenEvent(state, events[at]), nb::rv_policy::move));
    }
    return nb::make_tuple(state.events.edition, known, listed);
}

nb::list take_events(CacheCore& core) {
    return core.operate(Operation::TAKE_EVENTS, [&] {
        nb::list taken = listed_events(core.state, pending_events(core.state));
        // Not before, so that no event is lost if there is no memory for the list.
        forget_events(core.state);
        return taken;
    });
}

}  // namespace

void bind_events(nb::module_& m, nb::class_<CacheCore>& core, nb::class_<TreeView>& tree) {
    nb::class_<TakenEvent>(m, "Event", docs::EVENT)
        .def_prop_ro(
            "kind", &kind,
            "What happened: \"stored\", \"removed\", or \"cleared\" for all pages at once.")
        .def_prop_ro(
            "medium", [](const TakenEvent& self) { return MEDIUM_VALUES[self.event.medium]; },
            "A value of kvcanon.spec.types.Medium.")
        .def_prop_ro("namespace", &namespace_number, "Number of the namespace.")
        .def_prop_ro(
            "pages", [](const TakenEvent& self) { return self.event.pages; }, "How many pages.")
        .def_prop_ro("parent_hash", &parent_hash,
                     nb::for_getter(nb::sig("def parent_hash(self) -> bytes | None")),
                     "Hash of the page before the first; None where there is none.")
        .def_prop_ro("hashes", &hashes,
                     "Page hashes, 32 bytes each; of removed pages the last comes first.")
        .def_prop_ro("tokens", &tokens, nb::rv_policy::automatic,
                     "Tokens of the pages: uint32[pages, words a page].")
        .def("__repr__", &repr_of_event);
    core.def("take_events", &take_events, nb::sig(docs::TAKE_EVENTS.signature),
             docs::TAKE_EVENTS.text);
    tree.def(
        "pending_events",
        [](TreeView& self) {
            return self.core.look(
                [&] { return listed_events(self.core.state, pending_events(self.core.state)); });
        },
        nb::sig("def pending_events(self) -> list[Event]"),
        "Return the events that `take_events` would, without taking them.");
    tree.def(
        "stored",
        [](TreeView& self) {
            return self.core.look(
                [&] { return listed_events(self.core.state, stored_events(self.core.state)); });
        },
        nb::sig("def stored(self) -> list[Event]"),
        "Return the pages that are known to be in the store, as the events that announced them.");
    tree.def(
        "pending_events_after",
        [](TreeView& self, uint64_t edition, size_t seen) {
            return self.core.look([&] { return events_after(self.core.state, edition, seen); });
        },
        nb::arg("edition"), nb::arg("seen"),
        nb::sig("def pending_events_after(self, edition: int, seen: int) "
                "-> tuple[int, int, list[Event]]"),
        "Return the events that wait, but for those that are known: the first `seen` ones, if "
        "what\n"
        "waits is of this edition still. Returns its edition, how many are known, and the others.");
}

}  // namespace kvcanon
