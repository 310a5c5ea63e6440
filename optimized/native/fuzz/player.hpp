// Plays an input: a tiny tree, and requests whose calls the bytes decide.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "audit.hpp"
#include "bytes.hpp"
#include "errors.hpp"
#include "manual_engine.hpp"
#include "slots.hpp"
#include "stamps.hpp"
#include "tier.hpp"

namespace kvcanon::fuzz {

// What the store writes.
struct StoreWrite {
    Prompt prompt;
    PageRun run;
    Runs slots;
    // Whether it reads the slots now: nobody may be given them until it ends.
    bool reads;
};

// What the store fetches, into host slots that are reserved for it.
struct StoreFetch {
    Prompt prompt;
    PageRun run;
    SlotLists slots;
};

class Player {
  public:
    explicit Player(Bytes& bytes);
    // Play all steps, and audit everything after each.
    void play();
    // Release everything and complete all copies: nothing may be left.
    void drain();

  private:
    void step();
    void look();

    void name_other();
    void match_some();
    void lock_some();
    void unlock_some(bool window_only);
    void insert_some();
    void hold_some();
    void free_some();
    void evict_some(Medium medium);
    void load_some();
    void fetch_some();
    void commit_some(const Prompt& prompt, int32_t start, const Counts& payloads);
    void complete_some();
    void settle_some();
    void settle_first(Completions ended);
    void settle_wrongly(const Completions& ended);
    void call_wrongly();

    void order_write();
    void end_write();
    void order_fetch();
    void end_fetch();
    void lose_some();
    void look_at_store();
    void require_held_on_host();
    void require_run(const Prompt& prompt, const PageRun& run);
    // Tell the cache that pages of a run are in the store, or that one is not.
    void note_in_store(const PageRun& run, int32_t begin, int32_t end);
    void note_lost(const PageRun& run, int32_t page);
    void end_orders();

    Prompt prompt();
    SlotLists allocate_some(const Counts& counts);
    void free_all(const SlotLists& slots);
    // Frees window slots that a request's window has passed; returns the others.
    Runs without_first(const Runs& swa);
    void write(const Prompt& prompt, int32_t start, const SlotLists& slots);
    int32_t match_and_look(const Prompt& prompt, int32_t& device_pages);

    // Make a call; returns whether it was neither refused nor stopped by an error of the engine.
    // Checks that a refusal changed nothing.
    template <typename Call>
    bool attempt(Call call) {
        const uint64_t before = digest(state_);
        try {
            call();
            return true;
        } catch (const CacheError&) {
            require(digest(state_) == before, "a refused call changed something");
        } catch (const EngineRaised&) {
            broke_off_ = true;
        }
        return false;
    }

    Bytes& bytes_;
    Config config_;
    Stamps stamps_;
    ManualEngine engine_;
    State state_;
    Hearer hearer_;
    std::vector<uint64_t> receipts_;
    // Slots that requests hold, as they were allocated.
    std::vector<SlotLists> held_;
    int fetches_ = 0;
    std::vector<StoreWrite> writes_;
    std::vector<StoreFetch> store_fetches_;
    // What the cache should count as stored: each hash, and that of the page before.
    std::map<std::string, std::string> stored_;
    bool broke_off_ = false;
};

}  // namespace kvcanon::fuzz
