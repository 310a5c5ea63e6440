#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>

#include "bind_numbers.hpp"
#include "cache_core.hpp"
#include "docstrings.hpp"
#include "evict.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "reset.hpp"
#include "transfer.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

using Three = std::array<int64_t, COMPONENTS>;

Three three_of(const Counts& counts) { return {counts[FULL], counts[SWA], counts[MAMBA]}; }

Counts counts_of(nb::handle full, nb::handle swa, nb::handle mamba) {
    Counts counts;
    counts[FULL] = whole_number(full, "full");
    counts[SWA] = whole_number(swa, "swa");
    counts[MAMBA] = whole_number(mamba, "mamba");
    return counts;
}

int64_t namespace_id_of(nb::handle number) { return whole_number(number, "namespace"); }

Key first_pages(const Key& key, std::optional<int64_t> pages) {
    if (!pages) return key;
    if (*pages < 0 || *pages > key.pages) {
        throw BadArgument("pages", "is " + std::to_string(*pages) + "; the tokens are " +
                                       std::to_string(key.pages) + " pages");
    }
    return {key.words, static_cast<int32_t>(*pages), key.namespace_id};
}

nb::tuple settled(const Settled& transfers) {
    nb::list listed;
    for (const auto& [transfer_id, status] : transfers) {
        listed.append(nb::make_tuple(transfer_id, static_cast<int>(status)));
    }
    return nb::tuple(listed);
}

nb::tuple arrays_of(const SlotLists& slots) {
    return nb::make_tuple(array_of(slots[FULL]), array_of(slots[SWA]), array_of(slots[MAMBA]));
}

// The operations. Arguments are read inside `operate`, since reading a foreign array may run Python
// code.

Matched do_match(CacheCore& self, nb::handle tokens, nb::handle namespace_id) {
    return self.operate(Operation::MATCH, [&] {
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        return match(self.state, given.key);
    });
}

// The number of a new receipt, which is released if there is no memory for the number.
nb::object handed_out(CacheCore& self, uint64_t receipt) {
    PyObject* number = PyLong_FromUnsignedLongLong(receipt);
    if (number != nullptr) return nb::steal(number);
    // Nobody could ever release it.
    unlock(self.state, receipt);
    self.state.changed = false;
    throw nb::python_error();
}

nb::object do_lock(CacheCore& self, nb::handle tokens, nb::handle namespace_id, nb::handle pages) {
    return self.operate(Operation::LOCK, [&] {
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        const std::optional<int64_t> asked = whole_number_or_none(pages, "pages");
        return handed_out(self, lock(self.state, first_pages(given.key, asked)));
    });
}

nb::object do_lock_found(CacheCore& self, nb::handle match, nb::handle pages) {
    return self.operate(Operation::LOCK, [&] {
        if (!nb::isinstance<Matched>(match)) {
            throw BadArgument("found", "is no match; give what `match` returned");
        }
        const auto& found = nb::cast<const Matched&>(match);
        if (found.serial != self.state.serial) {
            throw BadArgument("found", "is a match of another cache");
        }
        const int64_t asked = whole_number_or_none(pages, "pages").value_or(found.prefix_pages);
        if (asked < 0 || asked > found.prefix_pages) {
            throw BadArgument("pages", "is " + std::to_string(asked) + "; the match found " +
                                           std::to_string(found.prefix_pages) + " pages");
        }
        return handed_out(self, lock_found(self.state, found, static_cast<int32_t>(asked)));
    });
}

void do_unlock(CacheCore& self, nb::handle receipt) {
    self.operate(Operation::UNLOCK, [&] { unlock(self.state, receipt_number(receipt)); });
}

void do_unlock_window(CacheCore& self, nb::handle receipt) {
    self.operate(Operation::UNLOCK_WINDOW,
                 [&] { unlock_window(self.state, receipt_number(receipt)); });
}

nb::tuple do_allocate(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::ALLOCATE, [&] {
        self.refuse_if_caller_copies();
        const SlotLists slots = allocate(self.state, counts_of(full, swa, mamba));
        try {
            return arrays_of(slots);
        } catch (...) {
            take_back(self.state, slots);
            throw;
        }
    });
}

void do_free(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    self.operate(Operation::FREE, [&] {
        self.refuse_if_caller_copies();
        free_slots(self.state, slots_of(full, swa, mamba));
    });
}

StatePages state_pages_of(nb::handle pages) {
    StatePages numbers;
    if (!nb::try_cast(pages, numbers)) {
        throw BadArgument("state_pages", "is not made of whole numbers");
    }
    return numbers;
}

Inserted do_insert(CacheCore& self, nb::handle tokens, nb::handle start_pages, nb::handle full,
                   nb::handle swa, nb::handle mamba, nb::handle namespace_id,
                   nb::handle counted_pages, nb::handle priority, nb::handle after,
                   nb::handle state_pages) {
    return self.operate(Operation::INSERT, [&] {
        self.refuse_if_caller_copies();
        const PyEngine::After point(self.engine, after);
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        return insert(self.state, given.key, whole_number(start_pages, "start_pages"),
                      slots_of(full, swa, mamba), whole_number(counted_pages, "counted_pages"),
                      whole_number(priority, "priority"), state_pages_of(state_pages));
    });
}

