#include "transfer.hpp"

#include <algorithm>
#include <cassert>

#include "arrivals.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "failures.hpp"
#include "invariants.hpp"
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
    assert(fills_its_parts(transfer) && transfer.cancelled == transfer.parts.empty());
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

// Settle transfers that can settle, in the order of their enqueueing.
Settled settle_all(State& state, const Completions& ended) {
    Failures failures;
    Settled settled;
    for (const auto& [transfer_id, done] : ended) {
        const auto at = state.transfers.find(transfer_id);
        state.arrived.erase(transfer_id);
        assert(at != state.transfers.end());
        cancel_if_useless(state, at->second, failures);
        // Nodes point to the transfer until it has settled, so that it leaves after that.
        const Status status = settle_one(state, at->second, done, failures);
        state.in_flight[static_cast<int>(at->second.direction)].erase(transfer_id);
        state.transfers.erase(at);
        ++state.counters.settled[static_cast<int>(status)];
        settled.emplace_back(transfer_id, status);
    }
    if (failures.empty()) return settled;
    for (auto& [transfer_id, later] : state.transfers) cancel_if_useless(state, later, failures);
    return settled;
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
        assert(part.node->data[part.component].resident(transfer.source()));
        const Runs& sources = part.node->data[part.component].slots(transfer.source());
        Runs targets = state.pool(part.component, transfer.target()).free.take(sources.slots());
        transfer.sources[part.component].append(sources);
        transfer.targets[part.component].append(targets);
        place(state, part.node, part.component, transfer.target(), std::move(targets), &transfer);
    }
    transfer.parts.insert(transfer.parts.end(), parts.begin(), parts.end());
    assert(fills_its_parts(transfer));
}

void submit(State& state, const Transfer& transfer) { state.engine->submit(transfer); }

void cancel(State& state, Transfer& transfer) {
    assert(!transfer.cancelled && fills_its_parts(transfer));
    for (auto part = transfer.parts.rbegin(); part != transfer.parts.rend(); ++part) {
        take(state, part->node, part->component, transfer.target());
    }
    transfer.parts.clear();
    transfer.cancelled = true;
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
