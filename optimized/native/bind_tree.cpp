#include "bind_tree.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "announce.hpp"
#include "bind_errors.hpp"
#include "check.hpp"
#include "evict.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "py_tree.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

using Three = std::array<int64_t, COMPONENTS>;
using MaybeSlots = std::optional<ArrayIn>;

Counts counts_of(const Three& three) {
    Counts counts;
    std::copy(three.begin(), three.end(), counts.of);
    return counts;
}

Three three_of(const Counts& counts) { return {counts[FULL], counts[SWA], counts[MAMBA]}; }

nb::tuple arrays_of(const SlotLists& slots) {
    return nb::make_tuple(array_of(slots[FULL]), array_of(slots[SWA]), array_of(slots[MAMBA]));
}

SlotLists lists_of(const ArrayIn& full, const MaybeSlots& swa, const MaybeSlots& mamba) {
    SlotLists slots;
    slots[FULL] = slots_of(full, "full");
    if (swa) slots[SWA] = slots_of(*swa, "swa");
    if (mamba) slots[MAMBA] = slots_of(*mamba, "mamba");
    return slots;
}

// Receipts of different trees differ, so that one does not take another's for its own.
uint64_t next_serial() {
    static uint64_t serial = 0;
    return serial++ & 0x7fffff;
}

void make_tree(PyTree* self, int32_t page_size, int32_t unit_words, int64_t window_tokens,
               bool mamba, const Three& device_slots, const Three& host_slots, int write_policy,
               int eviction_policy, int64_t load_back_threshold_pages, bool events,
               nb::object engine) {
    Config config;
    config.page_size = page_size;
    config.page_words = page_size * unit_words;
    config.window_tokens = window_tokens;
    config.mamba = mamba;
    config.device_slots = counts_of(device_slots);
    config.host_slots = counts_of(host_slots);
    for (const Three& slots : {device_slots, host_slots}) {
        for (const int64_t capacity : slots) {
            if (capacity > std::numeric_limits<int32_t>::max()) {
                throw BadArgument("slots", std::to_string(capacity) + " are more than 2**31 - 1");
            }
        }
    }
    config.write_policy = static_cast<WritePolicy>(write_policy);
    config.eviction_policy = static_cast<EvictionPolicy>(eviction_policy);
    config.load_back_threshold_pages = load_back_threshold_pages;
    config.events = events;
    new (self) PyTree(config, std::move(engine));
    self->state.serial = next_serial();
    announce_cleared(self->state);
}

int64_t namespace_number(PyTree& tree, nb::bytes encoded, nb::bytes seed) {
    State& state = tree.state;
    const auto next = static_cast<uint32_t>(state.spaces.size());
    const auto [found, added] =
        state.space_numbers.emplace(std::string(encoded.c_str(), encoded.size()), next);
    if (added) {
        if (seed.size() > NAME_BYTES) throw BadArgument("seed", "has more than 32 bytes");
        Namespace space{found->first, {}, seed.size()};
        std::memcpy(space.seed, seed.c_str(), seed.size());
        state.spaces.push_back(space);
    }
    return found->second;
}

Key first_pages(const Key& key, std::optional<int64_t> pages) {
    if (!pages) return key;
    if (*pages < 0 || *pages > key.pages) {
        throw BadArgument("pages", "is " + std::to_string(*pages) + "; the tokens are " +
                                       std::to_string(key.pages) + " pages");
    }
    return {key.words, static_cast<int32_t>(*pages), key.space};
}

void reset(PyTree& tree) {
    State& state = tree.state;
    if (!state.holds.empty()) throw CacheBusy(static_cast<int64_t>(state.holds.size()));
    free_tree(state);
    forget_tree(state);
    announce_cleared(state);
}

nb::tuple settled(const Settled& transfers) {
    nb::list listed;
    for (const auto& [transfer_id, status] : transfers) {
        listed.append(nb::make_tuple(transfer_id, static_cast<int>(status)));
    }
    return nb::tuple(listed);
}

nb::tuple ids(const std::vector<uint64_t>& numbers) {
    nb::list listed;
    for (const uint64_t number : numbers) listed.append(number);
    return nb::tuple(listed);
}

// The slots of an outcome, an array each, made when it is asked for.
template <typename Outcome>
void bind_slots(nb::class_<Outcome>& outcome) {
    for (const Component component : {FULL, SWA, MAMBA}) {
        outcome.def_prop_ro(
            name_of(component),
            [component](const Outcome& self) { return array_of(self.slots[component]); },
            nb::rv_policy::automatic);
    }
}

void bind_outcomes(nb::module_& m) {
    nb::class_<Matched> matched(m, "Matched");
    matched.def_ro("prefix_pages", &Matched::prefix_pages)
        .def_ro("device_pages", &Matched::device_pages)
        .def_prop_ro("pending", [](const Matched& self) { return ids(self.pending); });
    bind_slots(matched);
    nb::class_<Inserted>(m, "Inserted")
        .def_ro("present_pages", &Inserted::present_pages)
        .def_prop_ro("adopted", [](const Inserted& self) { return three_of(self.adopted); })
        .def_prop_ro("freed", [](const Inserted& self) { return three_of(self.freed); })
        .def_prop_ro("backups", [](const Inserted& self) { return ids(self.backups); })
        .def_ro("backup_declined_pages", &Inserted::backup_declined_pages);
    nb::class_<LoadedBack> loaded(m, "LoadedBack");
    loaded
        .def_prop_ro("decision",
                     [](const LoadedBack& self) { return static_cast<int>(self.decision); })
        .def_prop_ro("transfer_id",
                     [](const LoadedBack& self) -> std::optional<uint64_t> {
                         if (self.transfer_id == 0) return std::nullopt;
                         return self.transfer_id;
                     })
        .def_prop_ro("loading", [](const LoadedBack& self) { return three_of(self.loading); })
        .def_prop_ro("evicted", [](const LoadedBack& self) { return three_of(self.evicted); });
    bind_slots(loaded);
}

