#include "transfer.hpp"

#include <algorithm>

#include "arrivals.hpp"
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

Settled settle(State& state, int direction) {
    if (state.transfers.empty()) return {};
    return settle_all(state, ends_of(state, direction));
}

Settled settle_these(State& state, Completions named) {
    require_settleable(state, named);
    return settle_all(state, named);
}

Settled flush(State& state) {
    std::vector<uint64_t> in_flight;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): there are few transfers.
    for (const auto& [transfer_id, transfer] : state.transfers) in_flight.push_back(transfer_id);
    for (const uint64_t transfer_id : in_flight) state.engine->wait(transfer_id);
    Settled settled = settle(state);
    if (state.engine->has_ranks() && !state.transfers.empty()) {
        throw SpecViolation("flush waited here, and transfer " +
                            std::to_string(state.transfers.begin()->first) +
                            " is in flight on another rank; all ranks must call flush");
    }
    return settled;
}

}  // namespace kvcanon
