#include <nanobind/stl/vector.h>

#include "bind_named_tuples.hpp"
#include "bind_rows.hpp"
#include "node_moves.hpp"
#include "nodes_view.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

// Never released.
PyObject *matched_type = nullptr, *inserted_type = nullptr, *step_type = nullptr,
         *fetched_type = nullptr;
PyObject *no_counts = nullptr, *no_rows = nullptr;

}  // namespace

// Most steps copy nothing and free nothing on the host: the tuples for that are made once.
nb::tuple three_of(const Counts& counts) {
    if (!counts) return nb::borrow<nb::tuple>(no_counts);
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

nb::list windows_of(const std::vector<AdoptedWindow>& windows) {
    nb::list listed;
    for (const AdoptedWindow& each : windows) {
        listed.append(
            nb::make_tuple(each.end, each.above, each.pages.begin, each.pages.end, each.locked));
    }
    return listed;
}

nb::list pages_of(const std::vector<Pages>& ranges) {
    nb::list listed;
    for (const Pages& each : ranges) listed.append(nb::make_tuple(each.begin, each.end));
    return listed;
}

nb::object state_row_of(const NodeInserted& done) {
    return done.state ? nb::object(nb::int_(done.state.begin()->begin)) : nb::object(nb::none());
}

nb::tuple freed_on(const Journal& journal, Medium medium) {
    if (!journal.freed[FULL][medium] && !journal.freed[SWA][medium] &&
        !journal.freed[MAMBA][medium]) {
        return nb::borrow<nb::tuple>(no_rows);
    }
    return nb::make_tuple(rows_or_none(journal.freed[FULL][medium]),
                          rows_or_none(journal.freed[SWA][medium]),
                          rows_or_none(journal.freed[MAMBA][medium]));
}

nb::object matched_of(const NodeMatched& found) {
    return named_tuple(matched_type, found.prefix_pages, found.device_pages, found.walked_pages,
                       found.end, found.device_end, found.last, three_of(found.host_only),
                       cuts_of(found.cuts));
}

nb::object inserted_of(const NodeInserted& done) {
    const nb::object state = state_row_of(done);
    return named_tuple(inserted_type, done.end, done.walked_pages, adopted_of(done.full),
                       adopted_of(done.healed), windows_of(done.windows), state,
                       pages_of(done.duplicates), done.wanted, done.wanted_end, cuts_of(done.cuts));
}

nb::object fetched_of(const FetchedTaken& done) {
    return named_tuple(fetched_type, done.end, done.present_pages, done.dropped,
                       adopted_of(done.taken), cuts_of(done.cuts));
}

nb::tuple window_of(const WindowTaken& done) {
    return nb::make_tuple(adopted_of(done.taken), pages_of(done.left), cuts_of(done.cuts));
}

nb::object step_of(const EvictStep& step) {
    return named_tuple(step_type, step.node, step.copy_first, step.whole, step.lost,
                       three_of(step.lacks), freed_on(step.journal, GPU),
                       freed_on(step.journal, CPU));
}

void find_node_results() {
    if (matched_type != nullptr) return;
    const nb::module_ types = nb::module_::import_("kvcanon.optimized.native_types");
    const auto named = [&types](const char* name) {
        return nb::object(types.attr(name)).release().ptr();
    };
    inserted_type = named("NodeInserted");
    step_type = named("EvictStep");
    fetched_type = named("FetchedTaken");
    no_counts = nb::make_tuple(0, 0, 0).release().ptr();
    no_rows = nb::make_tuple(nb::none(), nb::none(), nb::none()).release().ptr();
    // Last, since it says that all are there.
    matched_type = named("NodeMatched");
}

}  // namespace kvcanon
