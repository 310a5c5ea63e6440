// The calls of SGLang's tree core with its own objects: kvcanon.optimized._core.EngineNodes.
#pragma once

#include <optional>

#include "bind_sglang.hpp"
#include "nodes_view.hpp"

namespace kvcanon {

// An attribute by a name that Python looks for without hashing it anew.
class Name {
  public:
    explicit Name(const char* name) : name_(PyUnicode_InternFromString(name)) {}
    nanobind::object of(nanobind::handle owner) const {
        nanobind::object found = nanobind::steal(PyObject_GetAttr(owner.ptr(), name_));
        if (!found.is_valid()) nanobind::raise_python_error();
        return found;
    }

  private:
    PyObject* name_;
};

// The token slots of a component on a medium, by row: a table of this module, or Python's own where
// they are on a device. Nothing where the engine has no such slots.
class Slots {
  public:
    explicit Slots(nanobind::object given);

    bool is_there() const { return !given_.is_none(); }
    RowTable* table() const { return table_; }

    nanobind::object get(const Runs& rows) const;
    // None for no rows.
    nanobind::object get_or_none(const Runs& rows) const;
    void put(nanobind::handle parts, nanobind::handle slots) const;

  private:
    nanobind::object given_;
    RowTable* table_ = nullptr;
};

struct EngineNodes {
    // Keeps the nodes alive.
    nanobind::object owner;
    NodesView& nodes;
    // Of SGLang: what makes its results (`ResultTypes`), and its component by number.
    nanobind::object match, eviction_step, insert, insert_step, free_slots;
    nanobind::object kinds[COMPONENTS];
    Slots slots[COMPONENTS][MEDIA];
    // Where states can be kept besides at the end of a prompt, in tokens.
    int64_t state_grid;

    const Config& config() const { return nodes.core.state.config; }
    int64_t page_tokens(Component component) const {
        return component == MAMBA ? 1 : config().page_size;
    }
};

// Token slots that came free, and how many, by SGLang's component.
struct Freed {
    nanobind::dict slots, amounts;
};

// Window data on the device first: SGLang finds its slots by the full slots of their pages.
Freed freed_of(const EngineNodes& self, const Runs (&freed)[COMPONENTS][MEDIA], Medium medium);

// Adds the calls of copies between the device and the host; `bind_engine_nodes` does it.
void bind_engine_copies(nanobind::class_<EngineNodes>& nodes);

}  // namespace kvcanon
