#include "transfer.hpp"

#include <algorithm>
#include <optional>

#include "emit.hpp"
#include "errors.hpp"
#include "failures.hpp"
#include "lock.hpp"
#include "slots.hpp"

namespace kvcanon {

namespace {

// Drop the slots that a failed copy did not fill. Copies in flight below it hold its nodes.
void undo(State& state, const Transfer& transfer, Failures& failures) {
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        drop(state, part->node, part->component, transfer.target());
        if (part->component == FULL && part->node->locked()) {
            failures.add_failed(part->node, transfer.direction);
        }
    }
}

// Cancel a copy if it builds on a failed one.
void cancel_if_useless(State& state, Transfer& transfer, Failures& failures) {
    if (failures.empty() || !failures.are_above(transfer)) return;
    failures.add_cancelled(transfer);
    cancel(state, transfer);
}

Status settle_one(State& state, const Transfer& transfer, bool done, Failures& failures) {
    release_hold(state, transfer.receipt);
    if (transfer.cancelled) {
        for (const Component component : {FULL, SWA, MAMBA}) {
            release(state, component, transfer.target(), transfer.targets[component]);
        }
        return Status::CANCELLED;
    }
    if (!done) {
        undo(state, transfer, failures);
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
    Failures failures;
    Settled settled;
    for (const auto& [transfer_id, done] : ended) {
        const auto at = state.transfers.find(transfer_id);
        state.arrived.erase(transfer_id);
        cancel_if_useless(state, at->second, failures);
        const Transfer transfer = std::move(at->second);
        state.transfers.erase(at);
        state.in_flight[static_cast<int>(transfer.direction)].erase(transfer_id);
        const Status status = settle_one(state, transfer, done, failures);
        ++state.counters.settled[static_cast<int>(status)];
        settled.emplace_back(transfer_id, status);
    }
    if (failures.empty()) return settled;
    for (auto& [transfer_id, later] : state.transfers) cancel_if_useless(state, later, failures);
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

uint64_t enqueue(State& state, Direction direction, const std::vector<Part>& parts, Hold& held) {
    Transfer& transfer = begin(state, direction, held);
    add_parts(state, transfer, parts);
    submit(state, transfer);
    return transfer.transfer_id;
}

Transfer& begin(State& state, Direction direction, Hold& held) {
    const uint64_t transfer_id = state.new_id();
    Transfer& transfer = state.transfers[transfer_id];
    transfer.transfer_id = transfer_id;
    transfer.direction = direction;
    transfer.receipt = held.receipt;
    held.transfer = &transfer;
    ++state.counters.transfers[static_cast<int>(direction)];
    state.in_flight[static_cast<int>(direction)].insert(transfer_id);
    return transfer;
}

void add_parts(State& state, Transfer& transfer, const std::vector<Part>& parts) {
    for (const Part& part : parts) {
        const Runs& sources = part.node->data[part.component].slots[transfer.source()];
        Runs targets = state.pool(part.component, transfer.target()).free.take(sources.slots());
        transfer.sources[part.component].append(sources);
        transfer.targets[part.component].append(targets);
        place(state, part.node, part.component, transfer.target(), std::move(targets), &transfer);
    }
    transfer.parts.insert(transfer.parts.end(), parts.begin(), parts.end());
}

void submit(State& state, const Transfer& transfer) { state.engine->submit(transfer); }

void cancel(State& state, Transfer& transfer) {
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        take(state, part->node, part->component, transfer.target());
    }
    transfer.parts.clear();
    transfer.cancelled = true;
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