Three do_evict(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba,
               nb::handle after) {
    return self.operate(Operation::EVICT, [&] {
        self.refuse_if_caller_copies();
        const PyEngine::After point(self.engine, after);
        const Counts counts = counts_of(full, swa, mamba);
        check_counts(counts);
        return three_of(evict(self.state, counts));
    });
}

Three do_evict_host(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::EVICT_HOST, [&] {
        self.refuse_if_caller_copies();
        const Counts counts = counts_of(full, swa, mamba);
        check_counts(counts);
        return three_of(evict_host(self.state, counts));
    });
}

LoadedBack do_load_back(CacheCore& self, nb::handle tokens, nb::handle quota_pages,
                        nb::handle namespace_id, nb::handle after) {
    return self.operate(Operation::LOAD_BACK, [&] {
        self.refuse_if_caller_copies();
        const PyEngine::After point(self.engine, after);
        const std::optional<int64_t> quota = whole_number_or_none(quota_pages, "quota_pages");
        if (quota && *quota < 0) {
            throw BadArgument("quota_pages",
                              "is " + std::to_string(*quota) + "; it must be at least 0");
        }
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        return load_back(self.state, given.key, quota.value_or(-1));
    });
}

nb::tuple do_reserve_host(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::RESERVE_HOST, [&] {
        self.refuse_if_caller_copies();
        const SlotLists slots = reserve_host(self.state, counts_of(full, swa, mamba));
        try {
            nb::tuple arrays = arrays_of(slots);
            if (self.state.config.has_store) self.engine.object().attr("keep_unread")(arrays[0]);
            return arrays;
        } catch (...) {
            take_back(self.state, slots, CPU);
            throw;
        }
    });
}

void do_abort_host(CacheCore& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    self.operate(Operation::ABORT_HOST, [&] {
        self.refuse_if_caller_copies();
        free_slots(self.state, slots_of(full, swa, mamba, CPU), CPU);
    });
}

nb::tuple do_commit_host(CacheCore& self, nb::handle tokens, nb::handle start_pages,
                         nb::handle full, nb::handle swa, nb::handle mamba,
                         nb::handle namespace_id) {
    return self.operate(Operation::COMMIT_HOST, [&] {
        self.refuse_if_caller_copies();
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        const HostInserted done =
            commit_host(self.state, given.key, whole_number(start_pages, "start_pages"),
                        slots_of(full, swa, mamba, CPU));
        return nb::make_tuple(done.placed_pages, done.refilled_pages, done.present_pages,
                              done.dropped_pages);
    });
}

HostSlots do_host_slots(CacheCore& self, nb::handle tokens, nb::handle namespace_id) {
    return self.operate(Operation::HOST_SLOTS, [&] {
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        return host_slots(self.state, given.key);
    });
}

nb::tuple do_insert_host(CacheCore& self, nb::handle tokens, nb::handle start_pages,
                         const Three& payloads, nb::handle namespace_id, nb::handle write) {
    return self.operate(Operation::INSERT_HOST, [&] {
        self.refuse_if_caller_copies();
        const GivenKey given = self.key(tokens, namespace_id_of(namespace_id));
        const Counts counts{{payloads[FULL], payloads[SWA], payloads[MAMBA]}};
        const HostInserted done =
            insert_host(self.state, given.key, whole_number(start_pages, "start_pages"), counts);
        nb::list placements;
        for (const Placement& each : done.placements) {
            placements.append(
                nb::make_tuple(static_cast<int>(each.component), each.first, array_of(each.slots)));
        }
        // Within the call: if the bytes cannot be written, the cache must not be used.
        if (!write.is_none()) write(placements);
        return nb::make_tuple(done.placed_pages, done.refilled_pages, done.present_pages,
                              done.dropped_pages);
    });
}

nb::tuple do_arrived(CacheCore& self) {
    return self.operate(Operation::ARRIVED, [&] {
        nb::list listed;
        for (const auto& [transfer_id, done] : arrived(self.state)) {
            listed.append(nb::make_tuple(transfer_id, done));
        }
        return nb::tuple(listed);
    });
}

nb::tuple do_settle(CacheCore& self, nb::handle completions) {
    return self.operate(Operation::SETTLE, [&] {
        Completions named;
        if (!nb::try_cast(completions, named)) {
            throw BadArgument("completions",
                              "are not pairs of a transfer id and whether its copy succeeded");
        }
        return settled(settle_these(self.state, std::move(named)));
    });
}

nb::tuple do_poll(CacheCore& self) {
    return self.operate(Operation::POLL, [&] { return settled(settle(self.state)); });
}

