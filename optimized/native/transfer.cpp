#include "transfer.hpp"

#include <algorithm>
#include <optional>

#include "emit.hpp"
#include "errors.hpp"
#include "lock.hpp"
#include "slots.hpp"

namespace kvcanon {

namespace {

// Detach a copy from its nodes; it keeps its target slots until the engine completes it.
void cancel(State& state, Transfer& transfer) {
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        take(state, part->node, part->component, transfer.target());
    }
    transfer.parts.clear();
    transfer.cancelled = true;
}

uint8_t bit_of(Direction direction) {
    return static_cast<uint8_t>(1 << static_cast<int>(direction));
}

// Whether a copy needs data that a failed copy did not bring.
bool builds_on_failed(const Transfer& transfer) {
    for (const Part& part : transfer.parts) {
        for (const Node* node = part.node; node->parent != nullptr; node = node->parent) {
            if ((node->failed & bit_of(transfer.direction)) != 0) return true;
        }
    }
    return false;
}

// Drop the slots that a failed copy did not fill, and mark its nodes.
void undo(State& state, const Transfer& transfer, std::vector<Node*>& failed) {
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        drop(state, part->node, part->component, transfer.target());
        if (part->component != FULL) continue;
        part->node->failed |= bit_of(transfer.direction);
        failed.push_back(part->node);
    }
}

// Cancel all copies that build on failed ones, once for all failures of a settlement.
void cancel_later(State& state, const std::vector<Node*>& failed) {
    if (failed.empty()) return;
    for (auto& [transfer_id, later] : state.transfers) {
        if (builds_on_failed(later)) cancel(state, later);
    }
    for (Node* node : failed) node->failed = 0;
}

Status settle_one(State& state, const Transfer& transfer, bool done, std::vector<Node*>& failed) {
    release_hold(state, transfer.receipt);
    if (transfer.cancelled) {
        for (const Component component : {FULL, SWA, MAMBA}) {
            release(state, component, transfer.target(), transfer.targets[component]);
        }
        return Status::CANCELLED;
    }
    if (!done) {
        undo(state, transfer, failed);
        return Status::FAILED;
    }
    for (const Part& part : transfer.parts) {
        part.node->data[part.component].filling[transfer.target()] = nullptr;
        if (part.component == FULL) emit_stored(state, part.node, transfer.target());
    }
    for (const Component component : {FULL, SWA, MAMBA}) {
        state.counters.moved_slots[static_cast<int>(transfer.direction)][component] +=
            static_cast<uint64_t>(transfer.sources[component].slots());
    }
    return Status::DONE;
}

// Record all completions before a wrong one raises.
void take_completions(State& state) {
    std::optional<uint64_t> unexpected;
    for (const auto& [transfer_id, done] : state.engine->poll()) {
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

// The transfers that can settle: of each direction those with an end, up to the first without.
template <typename EndOf>
Completions in_order(const State& state, int direction, EndOf end_of) {
    // Which directions cannot go on: none are in flight, or the next has no end.
    bool waiting[2] = {direction == static_cast<int>(Direction::LOAD_BACK),
                       direction == static_cast<int>(Direction::BACKUP)};
    for (int each = 0; each < 2; ++each) waiting[each] |= state.in_flight[each] == 0;
    Completions found;
    auto at = state.transfers.begin();
    for (; at != state.transfers.end() && !(waiting[0] && waiting[1]); ++at) {
        bool& waits = waiting[static_cast<int>(at->second.direction)];
        if (waits) continue;
        const Arrival end = end_of(at->first);
        waits = end == Arrival::WAITING;
        if (!waits) found.emplace_back(at->first, end == Arrival::DONE);
    }
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

// Settle transfers that can settle, in the order of their enqueueing.
Settled settle_all(State& state, const Completions& ended) {
    std::vector<Node*> failed;
    Settled settled;
    for (const auto& [transfer_id, done] : ended) {
        const auto at = state.transfers.find(transfer_id);
        state.arrived.erase(transfer_id);
        if (!failed.empty() && builds_on_failed(at->second)) cancel(state, at->second);
        const Transfer transfer = std::move(at->second);
        state.transfers.erase(at);
        --state.in_flight[static_cast<int>(transfer.direction)];
        const Status status = settle_one(state, transfer, done, failed);
        ++state.counters.settled[static_cast<int>(status)];
        settled.emplace_back(transfer_id, status);
    }
    cancel_later(state, failed);
    return settled;
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
    bool skipped[2] = {false, false};
    auto next = named.begin();
    for (const auto& [transfer_id, transfer] : state.transfers) {
        if (next == named.end()) return;
        bool& skips = skipped[static_cast<int>(transfer.direction)];
        if (next->first != transfer_id) {
            skips = true;
            continue;
        }
        if (skips) {
            refuse(transfer_id, std::string(" before an earlier copy of its direction") + MEND);
        }
        ++next;
    }
}

}  // namespace

uint64_t enqueue(State& state, Direction direction, std::vector<Part> parts, Hold& held) {
    const uint64_t transfer_id = state.new_id();
    Transfer& transfer = state.transfers[transfer_id];
    transfer.transfer_id = transfer_id;
    transfer.direction = direction;
    transfer.receipt = held.receipt;
    held.transfer = &transfer;
    for (const Part& part : parts) {
        const Runs& sources = part.node->data[part.component].slots[transfer.source()];
        Runs targets = state.pool(part.component, transfer.target()).free.take(sources.slots());
        transfer.sources[part.component].append(sources);
        transfer.targets[part.component].append(targets);
        place(state, part.node, part.component, transfer.target(), std::move(targets), &transfer);
    }
    transfer.parts = std::move(parts);
    ++state.counters.transfers[static_cast<int>(direction)];
    ++state.in_flight[static_cast<int>(direction)];
    state.engine->submit(transfer);
    return transfer_id;
}

Completions arrived(State& state) {
    if (state.transfers.empty()) return {};
    take_completions(state);
    return in_order(state, BOTH_DIRECTIONS,
                    [&](uint64_t transfer_id) { return arrival_of(state, transfer_id); });
}

Settled settle(State& state, int direction) {
    if (state.transfers.empty()) return {};
    take_completions(state);
    if (state.engine->has_ranks()) return settle_all(state, arrived_everywhere(state, direction));
    return settle_all(state, in_order(state, direction, [&](uint64_t transfer_id) {
                          return arrival_of(state, transfer_id);
                      }));
}

Settled settle_these(State& state, Completions named) {
    if (!state.transfers.empty()) take_completions(state);
    std::sort(named.begin(), named.end());
    check_named(state, named);
    return settle_all(state, named);
}

Settled flush(State& state) {
    std::vector<uint64_t> in_flight;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): there are few transfers.
    for (const auto& [transfer_id, transfer] : state.transfers) in_flight.push_back(transfer_id);
    for (const uint64_t transfer_id : in_flight) state.engine->wait(transfer_id);
    return settle(state);
}

}  // namespace kvcanon
