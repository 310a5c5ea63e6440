#include <string>

#include "bind_numbers.hpp"
#include "bind_sglang.hpp"
#include "docstrings_sglang.hpp"
#include "errors.hpp"
#include "row_table.hpp"
#include "torch_exchange.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

void do_put_parts(RowTable& table, nb::handle parts, nb::handle slots) {
    const std::optional<Int64s> given = int64s_of(slots);
    if (!given) {
        throw BadArgument("slots",
                          "must be a one-dimensional contiguous tensor of int64 on the CPU");
    }
    for (nb::handle part : parts) {
        const int64_t first = whole_number(part[0], "first_page");
        put_pages(table, nb::cast<const Runs&>(part[1]), *given, first);
    }
}

}  // namespace

void require_pages(int64_t page_tokens, const Runs& rows, int64_t slots, int64_t first_page) {
    const int64_t pages = slots / page_tokens;
    if (first_page < 0 || first_page > pages || pages - first_page < rows.slots()) {
        throw BadArgument("slots", "have " + std::to_string(pages) + " pages; the rows need " +
                                       std::to_string(rows.slots()) + " from page " +
                                       std::to_string(first_page) + " on");
    }
}

void put_pages(RowTable& table, const Runs& rows, const Int64s& slots, int64_t first_page) {
    require_pages(table.page_size(), rows, slots.size, first_page);
    table.put(rows, slots.data + first_page * table.page_size());
}

nb::object slots_of_rows(const RowTable& table, const Runs& rows) {
    NewTensor slots(rows.slots() * table.page_size());
    table.get(rows, slots.numbers());
    return slots.take();
}

void bind_row_table(nb::module_& m) {
    nb::class_<RowTable>(m, "RowTable", docs::ROW_TABLE)
        .def(
            "__init__",
            [](RowTable* self, int64_t rows, int64_t page_size) {
                find_torch();
                new (self) RowTable(rows, page_size);
            },
            "rows"_a, "page_size"_a)
        .def("put_parts", &do_put_parts, "parts"_a, "slots"_a,
             nb::sig(docs::ROW_TABLE_PUT_PARTS.signature), docs::ROW_TABLE_PUT_PARTS.text)
        .def_prop_ro("scattered_pages", &RowTable::scattered_pages,
                     "Pages of which the table has every slot.")
        .def("get", &slots_of_rows, "rows"_a, nb::sig(docs::ROW_TABLE_GET.signature),
             docs::ROW_TABLE_GET.text);
}

}  // namespace kvcanon
