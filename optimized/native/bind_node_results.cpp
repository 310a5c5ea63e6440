#include <nanobind/stl/vector.h>

#include "bind_rows.hpp"
#include "docstrings_nodes.hpp"
#include "node_moves.hpp"
#include "nodes_view.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

// Results are tuples whose fields have names: an engine reads all of them in each request, and a
// property that calls C++ would take it several times as long.
PyTypeObject* matched_type = nullptr;
PyTypeObject* inserted_type = nullptr;
PyTypeObject* step_type = nullptr;

PyStructSequence_Field MATCHED_FIELDS[] = {
    {"prefix_pages", "Pages of the prefix, on any medium."},
    {"device_pages", "Pages of the prefix that can be used on the device now."},
    {"walked_pages", "Pages of the prompt that the tree has, usable or not."},
    {"end", "The node at which the prefix ends."},
    {"device_end", "The node at which its part on the device ends."},
    {"last", "The lowest node that has a page of the prompt."},
    {"host_only", "Slots that a load of the prefix would fill, by component."},
    {"cuts", "Nodes that were cut: the new upper node, the lower one, and the pages of the upper."},
    {nullptr, nullptr}};

PyStructSequence_Field INSERTED_FIELDS[] = {
    {"end", "The node at which the prompt ends."},
    {"walked_pages", "Pages of the prompt that the tree had before, on any medium."},
    {"full", "Full data that the tree took: the first page, and the rows."},
    {"healed",
     "Full data that got window data, where no lock holds it: the first page, and the rows."},
    {"windows", "Window data: end, above, first page, one past the last, and if full is locked."},
    {"state", "The row of the state; None where the tree did not take it."},
    {"duplicates",
     "Pages of the caller that were there, but those of window data: first, one past the last."},
    {"wanted", "The nodes to copy to the host, in this order, where the caller copies."},
    {"wanted_end", "The lowest of them, which the others are above; 0 for none."},
    {"cuts", "Nodes that were cut: the new upper node, the lower one, and the pages of the upper."},
    {nullptr, nullptr}};

PyStructSequence_Field STEP_FIELDS[] = {
    {"node", "The last victim; 0 where nothing more can leave."},
    {"copy_first", "Whether the caller copies it first; nothing has changed then."},
    {"whole", "Whether the node leaves the device as a whole."},
    {"lost", "Full slots that left and have no copy on the host."},
    {"lacks", "Slots that the victim needs on the host, by component."},
    {"device", "Device slots that came free; window slots by the full slots of their pages."},
    {"host", "Host slots that came free, by component, or None."},
    {nullptr, nullptr}};

PyTypeObject* add_type(nb::module_& m, const char* name, const char* full_name, const char* doc,
                       PyStructSequence_Field* fields) {
    int count = 0;
    while (fields[count].name != nullptr) ++count;
    PyStructSequence_Desc description{full_name, doc, fields, count};
    PyTypeObject* type = PyStructSequence_NewType(&description);
    if (type == nullptr) nb::raise_python_error();
    m.attr(name) = nb::handle(reinterpret_cast<PyObject*>(type));
    return type;
}

// A result with these values, in the order of its fields.
template <typename... Values>
nb::object result(PyTypeObject* type, const Values&... values) {
    nb::object made = nb::steal(PyStructSequence_New(type));
    if (!made.is_valid()) nb::raise_python_error();
    Py_ssize_t at = 0;
    (PyStructSequence_SetItem(made.ptr(), at++, nb::cast(values).release().ptr()), ...);
    return made;
}

nb::tuple three_of(const Counts& counts) {
    return nb::make_tuple(counts[FULL], counts[SWA], counts[MAMBA]);
}

nb::list adopted_of(const std::vector<Adopted>& adopted) {
    nb::list listed;
    for (const Adopted& each : adopted) listed.append(nb::make_tuple(each.begin, each.rows));
    return listed;
}

nb::list cuts_of(const std::vector<NodeCut>& cuts) {
    nb::list listed;
    for (const NodeCut& cut : cuts) listed.append(nb::make_tuple(cut.upper, cut.lower, cut.pages));
    return listed;
}

}  // namespace

nb::tuple freed_on(const Journal& journal, Medium medium) {
    return nb::make_tuple(rows_or_none(journal.freed[FULL][medium]),
                          rows_or_none(journal.freed[SWA][medium]),
                          rows_or_none(journal.freed[MAMBA][medium]));
}

nb::object matched_of(const NodeMatched& found) {
    return result(matched_type, found.prefix_pages, found.device_pages, found.walked_pages,
                  found.end, found.device_end, found.last, three_of(found.host_only),
                  cuts_of(found.cuts));
}

nb::object inserted_of(const NodeInserted& done) {
    nb::list windows, duplicates;
    for (const AdoptedWindow& each : done.windows) {
        windows.append(
            nb::make_tuple(each.end, each.above, each.pages.begin, each.pages.end, each.locked));
    }
    for (const Pages& each : done.duplicates) {
        duplicates.append(nb::make_tuple(each.begin, each.end));
    }
    nb::object state = nb::none();
    if (done.state) state = nb::int_(done.state.begin()->begin);
    return result(inserted_type, done.end, done.walked_pages, adopted_of(done.full),
                  adopted_of(done.healed), windows, state, duplicates, done.wanted, done.wanted_end,
                  cuts_of(done.cuts));
}

nb::object step_of(const EvictStep& step) {
    return result(step_type, step.node, step.copy_first, step.whole, step.lost,
                  three_of(step.lacks), freed_on(step.journal, GPU), freed_on(step.journal, CPU));
}

void bind_node_results(nb::module_& m) {
    matched_type = add_type(m, "NodeMatched", "kvcanon.optimized._core.NodeMatched",
                            docs::NODE_MATCHED, MATCHED_FIELDS);
    inserted_type = add_type(m, "NodeInserted", "kvcanon.optimized._core.NodeInserted",
                             docs::NODE_INSERTED, INSERTED_FIELDS);
    step_type = add_type(m, "EvictStep", "kvcanon.optimized._core.EvictStep", docs::EVICT_STEP,
                         STEP_FIELDS);
}

}  // namespace kvcanon
