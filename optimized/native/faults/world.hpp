// A cache with an engine and requests, whose calls are decided by numbers, so that a history can be
// played again.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "../fuzz/audit.hpp"
#include "../fuzz/manual_engine.hpp"
#include "../fuzz/stamps.hpp"
#include "../sglang/row_table.hpp"
#include "failing_memory.hpp"
#include "slots.hpp"
#include "tier.hpp"
#include "turn.hpp"

namespace kvcanon::faults {

// One call: what it is, and numbers that decide its arguments.
struct Call {
    int kind;
    fuzz::Prompt prompt;
    int numbers[4];
};

Config drawn_config(std::mt19937& random);
Call drawn_call(std::mt19937& random);

// An engine whose own allocations never fail.
class Engine : public fuzz::ManualEngine {
  public:
    using fuzz::ManualEngine::ManualEngine;

    void submit(const Transfer& transfer) override {
        const FailingMemory::Pause pause;
        fuzz::ManualEngine::submit(transfer);
    }
    std::vector<std::pair<uint64_t, bool>> poll() override {
        const FailingMemory::Pause pause;
        return fuzz::ManualEngine::poll();
    }
    void wait(uint64_t transfer_id) override {
        const FailingMemory::Pause pause;
        fuzz::ManualEngine::wait(transfer_id);
    }
};

class World {
  public:
    explicit World(const Config& config);

    // Prepare a call with memory that never fails; returns the call of the cache alone.
    std::function<void()> prepare(const Call& call);
    // Prepare a call and make it.
    void play(const Call& call);
    // Complete all copies, as the recovery of a cache does before it forgets them, and forget what
    // the store was to do.
    void end_copies();
    // Release all slots that requests hold, and end the reads of the store; receipts are void.
    void drop_requests();

    Config config;
    fuzz::Stamps stamps;
    Engine engine;
    State state;
    Gate gate;
    // A number for all answers so far.
    uint64_t answers = 1;
    std::vector<SlotLists> held;
    std::vector<uint64_t> receipts;
    // Pages that were to be written to the store or fetched from there.
    std::vector<PageRun> runs;
    // Host slots that the store reads.
    std::vector<Runs> reads;
    // Where the slots of a caller that copies itself are.
    RowTable token_slots{config.device_slots[FULL], config.page_size};
    // Which allocation of the next call of the cache fails; -1 if none does.
    long failing = -1;
    FailingMemory::Fails fails = FailingMemory::Fails::ONCE;

  private:
    template <typename Work>
    auto ask(Work work);
    void note(int64_t number) {
        answers = (answers ^ static_cast<uint64_t>(number)) * 0x100000001b3ULL ^ answers >> 31;
    }
    void note(const SlotLists& slots);
    std::function<void()> prepare_insert(const Call& call);
    std::function<void()> prepare_for_store(const Call& call, const Key& key,
                                            std::shared_ptr<std::vector<uint32_t>> words);
    bool is_read(const Runs& slots) const;
    // The key of a prompt, whose second namespace a reset may have forgotten.
    Key key_of(const fuzz::Prompt& prompt, const std::vector<uint32_t>& words);
    void quietly(const std::function<void()>& work);
};

}  // namespace kvcanon::faults
