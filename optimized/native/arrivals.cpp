#include "arrivals.hpp"

#include <algorithm>
#include <cassert>
#include <optional>

#include "errors.hpp"

namespace kvcanon {

namespace {

// Record all completions before a wrong one raises.
void take_completions(State& state) {
    std::optional<uint64_t> unexpected;
    const auto completions = state.engine->poll();
    if (!completions.empty()) state.changed = true;
    for (const auto& [transfer_id, done] : completions) {
        const bool waits =
            state.transfers.count(transfer_id) != 0 && state.arrived.count(transfer_id) == 0;
        if (waits) {
            state.arrived[transfer_id] = done;
        } else {
            unexpected = transfer_id;
        }
    }
    if (unexpected) {
        throw SpecViolation("the engine completed " + std::to_string(*unexpected) +
                            ", for which nothing waits");
    }
}

// The transfers that can settle: of each direction those with an end, up to the first without, in
// the order in which they were enqueued.
template <typename EndOf>
Completions in_order(const State& state, int direction, EndOf end_of) {
    Completions found;
    for (int each = 0; each < 2; ++each) {
        if (direction != BOTH_DIRECTIONS && direction != each) continue;
        for (const uint64_t transfer_id : state.in_flight[each]) {
            const Arrival end = end_of(transfer_id);
            if (end == Arrival::WAITING) break;
            found.emplace_back(transfer_id, end == Arrival::DONE);
        }
    }
    std::sort(found.begin(), found.end());
    assert(found.size() <= state.transfers.size());
    return found;
}

Arrival arrival_of(const State& state, uint64_t transfer_id) {
    const auto found = state.arrived.find(transfer_id);
    if (found == state.arrived.end()) return Arrival::WAITING;
    return found->second ? Arrival::DONE : Arrival::FAILED;
}

std::string in_words(const std::vector<int>& numbers) {
    std::string words;
    for (const int number : numbers) words += (words.empty() ? "" : ", ") + std::to_string(number);
    return "[" + words + "]";
}

// What can settle on all ranks. Nothing is asked of the other ranks if no copy is in flight, which
// is so on all of them or on none.
Completions arrived_everywhere(State& state, int direction) {
    std::vector<int> ours;
    std::map<uint64_t, size_t> places;
    for (const auto& [transfer_id, transfer] : state.transfers) {
        if (direction != BOTH_DIRECTIONS && direction != static_cast<int>(transfer.direction)) {
            continue;
        }
        places[transfer_id] = ours.size();
        ours.push_back(static_cast<int>(arrival_of(state, transfer_id)));
    }
    if (ours.empty()) return {};
    const std::vector<int> least = state.engine->agree(ours);
    bool wrong = least.size() != ours.size();
    for (size_t at = 0; at < ours.size() && !wrong; ++at) {
        wrong = least[at] < static_cast<int>(Arrival::WAITING) || least[at] > ours[at];
    }
    if (wrong) {
        throw SpecViolation("agree got " + in_words(ours) + " and returned " + in_words(least) +
                            "; return the least of all ranks for each number");
    }
    return in_order(state, direction, [&](uint64_t transfer_id) {
        return static_cast<Arrival>(least[places.at(transfer_id)]);
    });
}

// Refuse what cannot settle here. `named` is in the order of ids.
void check_named(const State& state, const Completions& named) {
    constexpr const char* MEND = "; settle what `arrived` returned on every rank";
    const auto refuse = [](uint64_t transfer_id, const std::string& problem) {
        throw BadArgument("completions", "names transfer " + std::to_string(transfer_id) + problem);
    };
    const uint64_t* last = nullptr;
    for (const auto& [transfer_id, done] : named) {
        if (last != nullptr && *last == transfer_id) refuse(transfer_id, " twice; name it once");
        last = &transfer_id;
        if (state.transfers.count(transfer_id) == 0) {
            refuse(transfer_id, std::string(", which is not in flight") + MEND);
        }
        const Arrival here = arrival_of(state, transfer_id);
        if (here == Arrival::WAITING) {
            refuse(transfer_id, std::string(", whose copy has not ended here") + MEND);
        }
        if (done && here == Arrival::FAILED) {
            refuse(transfer_id,
                   " as done, and its copy failed here; settle it as failed on every "
                   "rank");
        }
    }
    auto backups = state.in_flight[0].begin();
    auto loads = state.in_flight[1].begin();
    for (const auto& [transfer_id, done] : named) {
        const Direction direction = state.transfers.at(transfer_id).direction;
        auto& next = static_cast<int>(direction) == 0 ? backups : loads;
        if (*next != transfer_id) {
            refuse(transfer_id, std::string(" before an earlier copy of its direction") + MEND);
        }
        ++next;
    }
}

}  // namespace

Completions arrived(State& state) {
    if (state.transfers.empty()) return {};
    take_completions(state);
    return in_order(state, BOTH_DIRECTIONS,
                    [&](uint64_t transfer_id) { return arrival_of(state, transfer_id); });
}

Completions ends_of(State& state, int direction) {
    take_completions(state);
    if (state.engine->has_ranks()) return arrived_everywhere(state, direction);
    return in_order(state, direction,
                    [&](uint64_t transfer_id) { return arrival_of(state, transfer_id); });
}

void require_settleable(State& state, Completions& named) {
    if (!state.transfers.empty()) take_completions(state);
    std::sort(named.begin(), named.end());
    check_named(state, named);
}

}  // namespace kvcanon
