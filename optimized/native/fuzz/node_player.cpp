#include "node_player.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "check.hpp"
#include "emit.hpp"
#include "fetched.hpp"
#include "host_hold.hpp"
#include "lock.hpp"
#include "node_moves.hpp"
#include "reset.hpp"
#include "storage_hashes.hpp"
#include "tree.hpp"
#include "victims.hpp"

namespace kvcanon::fuzz {

namespace {

constexpr int MOST_PAGES = 7;

Config some_config(Bytes& bytes) {
    constexpr int WINDOWS[] = {0, 1, 2, 3, 5, 100};
    Config config;
    config.page_size = 1 + bytes.below(3);
    config.page_words = config.page_size * (1 + bytes.below(2));
    config.window_tokens = WINDOWS[bytes.below(6)];
    config.mamba = bytes.coin();
    config.write_policy = static_cast<WritePolicy>(bytes.below(4));
    for (const Component each : ALL_COMPONENTS) {
        if (!config.has(each)) continue;
        config.device_slots[each] = 1 + bytes.below(each == MAMBA ? 4 : 14);
        if (config.host_tier()) config.host_slots[each] = 1 + bytes.below(14);
    }
    config.eviction_policy = static_cast<EvictionPolicy>(bytes.below(7));
    config.events = bytes.coin();
    config.tag_bits = bytes.coin() ? 1 : 32;
    config.caller_copies = true;
    if (config.host_tier()) config.wanted_hits = bytes.below(3);
    return config;
}

Key key_of(const Prompt& prompt, const std::vector<uint32_t>& words) {
    return {words.data(), prompt.pages, prompt.namespace_id};
}

}  // namespace

NodePlayer::NodePlayer(Bytes& bytes)
    : bytes_(bytes),
      config_(some_config(bytes)),
      stamps_(config_),
      state_(config_, nullptr),
      table_(config_.device_slots[FULL], config_.page_size) {
    const uint8_t seed[HASH_BYTES] = {};
    state_.namespaces->add("default", seed, 0);
    state_.namespaces->add("other", seed, HASH_BYTES);
    ends_.push_back(handle_of(state_.root));
}

void NodePlayer::play() {
    while (!bytes_.empty()) {
        step();
        look();
    }
}

void NodePlayer::step() {
    switch (bytes_.below(17)) {
        case 0: return match_some();
        case 1:
        case 2:
        case 3:
        case 4: return insert_some();
        case 5: return lock_some();
        case 6:
        case 7: return unlock_some();
        case 8: return evict_some();
        case 9: return evict_named();
        case 10: return evict_on_host();
        case 11: return back_up_some();
        case 12: return load_some();
        case 13: return add_state();
        case 14: return fetch_some();
        case 15: return hash_some();
        default:
            attempt([&] { set_write_back(state_, bytes_.coin()); });
            return hearer_.require_true(state_);
    }
}

void NodePlayer::look() {
    check(state_);
    require_lawful(state_);
    require_stamped(state_, stamps_);
    require(state_.journal == nullptr, "a journal is left");
    require(locks_.size() == state_.holds.size() + state_.host_holds.size(),
            "a receipt is open that nobody has");
    for (const Node* each : all_nodes(state_)) {
        if (!each->data[FULL].on(GPU)) continue;
        std::vector<int64_t> wanted;
        for (const Slot row : slots_in(each->data[FULL].slots(GPU))) {
            const std::vector<int64_t>& page = token_slots_.at(row);
            wanted.insert(wanted.end(), page.begin(), page.end());
        }
        std::vector<int64_t> found(wanted.size());
        table_.get(each->data[FULL].slots(GPU), found.data());
        require(found == wanted, "a row leads to other token slots");
    }
}

Prompt NodePlayer::prompt() {
    const int shape = bytes_.next();
    return {static_cast<uint32_t>(shape & 1), (shape >> 1) % (MOST_PAGES + 1), bytes_.next()};
}

uint64_t NodePlayer::node() {
    return ends_[static_cast<size_t>(bytes_.below(static_cast<int>(ends_.size())))];
}

Component NodePlayer::component() { return static_cast<Component>(bytes_.below(COMPONENTS)); }

void NodePlayer::write_pages(Component component, Medium medium, const Prompt& prompt,
                             int32_t first, const Runs& rows) {
    for (const Slot row : slots_in(rows)) {
        stamps_.at(component, medium, row) = prompt.stamp(first++);
    }
}

// The caller brings the window data of these pages along.
void NodePlayer::write_windows(const Prompt& prompt, const NodeInserted& done) {
    for (const AdoptedWindow& window : done.windows) {
        const Node* node = node_at(state_, window.end);
        require(node->end() == window.pages.end, "a window ends elsewhere");
        for (; handle_of(node) != window.above; node = node->parent) {
            require(node->start >= window.pages.begin, "a window begins elsewhere");
            write_pages(SWA, GPU, prompt, node->start, node->data[SWA].slots(GPU));
        }
    }
}

void NodePlayer::copy(Component component, Medium from, const Runs& sources, const Runs& targets) {
    require(sources.slots() == targets.slots(), "a copy has fewer targets than sources");
    const std::vector<Slot> read = slots_in(sources), written = slots_in(targets);
    for (size_t at = 0; at < read.size(); ++at) {
        stamps_.at(component, from == GPU ? CPU : GPU, written[at]) =
            stamps_.at(component, from, read[at]);
    }
}

void NodePlayer::match_some() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const NodeMatched found = match_nodes(state_, key_of(some, words));
    require(node_at(state_, found.end)->end() == found.prefix_pages, "a prefix ends elsewhere");
    const Node* end = node_at(state_, found.device_end);
    require(end->end() == found.device_pages && found.device_pages <= found.prefix_pages &&
                found.prefix_pages <= found.walked_pages,
            "a match is longer than what it walked");
    const Runs rows = slots_between(end, state_.root, FULL, GPU);
    int32_t page = 0;
    for (const Slot row : slots_in(rows)) {
        require(stamps_.at(FULL, GPU, row) == some.stamp(page++), "a match has other pages");
    }
    require(page == found.device_pages, "a match has fewer rows than pages");
}

