// Plays an input to the calls by node: a caller that keeps its own tables of slots and copies
// itself, as SGLang's tree core does.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "../sglang/row_table.hpp"
#include "audit.hpp"
#include "bytes.hpp"
#include "errors.hpp"
#include "node_moves.hpp"
#include "nodes.hpp"
#include "stamps.hpp"

namespace kvcanon::fuzz {

class NodePlayer {
  public:
    explicit NodePlayer(Bytes& bytes);
    // Play all steps, and audit everything after each.
    void play();
    // Release every lock and evict everything: nothing may be left.
    void drain();

  private:
    struct Lock {
        uint64_t node, receipt;
        // Whether its window is held, and whether it holds host copies alone.
        bool has_window, is_on_host;
    };

    void step();
    void look();

    void match_some();
    void insert_some();
    void lock_some();
    void unlock_some();
    void evict_some();
    void copy_together(const EvictStep& step, Component of, int64_t wanted);
    void evict_named();
    void evict_on_host();
    void back_up_some();
    void load_some();
    void add_state();
    void fetch_some();
    void hash_some();

    Prompt prompt();
    // A node that there is or was; the root among them.
    uint64_t node();
    Component component();
    void write_pages(Component component, Medium medium, const Prompt& prompt, int32_t first,
                     const Runs& rows);
    void write_windows(const Prompt& prompt, const NodeInserted& done);
    void copy(Component component, Medium from, const Runs& sources, const Runs& targets);
    bool back_up(const std::vector<Node*>& nodes, bool all = false);

    // Make a call; returns whether it was not refused. Checks that a refusal changed nothing.
    template <typename Call>
    bool attempt(Call call) {
        const uint64_t before = digest(state_);
        try {
            call();
            return true;
        } catch (const CacheError&) {
            require(digest(state_) == before, "a refused call changed something");
            return false;
        }
    }

    Bytes& bytes_;
    Config config_;
    Stamps stamps_;
    State state_;
    Hearer hearer_;
    RowTable table_;
    // What the table should have by row, and the next token slot.
    std::map<Slot, std::vector<int64_t>> token_slots_;
    int64_t next_slot_ = 0;
    std::vector<uint64_t> ends_;
    std::vector<Lock> locks_;
};

}  // namespace kvcanon::fuzz
