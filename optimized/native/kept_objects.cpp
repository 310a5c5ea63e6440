#include "kept_objects.hpp"

#include <string>
#include <utility>

#include "docstrings_nodes.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

[[noreturn]] void refuse(uint64_t node) {
    throw nb::key_error(("nothing is kept of node " + std::to_string(node)).c_str());
}

}  // namespace

void KeptObjects::put(uint64_t node, nb::object kept) {
    if (PyObject_IS_GC(kept.ptr()) != 0) PyObject_GC_UnTrack(kept.ptr());
    kept_[node] = std::move(kept);
}

nb::object KeptObjects::get(uint64_t node) const {
    const auto found = kept_.find(node);
    if (found == kept_.end()) refuse(node);
    return found->second;
}

nb::object KeptObjects::pop(uint64_t node) {
    const auto found = kept_.find(node);
    if (found == kept_.end()) refuse(node);
    nb::object kept = std::move(found->second);
    kept_.erase(found);
    return kept;
}

void KeptObjects::clear() {
    // Freeing an object may call Python, which must find an empty table.
    std::unordered_map<uint64_t, nb::object> gone;
    gone.swap(kept_);
}

nb::list KeptObjects::nodes() const {
    nb::list listed;
    for (const auto& [node, kept] : kept_) listed.append(node);
    return listed;
}

void bind_kept_objects(nb::module_& m) {
    nb::class_<KeptObjects>(m, "KeptObjects", docs::KEPT_OBJECTS)
        .def(nb::init<>())
        .def("put", &KeptObjects::put, "node"_a, "kept"_a,
             nb::sig("def put(self, node: int, kept: torch.Tensor) -> None"),
             "Keep an object of a node, in place of what was kept of it.")
        .def("get", &KeptObjects::get, "node"_a,
             nb::sig("def get(self, node: int) -> torch.Tensor"),
             "Return what is kept of a node. Raises: KeyError.")
        .def("pop", &KeptObjects::pop, "node"_a,
             nb::sig("def pop(self, node: int) -> torch.Tensor"),
             "Return what is kept of a node, and forget it. Raises: KeyError.")
        .def("clear", &KeptObjects::clear, nb::sig("def clear(self) -> None"), "Forget all.")
        .def("nodes", &KeptObjects::nodes, nb::sig("def nodes(self) -> list[int]"),
             "Return the nodes of which something is kept.")
        .def("__contains__", &KeptObjects::has, nb::sig("def __contains__(self, node: int) -> bool"))
        .def("__len__", &KeptObjects::size, nb::sig("def __len__(self) -> int"));
}

}  // namespace kvcanon