void NodePlayer::insert_some() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const Key key = key_of(some, words);
    const int32_t cached = match_nodes(state_, key).device_pages;
    Offered offered;
    // Mostly from where the cached data ends; else the request has computed duplicates, or less.
    const int way = bytes_.below(8);
    offered.owned_pages = way < 5 ? cached : bytes_.below(some.pages + 1);
    offered.window_from = bytes_.below(some.pages + 1);
    offered.state = config_.mamba && bytes_.coin();
    offered.counted_pages = bytes_.below(some.pages + 2);
    offered.priority = bytes_.below(3);
    // Some are runs, some are not, and some cannot be a slot.
    std::vector<int64_t> slots(static_cast<size_t>(some.pages * config_.page_size));
    std::iota(slots.begin(), slots.end(), next_slot_);
    next_slot_ += static_cast<int64_t>(slots.size());
    if (bytes_.coin() && slots.size() > 1) std::swap(slots.front(), slots.back());
    if (bytes_.below(16) == 0 && !slots.empty()) slots.back() = -1;
    std::set<Slot> locked;
    for (const Node* each : all_nodes(state_)) {
        if (each->data[FULL].lock_refs == 0) continue;
        for (const Slot row : slots_in(each->data[FULL].slots(GPU))) locked.insert(row);
    }
    NodeInserted done;
    const OnRows on_rows = [&](int64_t first, const Runs& rows) {
        table_.put(rows, slots.data() + first * config_.page_size);
    };
    if (!attempt([&] { done = insert_nodes(state_, key, offered, on_rows); })) return;
    ends_.push_back(done.end);
    for (const Adopted& taken : done.full) {
        write_pages(FULL, GPU, some, taken.begin, taken.rows);
        auto from = slots.begin() + std::ptrdiff_t{taken.begin} * config_.page_size;
        for (const Slot row : slots_in(taken.rows)) {
            token_slots_[row] = {from, from + config_.page_size};
            from += config_.page_size;
        }
    }
    // The caller puts its own slots behind these rows, so that nobody may be reading the former.
    for (const Adopted& healed : done.healed) {
        for (const Slot row : slots_in(healed.rows)) {
            require(locked.count(row) == 0, "slots that a lock holds are to be replaced");
        }
    }
    write_windows(some, done);
    if (done.state) write_pages(MAMBA, GPU, some, some.pages - 1, done.state);
    std::vector<Node*> wanted;
    for (const uint64_t each : done.wanted) wanted.push_back(node_at(state_, each));
    if (!wanted.empty() && bytes_.below(4) != 0) back_up(wanted);
}

