// Arrays across the border: tokens and slots come in without a copy where their type allows it, and
// go out as NumPy arrays that own their memory.
//
// What readers get wrong: an array that comes in is read before the call returns and never after.
// What is no array of the right kind is refused and never converted: a copy of a long prompt that
// nobody asked for costs more than the call.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "runs.hpp"
#include "slots.hpp"
#include "state.hpp"

namespace kvcanon {

// Anything that shows its memory as an array.
using ArrayIn = nanobind::ndarray<nanobind::ro>;
using SlotsOut = nanobind::ndarray<nanobind::numpy, int32_t, nanobind::ndim<1>>;

// A key with the array that its words may lie in.
struct GivenKey {
    ArrayIn tokens;
    Key key;
};

// The whole pages of a prompt. `scratch` holds the words where the array is of another type; the
// key is good while that and the array live. Throws: BadArgument.
GivenKey key_of(const State& state, nanobind::handle tokens, int64_t namespace_id,
                std::vector<uint32_t>& scratch);

// Slots as a client hands them over, None for none of a component. Throws: BadArgument, and
// SlotNotHeld for a number that no pool reaches.
SlotLists slots_of(nanobind::handle full, nanobind::handle swa, nanobind::handle mamba);

// Slots for a client, one number each.
SlotsOut array_of(const Runs& runs);

}  // namespace kvcanon
