#include "bind_rows.hpp"

#include <vector>

#include "bind_arrays.hpp"
#include "docstrings_nodes.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

nb::list runs_in(const Runs& rows) {
    nb::list listed;
    for (const Run& run : rows) listed.append(nb::make_tuple(run.begin, run.size));
    return listed;
}

nb::list listed(const Runs& rows) {
    std::vector<Slot> each(static_cast<size_t>(rows.slots()));
    expand(rows, each.data());
    nb::list numbers;
    for (const Slot slot : each) numbers.append(slot);
    return numbers;
}

}  // namespace

nb::object rows_or_none(const Runs& rows) { return rows ? nb::cast(rows) : nb::object(nb::none()); }

void bind_rows(nb::module_& m) {
    nb::class_<Runs>(m, "Rows", docs::ROWS)
        .def("__len__", [](const Runs& self) { return self.slots(); })
        .def("runs", &runs_in, nb::sig("def runs(self) -> list[tuple[int, int]]"),
             "Return stretches of consecutive rows: the first row, and how many.")
        .def("tolist", &listed, nb::sig("def tolist(self) -> list[int]"),
             "Return each row, the first page first.")
        .def("array", &array_of, nb::sig("def array(self) -> NDArray[numpy.int32]"),
             "Return each row as an array, the first page first.");
}

}  // namespace kvcanon