void NodePlayer::lock_some() {
    const uint64_t named = node();
    const bool window = bytes_.coin(), state = bytes_.coin();
    if (bytes_.below(4) == 0) {
        uint64_t receipt = 0;
        if (attempt([&] { receipt = hold_on_host(state_, node_at(state_, named)); })) {
            locks_.push_back({named, receipt, false, true});
        }
        return;
    }
    NodeLocked locked;
    if (attempt([&] { locked = lock_node(state_, node_at(state_, named), window, state, {}); })) {
        locks_.push_back({named, locked.receipt, window, false});
    }
}

void NodePlayer::unlock_some() {
    if (locks_.empty()) return;
    const auto which =
        locks_.begin() + bytes_.below(static_cast<int>(std::min<size_t>(locks_.size(), 255)));
    const Lock lock = *which;
    // A receipt is good for its own node alone.
    const uint64_t other = node();
    const bool is_other = other != lock.node;
    const auto release = [&](uint64_t name) {
        if (lock.is_on_host) return release_on_host(state_, node_at(state_, name), lock.receipt);
        hold_of(state_, node_at(state_, name), lock.receipt);
        unlock(state_, lock.receipt);
    };
    require(!is_other || !attempt([&] { release(other); }), "another node's lock was released");
    if (!lock.is_on_host && bytes_.coin()) {
        if (lock.has_window) unlock_window(state_, lock.receipt);
        return;
    }
    require(attempt([&] { release(lock.node); }), "a lock was not released");
    locks_.erase(which);
}

// What a step says came free has left the nodes, and is enough where anything is left to evict.
void NodePlayer::evict_some() {
    const Component of = component();
    const int64_t wanted = 1 + bytes_.below(6);
    const int64_t before = state_.pool(of, GPU).owned_slots;
    const bool together = bytes_.coin();
    EvictStep step;
    if (!attempt([&] { step = evict_step(state_, of, wanted, together); })) return;
    const int64_t freed = before - state_.pool(of, GPU).owned_slots;
    require(freed == step.journal.freed[of][GPU].slots(), "other slots came free than were told");
    require(freed != 0 || step.copy_first || step.node == 0, "a victim freed nothing");
    if (!step.copy_first) {
        require(freed >= wanted || next_victim(state_, of, GPU) == nullptr ||
                    state_.config.writes_back() || !state_.host_holds.empty(),
                "an eviction ended too soon");
        return;
    }
    require(freed == 0, "a victim left before its copy");
    Node* victim = node_at(state_, step.node);
    ends_.push_back(step.node);
    if (together && of != FULL && bytes_.below(4) != 0) return copy_together(step, of, wanted);
    require((together && of != FULL) || step.with_it.empty(), "a victim has others with it");
    if (bytes_.coin() && !back_up({victim})) return;
    attempt([&] { evict_node(state_, victim, of); });
}

