// The operations of a cache, and counters for each: calls, refusals, time.
//
// The time includes waiting for the engine, in `flush`, and in `evict` under write_back.
#pragma once

#include <cstdint>

namespace kvcanon {

enum class Operation : int {
    MATCH,
    LOCK,
    UNLOCK,
    UNLOCK_WINDOW,
    ALLOCATE,
    FREE,
    INSERT,
    EVICT,
    EVICT_HOST,
    LOAD_BACK,
    INSERT_HOST,
    ARRIVED,
    SETTLE,
    POLL,
    FLUSH,
    RESET,
    TAKE_EVENTS,
    RESERVE_HOST,
    COMMIT_HOST,
    ABORT_HOST,
    HOST_SLOTS,
    STORE,
    PREFETCH,
    POLL_STORE,
};

// The names of the methods, in this order.
constexpr const char* OPERATION_NAMES[] = {
    "match",       "lock",       "unlock",     "unlock_window", "allocate",    "free",
    "insert",      "evict",      "evict_host", "load_back",     "insert_host", "arrived",
    "settle",      "poll",       "flush",      "reset",         "take_events", "reserve_host",
    "commit_host", "abort_host", "host_slots", "store",         "prefetch",    "poll_store",
};
constexpr int OPERATIONS = sizeof OPERATION_NAMES / sizeof *OPERATION_NAMES;

struct Calls {
    uint64_t count = 0;
    // Refused, with the state unchanged.
    uint64_t refused = 0;
    uint64_t nanoseconds = 0;
};

}  // namespace kvcanon
