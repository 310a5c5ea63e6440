#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "bind_rows.hpp"
#include "docstrings_nodes.hpp"
#include "node_moves.hpp"
#include "nodes_view.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

using Three = std::array<int64_t, COMPONENTS>;

Three three_of(const Counts& counts) { return {counts[FULL], counts[SWA], counts[MAMBA]}; }

nb::list cuts_of(const std::vector<NodeCut>& cuts) {
    nb::list listed;
    for (const NodeCut& cut : cuts) listed.append(nb::make_tuple(cut.upper, cut.lower, cut.pages));
    return listed;
}

}  // namespace

nb::tuple freed_on(const Journal& journal, Medium medium) {
    nb::list listed;
    for (const Component component : ALL_COMPONENTS) {
        const Runs& slots = journal.freed[component][medium];
        listed.append(rows_or_none(slots));
    }
    return nb::tuple(listed);
}

void bind_node_results(nb::module_& m) {
    nb::class_<NodeMatched>(m, "NodeMatched", docs::NODE_MATCHED)
        .def_ro("prefix_pages", &NodeMatched::prefix_pages, "Pages of the prefix, on any medium.")
        .def_ro("device_pages", &NodeMatched::device_pages,
                "Pages of the prefix that can be used on the device now.")
        .def_ro("walked_pages", &NodeMatched::walked_pages,
                "Pages of the prompt that the tree has, usable or not.")
        .def_ro("end", &NodeMatched::end, "The node at which the prefix ends.")
        .def_ro("device_end", &NodeMatched::device_end,
                "The node at which its part on the device ends.")
        .def_ro("last", &NodeMatched::last, "The lowest node that has a page of the prompt.")
        .def_prop_ro(
            "host_only", [](const NodeMatched& self) { return three_of(self.host_only); },
            "Slots that a load of the prefix would fill, by component.")
        .def_prop_ro(
            "cuts", [](const NodeMatched& self) { return cuts_of(self.cuts); },
            "Nodes that were cut: the new upper node, the lower one, and the pages of the upper.");
    nb::class_<NodeInserted>(m, "NodeInserted", docs::NODE_INSERTED)
        .def_ro("end", &NodeInserted::end, "The node at which the prompt ends.")
        .def_ro("walked_pages", &NodeInserted::walked_pages,
                "Pages of the prompt that the tree had before, on any medium.")
        .def_prop_ro(
            "full",
            [](const NodeInserted& self) {
                nb::list listed;
                for (const Adopted& each : self.full) {
                    listed.append(nb::make_tuple(each.begin, nb::cast(each.rows)));
                }
                return listed;
            },
            "Full data that the tree took: the first page, and the rows.")
        .def_prop_ro(
            "windows",
            [](const NodeInserted& self) {
                nb::list listed;
                for (const AdoptedWindow& each : self.windows) {
                    listed.append(
                        nb::make_tuple(each.node, each.pages.begin, each.pages.end, each.healed));
                }
                return listed;
            },
            "Nodes that took window data: handle, pages, and whether full data is the node's own.")
        .def_prop_ro(
            "state",
            [](const NodeInserted& self) -> nb::object {
                if (!self.state) return nb::none();
                return nb::int_(self.state.begin()->begin);
            },
            "The row of the state; None where the tree did not take it.")
        .def_prop_ro(
            "duplicates",
            [](const NodeInserted& self) {
                nb::list listed;
                for (const Pages& each : self.duplicates) {
                    listed.append(nb::make_tuple(each.begin, each.end));
                }
                return listed;
            },
            "Pages of the caller that the tree had: first, and one past the last.")
        .def_ro("wanted", &NodeInserted::wanted,
                "The nodes to copy to the host, in this order, where the caller copies.")
        .def_ro("wanted_end", &NodeInserted::wanted_end,
                "The lowest of them, which the others are above; 0 for none.")
        .def_prop_ro(
            "cuts", [](const NodeInserted& self) { return cuts_of(self.cuts); },
            "Nodes that were cut: the new upper node, the lower one, and the pages of the upper.");
    nb::class_<EvictStep>(m, "EvictStep", docs::EVICT_STEP)
        .def_ro("node", &EvictStep::node, "The last victim; 0 where nothing more can leave.")
        .def_ro("copy_first", &EvictStep::copy_first,
                "Whether the caller copies it first; nothing has changed then.")
        .def_ro("whole", &EvictStep::whole, "Whether the node leaves the device as a whole.")
        .def_ro("lost", &EvictStep::lost, "Full slots that left and have no copy on the host.")
        .def_prop_ro(
            "lacks", [](const EvictStep& self) { return three_of(self.lacks); },
            "Slots that the victim needs on the host, by component.")
        .def_prop_ro(
            "device", [](const EvictStep& self) { return freed_on(self.journal, GPU); },
            "Device slots that came free; window slots by the full slots of their pages.")
        .def_prop_ro(
            "host", [](const EvictStep& self) { return freed_on(self.journal, CPU); },
            "Host slots that came free, by component, or None.");
}

}  // namespace kvcanon
