// Arrays between Python and the core. Tokens and slots come in without a copy where their type
// allows it, and go out as NumPy arrays that own their memory.
//
// An incoming array is read before the call returns and never after. An array of the wrong kind is
// refused and never converted, because a hidden copy of a long prompt costs more than the call.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "runs.hpp"
#include "slots.hpp"
#include "state.hpp"

namespace kvcanon {

// Any array, by the buffer protocol or DLPack.
using ArrayIn = nanobind::ndarray<nanobind::ro>;
using SlotsOut = nanobind::ndarray<nanobind::numpy, int32_t, nanobind::ndim<1>>;

// Tokens that were given, and keeps them: an `array` of the standard library, or any other.
class TokensIn {
  public:
    enum class Type { INT32, UINT32, INT64 };

    // Throws: BadArgument.
    explicit TokensIn(nanobind::handle given);
    TokensIn(TokensIn&& other) noexcept;
    TokensIn(const TokensIn&) = delete;
    TokensIn& operator=(const TokensIn&) = delete;
    ~TokensIn();

    Type type;
    const void* data = nullptr;
    size_t size = 0;

  private:
    bool is_standard_array(nanobind::handle given);

    // Of a standard array; else without an owner.
    Py_buffer buffer_{};
    ArrayIn array_;
};

// Slots that were given: a one-dimensional array of 32 or 64 bits a number, and keeps it. It is
// read as a buffer, which takes a third of the time that any array takes.
class SlotsIn {
  public:
    // Throws: BadArgument.
    explicit SlotsIn(nanobind::handle given);
    SlotsIn(const SlotsIn&) = delete;
    SlotsIn& operator=(const SlotsIn&) = delete;
    ~SlotsIn();

    bool is_wide = false;
    const void* data = nullptr;
    size_t size = 0;

  private:
    Py_buffer buffer_{};
};

// A key, and the array whose memory its words may be in.
struct GivenKey {
    TokensIn tokens;
    Key key;
};

// The whole pages of a prompt. `scratch` holds the words if the array is not of 32-bit numbers; the
// key is valid while `scratch` and the array live. Throws: BadArgument.
GivenKey key_of(const State& state, nanobind::handle given, int64_t namespace_number,
                std::vector<uint32_t>& scratch);

// The whole pages of bigrams of a prompt: each two neighbours of its tokens are one.
// Throws: BadArgument.
GivenKey bigrams_of(const State& state, nanobind::handle given, int64_t namespace_number,
                    std::vector<uint32_t>& scratch);

// Slots that a client hands over; None means no slots of a component. Throws: BadArgument, and
// SlotNotHeld for a number outside of the pool.
SlotLists slots_of(nanobind::handle full, nanobind::handle swa, nanobind::handle mamba,
                   Medium medium = GPU);

// Slots for a client, one number each.
SlotsOut array_of(const Runs& runs);

}  // namespace kvcanon