nb::tuple do_flush(CacheCore& self) {
    return self.operate(Operation::FLUSH, [&] { return settled(flush(self.state)); });
}

nb::tuple count_free_slots(CacheCore& self) {
    const Counts free = free_slot_counts(self.state, GPU);
    return nb::make_tuple(free[FULL], free[SWA], free[MAMBA]);
}

void do_reset(CacheCore& self) {
    self.operate(Operation::RESET, [&] {
        // Copies that nobody can settle any more must not go on writing.
        if (!self.gate.broken.empty()) self.engine.restart();
        reset_or_recover(self.state, self.gate);
    });
}

}  // namespace

void bind_operations(nb::class_<CacheCore>& core) {
    // nanobind lets None in, so that it is refused with the same error line as other wrong values.
    const auto argument = [](const char* name) { return nb::arg(name).none(); };
    const auto number = [](const char* name) { return nb::arg(name).none() = 0; };
    const auto nothing = [](const char* name) { return nb::arg(name).none() = nb::none(); };
    const auto add = [&core](const char* name, auto function, const Docstring& doc,
                             const auto&... arguments) {
        core.def(name, function, arguments..., nb::sig(doc.signature), doc.text);
    };
    add("match", &do_match, docs::MATCH, argument("tokens"), number("namespace"));
    add("lock", &do_lock, docs::LOCK, argument("tokens"), number("namespace"), nothing("pages"));
    add("lock_found", &do_lock_found, docs::LOCK_FOUND, argument("found"), nothing("pages"));
    add("unlock", &do_unlock, docs::UNLOCK, argument("receipt"));
    add("unlock_window", &do_unlock_window, docs::UNLOCK_WINDOW, argument("receipt"));
    add("allocate", &do_allocate, docs::ALLOCATE, argument("full"), number("swa"), number("mamba"));
    add("free", &do_free, docs::FREE, argument("full"), nothing("swa"), nothing("mamba"));
    add("insert", &do_insert, docs::INSERT, argument("tokens"), argument("start_pages"),
        argument("full"), nothing("swa"), nothing("mamba"), number("namespace"),
        number("counted_pages"), number("priority"), nothing("after"),
        nb::arg("state_pages").none() = nb::tuple());
    add("evict", &do_evict, docs::EVICT, argument("full"), number("swa"), number("mamba"),
        nothing("after"));
    add("evict_host", &do_evict_host, docs::EVICT_HOST, argument("full"), number("swa"),
        number("mamba"));
    add("load_back", &do_load_back, docs::LOAD_BACK, argument("tokens"), nothing("quota_pages"),
        number("namespace"), nothing("after"));
    add("reserve_host", &do_reserve_host, docs::RESERVE_HOST, argument("full"), number("swa"),
        number("mamba"));
    add("abort_host", &do_abort_host, docs::ABORT_HOST, argument("full"), nothing("swa"),
        nothing("mamba"));
    add("host_slots", &do_host_slots, docs::HOST_SLOTS, argument("tokens"), number("namespace"));
    add("free_slot_counts", &count_free_slots, docs::FREE_SLOT_COUNTS);
    // PrefixCache makes public calls of these, in terms of kvcanon.spec.
    core.def("_insert_host", &do_insert_host, argument("tokens"), argument("start_pages"),
             nb::arg("payloads"), number("namespace"), nothing("write"),
             nb::sig("def _insert_host(self, tokens: Tokens, start_pages: int, payloads: Three, "
                     "namespace: int = 0, write: Callable[[Placements], None] | None = None) -> "
                     "tuple[int, int, int, int]"),
             "Place fetched pages; `payloads` counts them by component, `write` gets the slots.")
        .def("_commit_host", &do_commit_host, argument("tokens"), argument("start_pages"),
             argument("full"), nothing("swa"), nothing("mamba"), number("namespace"),
             nb::sig("def _commit_host(self, tokens: Tokens, start_pages: int, full: SlotArray, "
                     "swa: SlotArray | None = None, mamba: SlotArray | None = None, "
                     "namespace: int = 0) -> tuple[int, int, int, int]"),
             "Place host slots that a client reserved and filled.")
        .def("_arrived", &do_arrived, nb::sig("def _arrived(self) -> tuple[tuple[int, bool], ...]"),
             "The transfers that can settle: each id, and whether done.")
        .def("_settle", &do_settle, argument("completions"),
             nb::sig("def _settle(self, completions: list[tuple[int, bool]]) -> Settled"),
             "Settle exactly these transfers: each id with its status.")
        .def("_poll", &do_poll, nb::sig("def _poll(self) -> Settled"),
             "Settle the transfers that have ended: each id with its status.")
        .def("_reset", &do_reset, "Forget the tree, or recover after a failure.")
        .def("_flush", &do_flush, nb::sig("def _flush(self) -> Settled"),
             "Wait for every transfer in flight, and settle it.");
}

}  // namespace kvcanon
