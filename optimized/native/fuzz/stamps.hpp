// Stamps: behind every slot, a number that says which page was written there.
//
// The tree never reads stamps. They reveal wrong slots: the slots of a match must have the stamps
// of the prompt's pages, after any number of copies.
#pragma once

#include <vector>

#include "state.hpp"

namespace kvcanon::fuzz {

using Stamp = uint32_t;
constexpr Stamp GARBAGE = 0;

struct Prompt {
    uint32_t namespace_id = 0;
    int32_t pages = 0;
    // Each page has one of two contents, by one bit of the prompt, so that many prompts share
    // prefixes.
    uint32_t bits = 0;

    // Differs for pages with different contents or different predecessors.
    Stamp stamp(int32_t page) const {
        const uint32_t up_to = (uint32_t{2} << page) - 1;
        return namespace_id << 24 | static_cast<uint32_t>(page + 1) << 16 | (bits & up_to);
    }

    std::vector<uint32_t> words(const Config& config) const {
        std::vector<uint32_t> all(static_cast<size_t>(pages * config.page_words), 7);
        for (int32_t page = 0; page < pages; ++page) {
            // The last word differs, so that comparing only the first word finds the wrong page.
            all[static_cast<size_t>((page + 1) * config.page_words - 1)] = bits >> page & 1;
        }
        return all;
    }
};

class Stamps {
  public:
    explicit Stamps(const Config& config) {
        for (const Component component : {FULL, SWA, MAMBA}) {
            for (const Medium medium : {GPU, CPU}) {
                const auto slots = static_cast<size_t>(config.capacity(component, medium));
                stamps_[component][medium].assign(slots, GARBAGE);
            }
        }
    }

    Stamp& at(Component component, Medium medium, Slot slot) {
        return stamps_[component][medium].at(static_cast<size_t>(slot));
    }

  private:
    std::vector<Stamp> stamps_[COMPONENTS][MEDIA];
};

inline std::vector<Slot> slots_in(const Runs& runs) {
    std::vector<Slot> slots(static_cast<size_t>(runs.slots()));
    expand(runs, slots.data());
    return slots;
}

}  // namespace kvcanon::fuzz
