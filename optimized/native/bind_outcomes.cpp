#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <string>

#include "bind_reprs.hpp"
#include "cache_core.hpp"
#include "docstrings.hpp"
#include "enum_values.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "match.hpp"

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

const char* decision(const LoadedBack& self) {
    return LOAD_DECISION_VALUES[number_of(self.decision)];
}

// The slots of an outcome, an array each, made when it is read.
template <typename Outcome>
void bind_slots(nb::class_<Outcome>& outcome) {
    for (const Component component : ALL_COMPONENTS) {
        outcome.def_prop_ro(
            name_of(component),
            [component](const Outcome& self) { return array_of(self.slots[component]); },
            nb::rv_policy::automatic, "Slots, an int32 array that is made when it is read.");
    }
}

std::string text_of(const Counts& counts) {
    return "[" + std::to_string(counts[FULL]) + ", " + std::to_string(counts[SWA]) + ", " +
           std::to_string(counts[MAMBA]) + "]";
}

ReprText& add_slots(ReprText& text, const SlotLists& slots) {
    for (const Component component : ALL_COMPONENTS) {
        text.add_slots(name_of(component), slots[component]);
    }
    return text;
}

std::string repr_of_match(const Matched& self) {
    ReprText text("Matched");
    text.add("prefix_pages", self.prefix_pages).add("device_pages", self.device_pages);
    return add_slots(text, self.slots).add_ids("pending", self.pending).done();
}

std::string repr_of_insert(const Inserted& self) {
    ReprText text("Inserted");
    text.add("present_pages", self.present_pages)
        .add("adopted", text_of(self.adopted))
        .add("freed", text_of(self.freed))
        .add_ids("backups", self.backups);
    if (self.backup_declined_pages != 0) {
        text.add("backup_declined_pages", self.backup_declined_pages);
    }
    return text.done();
}

std::string repr_of_load(const LoadedBack& self) {
    ReprText text("LoadedBack");
    text.add("decision", "'" + std::string(decision(self)) + "'");
    if (self.transfer_id != 0) text.add("transfer_id", static_cast<int64_t>(self.transfer_id));
    text.add("loading", text_of(self.loading)).add("evicted", text_of(self.evicted));
    return add_slots(text, self.slots).done();
}

std::string repr_of_host(const HostSlots& self) {
    ReprText text("HostSlots");
    return add_slots(text.add("pages", self.pages), self.slots).done();
}

}  // namespace

void bind_outcomes(nb::module_& m) {
    nb::class_<Matched> matched(m, "Matched", docs::MATCHED);
    matched.def_ro("prefix_pages", &Matched::prefix_pages, "Pages of the prefix, on any medium.")
        .def_ro("device_pages", &Matched::device_pages,
                "Pages of the prefix that can be used on the device now.")
        .def_ro("branch_pages", &Matched::walked_pages,
                "Pages of the prompt that are in the tree, usable or not.")
        .def_prop_ro(
            "pending", [](const Matched& self) { return ids(self.pending); },
            nb::for_getter(nb::sig("def pending(self) -> tuple[int, ...]")),
            "Ids of the load-backs in flight along the prefix.")
        .def("__repr__", &repr_of_match);
    bind_slots(matched);
    nb::class_<Inserted>(m, "Inserted", "Where the slots of an insert went, by component.")
        .def_ro("present_pages", &Inserted::present_pages,
                "Pages of the prompt that the tree had before.")
        .def_prop_ro(
            "adopted", [](const Inserted& self) { return three_of(self.adopted); },
            "Slots that the tree took over.")
        .def_prop_ro(
            "freed", [](const Inserted& self) { return three_of(self.freed); },
            "Slots that came free, because the tree had their pages.")
        .def_prop_ro(
            "backups", [](const Inserted& self) { return ids(self.backups); },
            nb::for_getter(nb::sig("def backups(self) -> tuple[int, ...]")),
            "Ids of the backups that the insert enqueued.")
        .def_ro("backup_declined_pages", &Inserted::backup_declined_pages,
                "Pages that were not backed up, because the host had too few free slots.")
        .def("__repr__", &repr_of_insert);
    nb::class_<LoadedBack> loaded(m, "LoadedBack", docs::LOADED_BACK);
    loaded.def_prop_ro("decision", &decision, "A value of kvcanon.spec.operations.LoadDecision.")
        .def_prop_ro(
            "transfer_id",
            [](const LoadedBack& self) -> std::optional<uint64_t> {
                if (self.transfer_id == 0) return std::nullopt;
                return self.transfer_id;
            },
            "Id of the transfer; None where nothing was enqueued.")
        .def_prop_ro(
            "loading", [](const LoadedBack& self) { return three_of(self.loading); },
            "Slots that are being filled, by component.")
        .def_prop_ro(
            "evicted", [](const LoadedBack& self) { return three_of(self.evicted); },
            "Device slots that were evicted for the load, by component.")
        .def("__repr__", &repr_of_load);
    bind_slots(loaded);
    nb::class_<HostSlots> on_host(m, "HostSlots", docs::HOST_SLOTS_FOUND);
    on_host.def_ro("pages", &HostSlots::pages, "Pages of the prompt that are on the host.")
        .def("__repr__", &repr_of_host);
    bind_slots(on_host);
}

}  // namespace kvcanon