void bind_operations(nb::class_<PyTree>& tree) {
    tree.def(
            "match",
            [](PyTree& self, const ArrayIn& tokens, int64_t space) {
                return match(self.state, self.key(tokens, space));
            },
            "tokens"_a, "namespace"_a = 0)
        .def(
            "lock",
            [](PyTree& self, const ArrayIn& tokens, int64_t space, std::optional<int64_t> pages) {
                return lock(self.state, first_pages(self.key(tokens, space), pages));
            },
            "tokens"_a, "namespace"_a = 0, "pages"_a = nb::none())
        .def("unlock", [](PyTree& self, uint64_t receipt) { unlock(self.state, receipt); },
             "receipt"_a)
        .def("unlock_window",
             [](PyTree& self, uint64_t receipt) { unlock_window(self.state, receipt); },
             "receipt"_a)
        .def(
            "allocate",
            [](PyTree& self, int64_t full, int64_t swa, int64_t mamba) {
                return arrays_of(allocate(self.state, counts_of({full, swa, mamba})));
            },
            "full"_a, "swa"_a = 0, "mamba"_a = 0)
        .def(
            "free",
            [](PyTree& self, const ArrayIn& full, const MaybeSlots& swa, const MaybeSlots& mamba) {
                free_slots(self.state, lists_of(full, swa, mamba));
            },
            "full"_a, "swa"_a = nb::none(), "mamba"_a = nb::none())
        .def(
            "insert",
            [](PyTree& self, const ArrayIn& tokens, int64_t start_pages, const ArrayIn& full,
               const MaybeSlots& swa, const MaybeSlots& mamba, int64_t space, int64_t counted_pages,
               int64_t priority) {
                return insert(self.state, self.key(tokens, space), start_pages,
                              lists_of(full, swa, mamba), counted_pages, priority);
            },
            "tokens"_a, "start_pages"_a, "full"_a, "swa"_a = nb::none(), "mamba"_a = nb::none(),
            "namespace"_a = 0, "counted_pages"_a = 0, "priority"_a = 0)
        .def(
            "evict",
            [](PyTree& self, int64_t full, int64_t swa, int64_t mamba) {
                const Counts counts = counts_of({full, swa, mamba});
                check_counts(counts);
                return three_of(evict(self.state, counts));
            },
            "full"_a, "swa"_a = 0, "mamba"_a = 0)
        .def(
            "evict_host",
            [](PyTree& self, int64_t full, int64_t swa, int64_t mamba) {
                const Counts counts = counts_of({full, swa, mamba});
                check_counts(counts);
                return three_of(evict_host(self.state, counts));
            },
            "full"_a, "swa"_a = 0, "mamba"_a = 0)
        .def(
            "load_back",
            [](PyTree& self, const ArrayIn& tokens, std::optional<int64_t> quota_pages,
               int64_t space) {
                if (quota_pages && *quota_pages < 0) {
                    throw BadArgument("quota_pages", "is " + std::to_string(*quota_pages) +
                                                         "; it must be at least 0");
                }
                return load_back(self.state, self.key(tokens, space), quota_pages.value_or(-1));
            },
            "tokens"_a, "quota_pages"_a = nb::none(), "namespace"_a = 0)
        .def(
            "insert_host",
            [](PyTree& self, const ArrayIn& tokens, int64_t start_pages, const Three& payloads,
               int64_t space) {
                const HostInserted done = insert_host(self.state, self.key(tokens, space),
                                                      start_pages, counts_of(payloads));
                nb::list placements;
                for (const Placement& each : done.placements) {
                    placements.append(nb::make_tuple(static_cast<int>(each.component), each.first,
                                                     array_of(each.slots)));
                }
                return nb::make_tuple(done.placed_pages, done.refilled_pages, done.present_pages,
                                      done.dropped_pages, placements);
            },
            "tokens"_a, "start_pages"_a, "payloads"_a, "namespace"_a = 0)
        .def("poll", [](PyTree& self) { return settled(settle(self.state)); })
        .def("flush", [](PyTree& self) { return settled(flush(self.state)); })
        .def("reset", &reset);
}

}  // namespace

void bind_tree(nb::module_& m) {
    bind_errors();
    bind_outcomes(m);
    nb::class_<PyTree> tree(m, "Tree");
    tree.def("__init__", &make_tree, nb::kw_only(), "page_size"_a, "unit_words"_a,
             "window_tokens"_a, "mamba"_a, "device_slots"_a, "host_slots"_a, "write_policy"_a,
             "eviction_policy"_a, "load_back_threshold_pages"_a, "events"_a, "engine"_a.none());
    tree.def("namespace", &namespace_number, "encoded"_a, "seed"_a);
    bind_operations(tree);
    bind_events(m, tree);
    bind_inspection(tree);
    tree.def("check", [](PyTree& self) { check(self.state); });
}

}  // namespace kvcanon
