// Plays an input: a tiny tree, and requests that do to it whatever the bytes say.
#pragma once

#include <memory>
#include <vector>

#include "audit.hpp"
#include "bytes.hpp"
#include "manual_engine.hpp"
#include "slots.hpp"
#include "stamps.hpp"

namespace kvcanon::fuzz {

class Player {
  public:
    explicit Player(Bytes& bytes);
    // Do what the bytes say, and look at everything after each step.
    void play();
    // Give all back and let all copies end: nothing may be left.
    void drain();

  private:
    void step();
    void look();

    void match_some();
    void lock_some();
    void unlock_some(bool window_only);
    void insert_some();
    void hold_some();
    void free_some();
    void evict_some(Medium medium);
    void load_some();
    void fetch_some();
    void complete_some();
    void call_wrongly();

    Prompt prompt();
    SlotLists allocate_some(const Counts& counts);
    void free_all(const SlotLists& slots);
    // A request's window moves on while it computes: what is left of its window slots.
    Runs without_first(const Runs& swa);
    void write(const Prompt& prompt, int32_t start, const SlotLists& slots);
    int32_t match_and_look(const Prompt& prompt, int32_t& device_pages);

    // Make a call; whether it was neither refused nor broken off by the engine. A refusal must have
    // changed nothing.
    template <typename Call>
    bool attempt(Call call);

    Bytes& bytes_;
    Config config_;
    Stamps stamps_;
    ManualEngine engine_;
    State state_;
    Hearer hearer_;
    std::vector<uint64_t> receipts_;
    // Slots that requests hold, as they were allocated.
    std::vector<SlotLists> held_;
    bool broke_off_ = false;
};

}  // namespace kvcanon::fuzz
