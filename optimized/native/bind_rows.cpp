#include "bind_rows.hpp"

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "bind_arrays.hpp"
#include "bind_numbers.hpp"
#include "docstrings_nodes.hpp"
#include "errors.hpp"
#include "row_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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

// Check that `count` slots have the pages of rows from a first one on.
void require_pages(const RowTable& table, const Runs& rows, int64_t count, int64_t first) {
    const int64_t pages = count / table.page_size();
    if (first < 0 || first > pages || pages - first < rows.slots()) {
        throw BadArgument("slots", "have " + std::to_string(pages) + " pages; the rows need " +
                                       std::to_string(rows.slots()) + " from page " +
                                       std::to_string(first) + " on");
    }
}

void do_put(RowTable& table, const Runs& rows, nb::handle slots, nb::handle first_page) {
    const SlotsIn given(slots);
    const int64_t first = whole_number(first_page, "first_page");
    require_pages(table, rows, static_cast<int64_t>(given.size), first);
    const int64_t at = first * table.page_size();
    if (given.is_wide) {
        table.put(rows, static_cast<const int64_t*>(given.data) + at);
    } else {
        table.put(rows, static_cast<const int32_t*>(given.data) + at);
    }
}

void do_put_at(RowTable& table, nb::handle parts, uint64_t address, int64_t count) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): Python gives the address of a tensor as a number.
    const auto* slots = reinterpret_cast<const int64_t*>(address);
    for (nb::handle part : parts) {
        const int64_t first = whole_number(part[0], "first_page");
        const Runs& rows = nb::cast<const Runs&>(part[1]);
        require_pages(table, rows, count, first);
        table.put(rows, slots + first * table.page_size());
    }
}

// What DLPack's consumers take, with its numbers behind it in one piece of memory.
struct ManagedSlots {
    nb::dlpack::dltensor tensor;
    void* unused;
    void (*deleter)(ManagedSlots*);
    int64_t count;
};

constexpr const char* UNUSED = "dltensor";

// Nobody took the tensor out of the capsule.
void free_unused(PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, UNUSED) == 0) return;
    std::free(PyCapsule_GetPointer(capsule, UNUSED));
}

nb::object do_get(const RowTable& table, const Runs& rows) {
    const int64_t count = rows.slots() * table.page_size();
    std::unique_ptr<void, decltype(&std::free)> memory(
        std::malloc(sizeof(ManagedSlots) + static_cast<size_t>(count) * sizeof(int64_t)),
        &std::free);
    if (memory == nullptr) throw std::bad_alloc();
    auto* managed = new (memory.get()) ManagedSlots{};
    managed->tensor.data = managed + 1;
    managed->tensor.device.device_type = nb::device::cpu::value;
    managed->tensor.ndim = 1;
    managed->tensor.dtype = nb::dtype<int64_t>();
    managed->tensor.shape = &managed->count;
    managed->deleter = [](ManagedSlots* self) { std::free(self); };
    managed->count = count;
    table.get(rows, reinterpret_cast<int64_t*>(managed + 1));
    nb::object capsule = nb::steal(PyCapsule_New(managed, UNUSED, &free_unused));
    if (!capsule.is_valid()) nb::raise_python_error();
    std::ignore = memory.release();  // The capsule frees it from here on.
    return capsule;
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
    nb::class_<RowTable>(m, "RowTable", docs::ROW_TABLE)
        .def(nb::init<int64_t, int64_t>(), "rows"_a, "page_size"_a)
        .def("put", &do_put, "rows"_a, "slots"_a, "first_page"_a = 0,
             nb::sig(docs::ROW_TABLE_PUT.signature), docs::ROW_TABLE_PUT.text)
        .def("put_at", &do_put_at, "parts"_a, "address"_a, "count"_a,
             nb::sig(docs::ROW_TABLE_PUT_AT.signature), docs::ROW_TABLE_PUT_AT.text)
        .def_prop_ro("scattered_blocks", &RowTable::scattered_blocks,
                     "Blocks of a page, or of 16 tokens, of which the table has every slot.")
        .def("get", &do_get, "rows"_a, nb::sig(docs::ROW_TABLE_GET.signature),
             docs::ROW_TABLE_GET.text);
}

}  // namespace kvcanon
