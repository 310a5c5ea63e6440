// Match: the longest usable prefix of a key.
//
// What readers get wrong: a match is not read-only. It makes what it found recent, and it cuts a
// node where the prefix ends inside one; it changes nothing else.
#pragma once

#include "slots.hpp"

namespace kvcanon {

struct Matched {
    int32_t prefix_pages = 0;
    int32_t device_pages = 0;
    SlotLists slots;
    std::vector<uint64_t> pending;
};

// Find, and make recent, the longest usable prefix.
Matched match(State& state, const Key& key);

// The device slots along a path, as far as they are of use at its end; with `arriving`, those too
// that a load-back in flight fills.
SlotLists device_slots(const State& state, const std::vector<Node*>& path, bool arriving);

// Make recent what the end of a prefix can see: all full data, the window, the end's state.
void touch(State& state, Node* end, uint64_t tick);

}  // namespace kvcanon
