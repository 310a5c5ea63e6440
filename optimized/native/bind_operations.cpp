#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <optional>

#include "bind_numbers.hpp"
#include "evict.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "py_tree.hpp"
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

int64_t space_of(nb::handle number) { return whole_number(number, "namespace"); }

Key first_pages(const Key& key, std::optional<int64_t> pages) {
    if (!pages) return key;
    if (*pages < 0 || *pages > key.pages) {
        throw BadArgument("pages", "is " + std::to_string(*pages) + "; the tokens are " +
                                       std::to_string(key.pages) + " pages");
    }
    return {key.words, static_cast<int32_t>(*pages), key.space};
}

nb::tuple settled(const Settled& transfers) {
    nb::list listed;
    for (const auto& [transfer_id, status] : transfers) {
        listed.append(nb::make_tuple(transfer_id, static_cast<int>(status)));
    }
    return nb::tuple(listed);
}

// The operations. What a client hands over is looked at within its turn, since a foreign array may
// run code of Python's.

Matched do_match(PyTree& self, nb::handle tokens, nb::handle space) {
    return self.operate(Operation::MATCH, [&] {
        const GivenKey given = self.key(tokens, space_of(space));
        return match(self.state, given.key);
    });
}

uint64_t do_lock(PyTree& self, nb::handle tokens, nb::handle space, nb::handle pages) {
    return self.operate(Operation::LOCK, [&] {
        const GivenKey given = self.key(tokens, space_of(space));
        return lock(self.state, first_pages(given.key, whole_number_or_none(pages, "pages")));
    });
}

void do_unlock(PyTree& self, nb::handle receipt) {
    self.operate(Operation::UNLOCK, [&] { unlock(self.state, receipt_number(receipt)); });
}

void do_unlock_window(PyTree& self, nb::handle receipt) {
    self.operate(Operation::UNLOCK_WINDOW,
                 [&] { unlock_window(self.state, receipt_number(receipt)); });
}

nb::tuple do_allocate(PyTree& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::ALLOCATE, [&] {
        const SlotLists slots = allocate(self.state, counts_of(full, swa, mamba));
        return nb::make_tuple(array_of(slots[FULL]), array_of(slots[SWA]), array_of(slots[MAMBA]));
    });
}

void do_free(PyTree& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    self.operate(Operation::FREE, [&] { free_slots(self.state, slots_of(full, swa, mamba)); });
}

Inserted do_insert(PyTree& self, nb::handle tokens, nb::handle start_pages, nb::handle full,
                   nb::handle swa, nb::handle mamba, nb::handle space, nb::handle counted_pages,
                   nb::handle priority) {
    return self.operate(Operation::INSERT, [&] {
        const GivenKey given = self.key(tokens, space_of(space));
        return insert(self.state, given.key, whole_number(start_pages, "start_pages"),
                      slots_of(full, swa, mamba), whole_number(counted_pages, "counted_pages"),
                      whole_number(priority, "priority"));
    });
}

Three do_evict(PyTree& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::EVICT, [&] {
        const Counts counts = counts_of(full, swa, mamba);
        check_counts(counts);
        return three_of(evict(self.state, counts));
    });
}

Three do_evict_host(PyTree& self, nb::handle full, nb::handle swa, nb::handle mamba) {
    return self.operate(Operation::EVICT_HOST, [&] {
        const Counts counts = counts_of(full, swa, mamba);
        check_counts(counts);
        return three_of(evict_host(self.state, counts));
    });
}

LoadedBack do_load_back(PyTree& self, nb::handle tokens, nb::handle quota_pages, nb::handle space) {
    return self.operate(Operation::LOAD_BACK, [&] {
        const std::optional<int64_t> quota = whole_number_or_none(quota_pages, "quota_pages");
        if (quota && *quota < 0) {
            throw BadArgument("quota_pages",
                              "is " + std::to_string(*quota) + "; it must be at least 0");
        }
        const GivenKey given = self.key(tokens, space_of(space));
        return load_back(self.state, given.key, quota.value_or(-1));
    });
}

nb::tuple do_insert_host(PyTree& self, nb::handle tokens, nb::handle start_pages,
                         const Three& payloads, nb::handle space) {
    return self.operate(Operation::INSERT_HOST, [&] {
        const GivenKey given = self.key(tokens, space_of(space));
        const Counts counts{{payloads[FULL], payloads[SWA], payloads[MAMBA]}};
        const HostInserted done = insert_host(self.state, given.key,
                                              whole_number(start_pages, "start_pages"), counts);
        nb::list placements;
        for (const Placement& each : done.placements) {
            placements.append(nb::make_tuple(static_cast<int>(each.component), each.first,
                                             array_of(each.slots)));
        }
        return nb::make_tuple(done.placed_pages, done.refilled_pages, done.present_pages,
                              done.dropped_pages, placements);
    });
}

nb::tuple do_poll(PyTree& self) {
    return self.operate(Operation::POLL, [&] { return settled(settle(self.state)); });
}

nb::tuple do_flush(PyTree& self) {
    return self.operate(Operation::FLUSH, [&] { return settled(flush(self.state)); });
}

void do_reset(PyTree& self) {
    self.operate(Operation::RESET, [&] { reset(self.state); });
}

}  // namespace

void bind_operations(nb::class_<PyTree>& tree) {
    // None goes in wherever it comes: what is wrong with it is said in the same words as ever.
    const auto argument = [](const char* name) { return nb::arg(name).none(); };
    const auto number = [](const char* name) { return nb::arg(name).none() = 0; };
    const auto nothing = [](const char* name) { return nb::arg(name).none() = nb::none(); };
    tree.def("match", &do_match, argument("tokens"), number("namespace"))
        .def("lock", &do_lock, argument("tokens"), number("namespace"), nothing("pages"))
        .def("unlock", &do_unlock, argument("receipt"))
        .def("unlock_window", &do_unlock_window, argument("receipt"))
        .def("allocate", &do_allocate, argument("full"), number("swa"), number("mamba"))
        .def("free", &do_free, argument("full"), nothing("swa"), nothing("mamba"))
        .def("insert", &do_insert, argument("tokens"), argument("start_pages"), argument("full"),
             nothing("swa"), nothing("mamba"), number("namespace"), number("counted_pages"),
             number("priority"))
        .def("evict", &do_evict, argument("full"), number("swa"), number("mamba"))
        .def("evict_host", &do_evict_host, argument("full"), number("swa"), number("mamba"))
        .def("load_back", &do_load_back, argument("tokens"), nothing("quota_pages"),
             number("namespace"))
        .def("insert_host", &do_insert_host, argument("tokens"), argument("start_pages"),
             nb::arg("payloads"), number("namespace"))
        .def("poll", &do_poll)
        .def("flush", &do_flush)
        .def("reset", &do_reset);
}

}  // namespace kvcanon