// What the victims have on the host stays while room for all is made, and that is enough for them.
// The eviction asks for no second copy of any.
void NodePlayer::copy_together(const EvictStep& step, Component of, int64_t wanted) {
    std::vector<Node*> victims{node_at(state_, step.node)};
    for (const uint64_t each : step.with_it) victims.push_back(node_at(state_, each));
    Counts free;
    for (const Component each : ALL_COMPONENTS) free[each] = state_.free_slots(each, CPU);
    const bool locks = bytes_.coin();
    const HostRoom room = make_host_room_for(state_, victims, {true, true, true}, free, locks);
    const PairedSlots read = slots_to_back_up(state_, victims);
    for (const Component each : ALL_COMPONENTS) {
        require(read.slots.of[each].slots() == step.lacks[each], "a victim lacks something else");
    }
    require(room.fits == (room.nodes == victims.size()), "other nodes have room");
    // A copy before an eviction locks nothing; a lock keeps copies of the nodes above, too.
    if (!room.fits) return require(locks || victims.size() == 1, "several victims have no room");
    require(back_up(victims, true), "a copy that has room was refused");
    const EvictStep left = evict_step(state_, of, wanted);
    for (const Node* each : victims) {
        require(left.node != handle_of(each) || !left.copy_first, "a victim is copied again");
    }
}

void NodePlayer::evict_named() {
    const uint64_t named = node();
    const Component of = component();
    if (!attempt([&] { evict_node(state_, node_at(state_, named), of); })) return;
    const Node* left = state_.arena.find(named);
    require(left == nullptr || !left->data[of].on(GPU), "an evicted node has what it had");
}

void NodePlayer::evict_on_host() {
    const Component of = component();
    const int64_t before = state_.pool(of, CPU).owned_slots;
    Journal done;
    if (!attempt([&] { done = evict_host_nodes(state_, of, bytes_.below(6)); })) return;
    require(before - state_.pool(of, CPU).owned_slots == done.freed[of][CPU].slots(),
            "other host slots came free than were told");
}

bool NodePlayer::back_up(const std::vector<Node*>& nodes, bool all) {
    const PairedSlots read = slots_to_back_up(state_, nodes);
    bool wanted[COMPONENTS];
    for (const Component each : ALL_COMPONENTS) {
        wanted[each] = static_cast<bool>(read.slots.of[each]) && (all || bytes_.below(4) != 0);
    }
    HostCopied copied;
    if (!attempt([&] { copied = add_host_copy(state_, nodes, wanted); })) return false;
    for (const Component each : ALL_COMPONENTS) {
        if (wanted[each]) copy(each, GPU, read.slots.of[each], copied.slots.of[each]);
    }
    for (const uint64_t each : copied.stored) emit_stored(state_, node_at(state_, each), CPU);
    return true;
}

void NodePlayer::back_up_some() {
    const uint64_t named = node();
    std::vector<Node*> path;
    if (!attempt([&] { path = path_to(node_at(state_, named)); })) return;
    if (!path.empty()) back_up({path.back()});
}

void NodePlayer::load_some() {
    const uint64_t named = node();
    NodeSlots read;
    if (!attempt([&] { read = slots_to_load(state_, node_at(state_, named)); })) return;
    bool wanted[COMPONENTS];
    for (const Component each : ALL_COMPONENTS) {
        wanted[each] = static_cast<bool>(read.of[each]) && (bytes_.below(8) != 0);
    }
    PairedSlots placed;
    if (!attempt([&] { placed = add_device_copy(state_, node_at(state_, named), wanted); })) return;
    for (const Component each : ALL_COMPONENTS) {
        if (wanted[each]) copy(each, CPU, read.of[each], placed.slots.of[each]);
    }
    for (const Slot row : slots_in(placed.slots.of[FULL])) {
        std::vector<int64_t>& page = token_slots_[row];
        page.resize(static_cast<size_t>(config_.page_size));
        std::iota(page.begin(), page.end(), next_slot_);
        next_slot_ += config_.page_size;
        Runs one;
        one.append({row, 1});
        table_.put(one, page.data());
    }
}

