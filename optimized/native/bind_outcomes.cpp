#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <optional>

#include "insert.hpp"
#include "load.hpp"
#include "match.hpp"
#include "py_tree.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

std::array<int64_t, COMPONENTS> three_of(const Counts& counts) {
    return {counts[FULL], counts[SWA], counts[MAMBA]};
}

nb::tuple ids(const std::vector<uint64_t>& numbers) {
    nb::list listed;
    for (const uint64_t number : numbers) listed.append(number);
    return nb::tuple(listed);
}

// The values of `LoadDecision` in the book.
const char* decision(const LoadedBack& self) {
    switch (self.decision) {
        case LoadDecision::ENQUEUED: return "enqueued";
        case LoadDecision::NOTHING_TO_LOAD: return "nothing_to_load";
        case LoadDecision::BELOW_THRESHOLD: return "below_threshold";
        case LoadDecision::OVER_QUOTA: return "over_quota";
        case LoadDecision::NO_ROOM: break;
    }
    return "no_room";
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

}  // namespace

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
        .def_prop_ro("decision", &decision)
        .def_prop_ro("transfer_id",
                     [](const LoadedBack& self) -> std::optional<uint64_t> {
                         if (self.transfer_id == 0) return std::nullopt;
                         return self.transfer_id;
                     })
        .def_prop_ro("loading", [](const LoadedBack& self) { return three_of(self.loading); })
        .def_prop_ro("evicted", [](const LoadedBack& self) { return three_of(self.evicted); });
    bind_slots(loaded);
}

}  // namespace kvcanon
