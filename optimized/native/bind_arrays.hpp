// Arrays across the border: tokens and slots come in without a copy where their type allows it, and
// go out as NumPy arrays that own their memory.
//
// What readers get wrong: an array that comes in is read before the call returns and never after.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "runs.hpp"
#include "state.hpp"

namespace kvcanon {

// Any one-dimensional array on the host that is laid out without gaps.
using ArrayIn = nanobind::ndarray<nanobind::ro, nanobind::ndim<1>, nanobind::c_contig,
                                  nanobind::device::cpu>;
using SlotsOut = nanobind::ndarray<nanobind::numpy, int32_t, nanobind::ndim<1>>;

// The whole pages of a prompt. `scratch` holds the words where the array is of another type; the key
// is good while both live. Throws: BadArgument.
Key key_of(const State& state, const ArrayIn& tokens, int64_t space, std::vector<uint32_t>& scratch);

// Slots as a client hands them over; no number that a slot cannot have passes as one.
// Throws: BadArgument.
Runs slots_of(const ArrayIn& slots, const char* name);

// Slots for a client, one number each.
SlotsOut array_of(const Runs& runs);

}  // namespace kvcanon