void NodePlayer::add_state() {
    const uint64_t named = node();
    Runs rows;
    if (!attempt([&] { rows = add_device_data(state_, node_at(state_, named), MAMBA); })) return;
    const Node* holder = node_at(state_, named);
    for (const Slot row : slots_in(rows)) {
        // The same state as at any other copy of this page.
        Prompt upto{holder->namespace_id, holder->end(), 0};
        for (const Node* each : path_to(const_cast<Node*>(holder))) {
            for (int32_t page = 0; page < each->pages; ++page) {
                const uint32_t word = state_.words(each)[(page + 1) * config_.page_words - 1];
                upto.bits |= (word & 1) << (each->start + page);
            }
        }
        stamps_.at(MAMBA, GPU, row) = upto.stamp(holder->end() - 1);
    }
}

// Pages of a prompt that storage has, below the node at which the tree's part of it ends.
void NodePlayer::fetch_some() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const int32_t skipped = bytes_.below(some.pages + 1);
    const Prompt upper{some.namespace_id, skipped, some.bits};
    const NodeMatched found = match_nodes(state_, key_of(upper, words));
    if (found.walked_pages != skipped || found.prefix_pages != skipped) return;
    const Key fetched{words.data() + static_cast<ptrdiff_t>(skipped) * config_.page_words,
                      some.pages - skipped, some.namespace_id};
    FetchedTaken done;
    if (!attempt([&] { done = take_fetched(state_, node_at(state_, found.end), fetched); })) return;
    for (const Adopted& taken : done.taken) {
        write_pages(FULL, CPU, some, skipped + taken.begin, taken.rows);
    }
    if (done.end == 0) return;
    ends_.push_back(done.end);
    Node* end = node_at(state_, done.end);
    if (config_.swa() && bytes_.coin()) {
        WindowTaken window;
        const int32_t pages = bytes_.below(some.pages + 2), last = end->end();
        const Node* above = node_at(state_, found.end);
        if (attempt([&] { window = take_fetched_window(state_, above, end, pages); })) {
            for (const Adopted& taken : window.taken) {
                write_pages(SWA, CPU, some, last - pages + taken.begin, taken.rows);
            }
        }
    }
    Runs state;
    if (config_.mamba && bytes_.coin() &&
        attempt([&] { state = take_fetched_state(state_, node_at(state_, done.end)); })) {
        write_pages(MAMBA, CPU, some, some.pages - 1, state);
    }
}

void NodePlayer::hash_some() {
    const uint64_t named = node();
    attempt([&] { hash_for_storage(state_, node_at(state_, named)); });
}

void NodePlayer::drain() {
    for (const Lock& lock : locks_) {
        const Node* node = node_at(state_, lock.node);
        if (lock.is_on_host) {
            release_on_host(state_, node, lock.receipt);
        } else {
            unlock(state_, lock.receipt);
        }
    }
    locks_.clear();
    constexpr int64_t ALL = std::numeric_limits<int32_t>::max();
    for (const Component of : {MAMBA, SWA, FULL}) {
        if (!config_.has(of)) continue;
        EvictStep step;
        do {
            step = evict_step(state_, of, ALL);
            if (step.copy_first) evict_node(state_, node_at(state_, step.node), of);
        } while (step.node != 0);
    }
    for (const Component of : {MAMBA, SWA, FULL}) {
        if (config_.host_tier() && config_.has(of)) evict_host_nodes(state_, of, ALL);
    }
    look();
    hearer_.require_true(state_);
    require(state_.node_count == 0, "nodes are left");
    for (const Component of : ALL_COMPONENTS) {
        for (const Medium medium : {GPU, CPU}) {
            require(state_.free_slots(of, medium) == config_.capacity(of, medium),
                    "slots are left");
        }
    }
}

}  // namespace kvcanon::fuzz
