// Binds what a cache decides about the store below the host; `kvcanon.optimized.store_tier` keeps
// the orders, and moves the bytes.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "bind_arrays.hpp"
#include "bind_numbers.hpp"
#include "bind_reprs.hpp"
#include "cache_core.hpp"
#include "docstrings.hpp"
#include "tier.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

constexpr const char* PAGE_RUN =
    R"(Consecutive pages of a prompt: what an order to the store is about.

It keeps their tokens and hashes, whatever becomes of them in the cache.)";

constexpr Docstring UNSTORED{
    "def unstored(self, tokens: Tokens, namespace: int = 0) -> tuple[PageRun, "
    "NDArray[numpy.int32]]",
    R"(Return the host pages of a prompt that follow those that are stored, and their slots.)"};

constexpr Docstring UNFETCHED{
    "def unfetched(self, tokens: Tokens, namespace: int = 0) -> PageRun",
    R"(Return the pages of a prompt that have to be fetched, as many as have a free host slot.)"};

// A run that was handed out.
struct GivenRun {
    // Declared before the run, whose span is counted there.
    std::shared_ptr<Namespaces> namespaces;
    PageRun run;
    int32_t page_words;
};

using Hashes = nb::ndarray<nb::numpy, const uint8_t, nb::shape<-1, HASH_BYTES>>;

Hashes hashes(nb::handle_t<GivenRun> self) {
    const PageRun& run = nb::cast<const GivenRun&>(self).run;
    const uint8_t* first = run.pages() == 0 ? nullptr : hash_of(run.span.get(), 0);
    return Hashes(first, {static_cast<size_t>(run.pages()), HASH_BYTES}, self);
}

nb::object parent_hash(const GivenRun& self) {
    const uint8_t* hash = self.run.pages() == 0 ? nullptr : hash_before(self.run.span.get(), 0);
    if (hash == nullptr) return nb::none();
    return nb::bytes(reinterpret_cast<const char*>(hash), HASH_BYTES);
}

nb::bytes hash_at(const GivenRun& self, int64_t page) {
    if (page < 0 || page >= self.run.pages()) {
        throw nb::index_error("The run has no such page.");
    }
    const uint8_t* hash = hash_of(self.run.span.get(), static_cast<int32_t>(page));
    return nb::bytes(reinterpret_cast<const char*>(hash), HASH_BYTES);
}

GivenRun given(const State& state, PageRun run) {
    return {state.namespaces, std::move(run), state.config.page_words};
}

// Pages of a run, counted in it. Throws: BadArgument.
int32_t page_in(const PageRun& run, nb::handle number, const char* name) {
    const int64_t page = whole_number(number, name);
    if (page < 0 || page > run.pages()) {
        throw BadArgument(name, "is " + std::to_string(page) + "; the run has " +
                                    std::to_string(run.pages()) + " pages");
    }
    return static_cast<int32_t>(page);
}

nb::tuple do_unstored(TierView& self, nb::handle tokens, nb::handle namespace_id) {
    return self.core.operate(Operation::STORE, [&] {
        const GivenKey key = self.core.key(tokens, whole_number(namespace_id, "namespace"));
        Unstored found = unstored(self.core.state, key.key);
        return nb::make_tuple(given(self.core.state, std::move(found.run)), array_of(found.slots));
    });
}

GivenRun do_unfetched(TierView& self, nb::handle tokens, nb::handle namespace_id) {
    return self.core.operate(Operation::PREFETCH, [&] {
        const GivenKey key = self.core.key(tokens, whole_number(namespace_id, "namespace"));
        return given(self.core.state, unfetched(self.core.state, key.key));
    });
}

void do_note_stored(TierView& self, const GivenRun& run, nb::handle begin, nb::handle end) {
    self.core.operate(Operation::POLL_STORE, [&] {
        note_stored(self.core.state, run.run, page_in(run.run, begin, "begin"),
                    page_in(run.run, end, "end"));
    });
}

void do_note_missing(TierView& self, const GivenRun& run, nb::handle page) {
    self.core.operate(Operation::POLL_STORE, [&] {
        const int32_t missing = page_in(run.run, page, "page");
        if (missing < run.run.pages()) note_missing(self.core.state, run.run, missing);
    });
}

Runs host_slots_of(nb::handle slots) {
    const nb::none none;
    return slots_of(slots, none, none, CPU)[FULL];
}

}  // namespace

void bind_tier(nb::module_& m, nb::class_<TierView>& tier) {
    nb::class_<GivenRun>(m, "PageRun", PAGE_RUN)
        .def("__len__", [](const GivenRun& self) { return self.run.pages(); })
        .def_prop_ro(
            "start_pages", [](const GivenRun& self) { return self.run.start; },
            "Pages of the prompt before the first.")
        .def_prop_ro("hashes", &hashes, nb::rv_policy::automatic,
                     "The page hashes: uint8[pages, 32].")
        .def_prop_ro("parent_hash", &parent_hash,
                     nb::for_getter(nb::sig("def parent_hash(self) -> bytes | None")),
                     "Hash of the page before the first; None where there is none.")
        .def("hash", &hash_at, nb::arg("page"), "Return the hash of a page, counted from 0.")
        .def("__repr__", [](const GivenRun& self) {
            return ReprText("PageRun")
                .add("start_pages", self.run.start)
                .add("pages", self.run.pages())
                .done();
        });
    const auto number = [](const char* name) { return nb::arg(name).none() = 0; };
    tier.def("unstored", &do_unstored, nb::arg("tokens").none(), number("namespace"),
             nb::sig(UNSTORED.signature), UNSTORED.text);
    tier.def("unfetched", &do_unfetched, nb::arg("tokens").none(), number("namespace"),
             nb::sig(UNFETCHED.signature), UNFETCHED.text);
    tier.def("note_stored", &do_note_stored, nb::arg("run"), nb::arg("begin"), nb::arg("end"),
             nb::sig("def note_stored(self, run: PageRun, begin: int, end: int) -> None"),
             "Count pages of a run as being in the store, each if the page before it does.");
    tier.def("note_missing", &do_note_missing, nb::arg("run"), nb::arg("page"),
             nb::sig("def note_missing(self, run: PageRun, page: int) -> None"),
             "Count a page of a run, and those that follow it, as not being in the store.");
    tier.def(
        "require_usable", [](TierView& self) { self.core.look([] {}); },
        nb::sig("def require_usable(self) -> None"),
        "Raise CacheUnusable where the cache has to be reset first.");
    tier.def(
        "begin_read",
        [](TierView& self, nb::handle slots) {
            self.core.look([&] { begin_read(self.core.state, host_slots_of(slots)); });
        },
        nb::arg("slots"), nb::sig("def begin_read(self, slots: SlotArray) -> None"),
        "Give host slots to nobody else until `end_read`: the store reads them now.");
    tier.def(
        "end_read",
        [](TierView& self, nb::handle slots) {
            self.core.look([&] { end_read(self.core.state, host_slots_of(slots)); });
        },
        nb::arg("slots"), nb::sig("def end_read(self, slots: SlotArray) -> None"),
        "Free those of these host slots that their node gave up meanwhile.");
}

}  // namespace kvcanon
