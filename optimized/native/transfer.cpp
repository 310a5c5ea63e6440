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

bool builds_on_marked(const Transfer& transfer) {
    for (const Part& part : transfer.parts) {
        for (const Node* node = part.node; node->parent != nullptr; node = node->parent) {
            if (node->marked) return true;
        }
    }
    return false;
}

// Drop the slots that a failed copy did not fill, and cancel copies that build on it.
void undo(State& state, const Transfer& transfer) {
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        drop(state, part->node, part->component, transfer.target());
    }
    const auto mark = [&](bool failed) {
        for (const Part& part : transfer.parts) {
            if (part.component == FULL) part.node->marked = failed;
        }
    };
    mark(true);
    for (auto& [transfer_id, later] : state.transfers) {
        if (later.direction == transfer.direction && builds_on_marked(later)) cancel(state, later);
    }
    mark(false);
}

Status settle_one(State& state, const Transfer& transfer, bool done) {
    release_hold(state, transfer.receipt);
    if (transfer.cancelled) {
        for (const Component component : {FULL, SWA, MAMBA}) {
            release(state, component, transfer.target(), transfer.targets[component]);
        }
        return Status::CANCELLED;
    }
    if (!done) {
        undo(state, transfer);
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
    state.engine->submit(transfer);
    return transfer_id;
}

Settled settle(State& state, int direction) {
    if (state.transfers.empty()) return {};
    take_completions(state);
    bool waiting[2] = {direction == static_cast<int>(Direction::LOAD_BACK),
                       direction == static_cast<int>(Direction::BACKUP)};
    std::vector<uint64_t> in_flight;
    in_flight.reserve(state.transfers.size());
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): there are few transfers.
    for (const auto& [transfer_id, transfer] : state.transfers) in_flight.push_back(transfer_id);
    Settled settled;
    for (const uint64_t transfer_id : in_flight) {
        const auto found = state.transfers.find(transfer_id);
        bool& waits = waiting[static_cast<int>(found->second.direction)];
        const auto arrival = state.arrived.find(transfer_id);
        waits = waits || arrival == state.arrived.end();
        if (waits) continue;
        const bool done = arrival->second;
        state.arrived.erase(arrival);
        const Transfer transfer = std::move(found->second);
        state.transfers.erase(found);
        const Status status = settle_one(state, transfer, done);
        ++state.counters.settled[static_cast<int>(status)];
        settled.emplace_back(transfer_id, status);
    }
    return settled;
}

Settled flush(State& state) {
    std::vector<uint64_t> in_flight;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): there are few transfers.
    for (const auto& [transfer_id, transfer] : state.transfers) in_flight.push_back(transfer_id);
    for (const uint64_t transfer_id : in_flight) state.engine->wait(transfer_id);
    return settle(state);
}

}  // namespace kvcanon
