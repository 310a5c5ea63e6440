// The values of the enums that kvcanon.spec has too, in the order of their numbers here. Python
// reads them from `_core.ENUMS`, so that no number is written down twice.
#pragma once

#include <array>

#include "load.hpp"
#include "state.hpp"

namespace kvcanon {

template <typename Enum>
constexpr size_t number_of(Enum value) {
    return static_cast<size_t>(value);
}

constexpr std::array<const char*, COMPONENTS> COMPONENT_VALUES = {"full", "swa", "mamba"};
constexpr std::array MEDIUM_VALUES = {"GPU", "CPU_PINNED", "DISK", "EXTERNAL"};
constexpr std::array DIRECTION_VALUES = {"backup", "load_back"};
constexpr std::array STATUS_VALUES = {"done", "failed", "cancelled"};
constexpr std::array EVENT_KIND_VALUES = {"stored", "removed", "cleared"};
constexpr std::array LOAD_DECISION_VALUES = {"enqueued", "nothing_to_load", "below_threshold",
                                             "over_quota", "no_room"};
constexpr std::array WRITE_POLICY_VALUES = {"none", "write_through", "write_through_selective",
                                            "write_back"};
constexpr std::array EVICTION_POLICY_VALUES = {"lru",  "lfu",  "fifo",    "mru",
                                               "filo", "slru", "priority"};

static_assert(MEDIUM_VALUES.size() == number_of(EXTERNAL) + 1);
static_assert(DIRECTION_VALUES.size() == number_of(Direction::LOAD_BACK) + 1);
static_assert(STATUS_VALUES.size() == number_of(Status::CANCELLED) + 1);
static_assert(EVENT_KIND_VALUES.size() == number_of(EventKind::CLEARED) + 1);
static_assert(LOAD_DECISION_VALUES.size() == number_of(LoadDecision::NO_ROOM) + 1);
static_assert(WRITE_POLICY_VALUES.size() == number_of(WritePolicy::WRITE_BACK) + 1);
static_assert(EVICTION_POLICY_VALUES.size() == number_of(EvictionPolicy::PRIORITY) + 1);

}  // namespace kvcanon
