// The tree with what belongs to it in Python: its engine, and memory for keys of other types.
#pragma once

#include "py_engine.hpp"

namespace kvcanon {

struct PyTree {
    PyEngine engine;
    State state;
    // The words of a key that came as 64-bit numbers; good until the next call.
    std::vector<uint32_t> words;

    PyTree(const Config& config, nanobind::object performer)
        : engine(std::move(performer)), state(config, &engine) {}
    PyTree(const PyTree&) = delete;
    PyTree& operator=(const PyTree&) = delete;

    Key key(const ArrayIn& tokens, int64_t space) { return key_of(state, tokens, space, words); }
};

// Adds what shows a tree's state to its class.
void bind_inspection(nanobind::class_<PyTree>& tree);

// Adds the calls that take events, and their class.
void bind_events(nanobind::module_& m, nanobind::class_<PyTree>& tree);

}  // namespace kvcanon
