// All state of a cache.
//
// The model is that of `kvcanon.reference.state`: a node owns its slots, a request owns those in
// `held`, a pool those in `free`, a cancelled transfer those that it still writes to. The storage
// differs: tokens are in shared spans, slots in runs, nodes in an arena, and candidates for
// eviction in queues.
//
// The address of a node is valid only while the node lives.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "child_table.hpp"
#include "chunked_array.hpp"
#include "config.hpp"
#include "journal.hpp"
#include "namespaces.hpp"
#include "queued.hpp"
#include "runs.hpp"
#include "slot_set.hpp"
#include "stored_pages.hpp"
#include "token_span.hpp"
#include "victim_queue.hpp"

namespace kvcanon {

struct State;
struct Transfer;

// One component's data at one node; empty runs where the data is not on that medium.
struct Data {
    // The transfer that still fills the slots on each medium.
    Transfer* filling[MEDIA] = {nullptr, nullptr};
    // Holds on it. Of full data, holds that end at this node, and children that are locked: each
    // lock of a node locks the nodes above.
    Queued<int32_t> lock_refs;
    // Holds of its host copy, as in host_hold.hpp.
    Queued<int32_t> host_holds;
    // Tick of its last use; for full data the node's `last_access` counts instead.
    Queued<uint64_t> used;

    const Runs& slots(Medium medium) const { return slots_[medium].get(); }
    bool on(Medium medium) const { return static_cast<bool>(slots(medium)); }
    // Whether the bytes are there: it owns slots, and no transfer still fills them.
    bool resident(Medium medium) const { return on(medium) && filling[medium] == nullptr; }

  private:
    friend class QueuedWriter;
    Queued<Runs> slots_[MEDIA];
};

// A node's data of all components. Only those that the cache has take memory.
class NodeData {
  public:
    Data& operator[](int component) { return component == FULL ? full_ : *others_[component - 1]; }
    const Data& operator[](int component) const {
        return component == FULL ? full_ : *others_[component - 1];
    }
    // Use `data` for a component besides `FULL`.
    void give(Component component, Data* data) { others_[component - 1] = data; }

  private:
    // What every node has of a component that its cache lacks; nobody writes to it.
    static inline Data absent;

    Data full_;
    Data* others_[COMPONENTS - 1] = {&absent, &absent};
};

struct Node {
    Node() = default;
    // A node that is not in the tree, with this memory for its data.
    explicit Node(const NodeData& empty) : data(empty) {}

    uint64_t node_id = 0;
    Node* parent = nullptr;
    // Children in the order in which they were added; a cut keeps the place of the node that it
    // cuts.
    Queued<Node*> first_child;
    Node* last_child = nullptr;
    Node *previous = nullptr, *next = nullptr;
    SpanRef span;
    // Its pages are those of its span from `offset` on.
    int32_t offset = 0;
    int32_t pages = 0;
    // Pages before this node.
    Queued<int32_t> start;
    uint32_t namespace_id = 0;
    uint32_t index = 0;
    // How often the arena has given this place to a node; part of the node's handle.
    uint64_t generation = 0;
    // Children with full data on the device.
    Queued<int32_t> device_children;
    // Which queues have it: one bit for each `Queue`.
    uint8_t queued = 0;
    // What `Failures` knows of it; 0 but while transfers are settled.
    uint8_t settling = 0;
    // Whether it is a victim of the running eviction that has not left yet.
    bool departing = false;
    Queued<uint64_t> created;
    // What it knows of its uses; recency.hpp says what is true.
    Queued<uint64_t> last_access;
    Queued<int64_t> hit_count;
    Queued<int64_t> priority;
    NodeData data;

    int32_t end() const { return start + pages; }
    bool locked() const {
        return (data[FULL].lock_refs | data[SWA].lock_refs | data[MAMBA].lock_refs) != 0;
    }
    // Whether its data of a component may not leave a medium.
    bool protects(int component, Medium medium) const {
        const Data& its = data[component];
        return its.lock_refs != 0 || (medium == CPU && its.host_holds != 0);
    }
};

// Writes what places a node in the queues. `update` in victims.hpp alone makes one.
class QueuedWriter {
  public:
    template <typename Value>
    Value& operator[](Queued<Value> Node::* field) const {
        return (node_->*field).value_;
    }
    template <typename Value>
    Value& of(Component component, Queued<Value> Data::* field) const {
        return (node_->data[component].*field).value_;
    }
    Runs& slots(Component component, Medium medium) const {
        return node_->data[component].slots_[medium].value_;
    }

  private:
    template <typename Write>
    friend auto update(State& state, Node* node, Write write);
    explicit QueuedWriter(Node* node) : node_(node) {}

    Node* node_;
};

// A node's name outside of the core: its place in the arena, and which node there it is. No other
// node of the cache ever has the same.
constexpr int HANDLE_INDEX_BITS = 27;
inline uint64_t handle_of(const Node* node) {
    return node->generation << HANDLE_INDEX_BITS | node->index;
}

// Nodes at fixed addresses, reused.
class Arena {
  public:
    // The components of the cache besides `FULL`.
    explicit Arena(std::vector<Component> others) : others_(std::move(others)) {}
    // If memory runs out, nothing has changed.
    Node* make();
    void release(Node* node);
    // Drop all nodes without a look at them. Their handles are never given out again.
    void clear();
    Node* at(uint32_t index) const { return &chunks_[index / CHUNK].nodes[index % CHUNK]; }
    // The node with a handle; null if it is gone, or was never here.
    Node* find(uint64_t handle) const {
        const auto index = static_cast<uint32_t>(handle & ((uint64_t{1} << HANDLE_INDEX_BITS) - 1));
        return index < used_ && handle_of(at(index)) == handle ? at(index) : nullptr;
    }
    // Nodes in use or waiting to be reused.
    uint32_t size() const { return used_; }

  private:
    // Few, since a call that needs a new chunk pays for the page faults of all of it.
    static constexpr uint32_t CHUNK = 16;
    struct Chunk {
        std::unique_ptr<Node[]> nodes;
        // What the nodes have of the components besides `FULL`, one component after the other.
        std::unique_ptr<Data[]> others;
    };
    void add_chunk();

    const std::vector<Component> others_;
    std::vector<Chunk> chunks_;
    ChunkedArray<uint32_t> free_;
    uint32_t used_ = 0;
    // The smallest generation that a node may have, and the largest that one has had.
    uint64_t first_generation_ = 0, last_generation_ = 0;
};

struct Pool {
    SlotSet free;
    // Slots that clients own: requests on the device, who fills them on the host. Padding slots are
    // in it, too, and stay there. It has room for no others where clients hold none.
    SlotSet held;
    // Slots that nodes own, and how many of them are locked.
    int64_t owned_slots = 0;
    int64_t protected_slots = 0;
    // Slots that departures keep; they are free when the running eviction ends.
    int64_t leaving_slots = 0;
};

// The queues of nodes whose data may be evicted: one for each component and medium, and under
// write_back two of nodes whose data is on both media.
enum class Queue : int {
    FULL_GPU,
    FULL_CPU,
    SWA_GPU,
    SWA_CPU,
    MAMBA_GPU,
    MAMBA_CPU,
    INNER_DUPLICATES,
    LEAF_DUPLICATES,
};
constexpr int QUEUES = 8;

inline Queue queue_of(Component component, Medium medium) {
    return static_cast<Queue>(component * MEDIA + medium);
}
inline Component component_of(Queue queue) {
    return static_cast<Component>(static_cast<int>(queue) / MEDIA);
}
inline Medium medium_of(Queue queue) {
    return static_cast<Medium>(static_cast<int>(queue) % MEDIA);
}

enum class Direction : int { BACKUP = 0, LOAD_BACK = 1 };
enum class Status : int { DONE, FAILED, CANCELLED };

struct Hold {
    uint64_t receipt = 0;
    Node* node = nullptr;
    // First page whose window data is held; -1 where none is.
    int64_t window_from = -1;
    bool mamba_held = false;
    Transfer* transfer = nullptr;
};

// A hold of host copies: of a node, and of those above it that begin at or after a page.
struct HostHold {
    Node* node;
    int32_t from_page;
};

struct Part {
    Node* node;
    Component component;
};

struct Transfer {
    uint64_t transfer_id = 0;
    Direction direction = Direction::BACKUP;
    // A cut of a node adds a part; sources and targets never change.
    std::vector<Part> parts;
    Runs sources[COMPONENTS];
    Runs targets[COMPONENTS];
    uint64_t receipt = 0;
    bool cancelled = false;

    Medium source() const { return direction == Direction::BACKUP ? GPU : CPU; }
    Medium target() const { return direction == Direction::BACKUP ? CPU : GPU; }
};

// A victim of the running eviction, under write_back: its data leaves when it is copied. The node
// has given the slots up, so that further victims are chosen as if it had left.
struct LeavingVictim {
    Node* node;
    // The device slots of the components that leave.
    Runs slots[COMPONENTS];
    // Whether the whole node leaves the device.
    bool whole;
};

// What the running eviction from the device has chosen, in this order, and not let leave yet. Who
// may let victims leave is given it.
struct Departures {
    std::vector<LeavingVictim> victims;
    // The transfer that copies the victims; 0 if the host lacks nothing of them.
    uint64_t copy_id = 0;

    bool any() const { return copy_id != 0 || !victims.empty(); }
};

// Transfers whose copies have ended, each with whether it succeeded.
using Completions = std::vector<std::pair<uint64_t, bool>>;

// How far a copy is, as `kvcanon.spec.transfer.Arrival`: of several ranks the least counts.
enum class Arrival : int { WAITING = 0, FAILED = 1, DONE = 2 };

// Performs copies, as `kvcanon.spec.transfer.TransferEngine` does, and asks the other ranks how far
// theirs are.
class Engine {
  public:
    virtual ~Engine() = default;
    virtual void submit(const Transfer& transfer) = 0;
    virtual Completions poll() = 0;
    virtual void wait(uint64_t transfer_id) = 0;
    // Whether there are other ranks, so that settlements have to be agreed on.
    virtual bool has_ranks() const { return false; }
    // For each of some transfers, the least arrival among all ranks.
    virtual std::vector<int> agree(const std::vector<int>& arrivals) { return arrivals; }
};

enum class EventKind : int { STORED, REMOVED, CLEARED };

// Consecutive pages were stored on a medium or removed from it; of removed pages the last comes
// first.
struct Event {
    EventKind kind;
    Medium medium;
    SpanRef span;
    int32_t offset = 0;
    int32_t pages = 0;
};

// What the cache has done since it was made; slots are counted by component.
struct Counters {
    uint64_t matches = 0;
    uint64_t matched_pages[MEDIA] = {0, 0};
    uint64_t asked_pages = 0;
    uint64_t inserts = 0;
    uint64_t inserted_pages = 0;
    uint64_t duplicate_pages = 0;
    uint64_t evicted_slots[MEDIA][COMPONENTS] = {};
    uint64_t evicted_for_load_slots[COMPONENTS] = {};
    // By direction: transfers that were enqueued, and slots of transfers that are done.
    uint64_t transfers[2] = {0, 0};
    uint64_t moved_slots[2][COMPONENTS] = {};
    uint64_t settled[3] = {0, 0, 0};
    uint64_t declined_backup_pages = 0;
    uint64_t events = 0;
    // Page events that were dropped because too many waited.
    uint64_t dropped_events = 0;
};

// The events that nobody has taken yet. `emit.hpp` describes what happens when too many wait.
struct PendingEvents {
    std::vector<Event> log;
    // Events of single pages in the log.
    int64_t pages = 0;
    // Whether the log was given up, so that whoever takes events next gets all that is resident.
    bool given_up = false;
    // What was given up and still has to be forgotten, some with each new event.
    std::vector<Event> dropped;
    // Counts up whenever what waits becomes other than what waited before and new events after it.
    uint64_t edition = 0;
};

struct Stop {
    Node* node;
    int32_t shared;
};

struct State {
    Config config;
    Engine* engine = nullptr;
    // Shared with events that were taken, which may live longer than the cache. Declared before
    // whatever refers to spans.
    std::shared_ptr<Namespaces> namespaces = std::make_shared<Namespaces>();
    // Whether the current call has changed anything yet. Until then a failure, of memory for
    // instance, refuses the call and nothing else; after it the state may be inconsistent.
    bool changed = false;
    Arena arena;
    ChildTable children;
    Node* root = nullptr;
    size_t node_count = 0;
    Pool pools[COMPONENTS][MEDIA];
    VictimQueue queues[QUEUES];
    // The queues that this configuration needs.
    std::vector<Queue> queue_kinds;
    // The partner of each slot; -1 where it has none.
    std::vector<Slot> swa_of_full, full_of_swa;
    // A tree, since a hash table of many receipts would stop one call to grow.
    std::map<uint64_t, Hold> holds;
    std::map<uint64_t, HostHold> host_holds;
    // In flight, in the order in which they were enqueued.
    std::map<uint64_t, Transfer> transfers;
    // Their ids by direction.
    std::set<uint64_t> in_flight[2];
    // Completions that wait for earlier transfers.
    std::map<uint64_t, bool> arrived;
    PendingEvents events;
    // Of the store below the host.
    StoredPages stored;
    // Host slots of full data that the store reads now. One that comes free meanwhile is a client's
    // until the read has ended.
    SlotSet read_by_store;
    // Part of every receipt, so that a cache does not accept the receipt of another.
    uint64_t serial = 0;
    uint64_t clock = 0;
    // Shared by nodes, receipts and transfers; never reused.
    uint64_t next_id = 1;
    Counters counters;
    // Where `check_some` goes on.
    uint32_t next_checked = 0;
    // Memory for the next path.
    std::vector<Stop> spare_stops;

    State(const Config& asked, Engine* performer);
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    uint64_t new_id() {
        changed = true;
        return next_id++;
    }
    uint64_t tick() {
        changed = true;
        return ++clock;
    }
    Pool& pool(Component component, Medium medium) { return pools[component][medium]; }
    VictimQueue& queue(Queue kind) { return queues[static_cast<int>(kind)]; }
    const VictimQueue& queue(Queue kind) const { return queues[static_cast<int>(kind)]; }
    // What the running call does, where somebody wants to know.
    Journal* journal = nullptr;

    // Slots that are free, or will be when the running eviction ends.
    int64_t free_slots(Component component, Medium medium) const {
        const Pool& each = pools[component][medium];
        return each.free.size() + each.leaving_slots;
    }
    const uint32_t* words(const Node* node) const {
        return node->span->words + static_cast<size_t>(node->offset) * config.page_words;
    }
};

// The nodes of a walk, from below the root down. It borrows its memory from the state and gives it
// back at its end, so that walks allocate nothing, and a walk in the middle of another has its own.
class Path {
  public:
    explicit Path(State& state) : state_(&state), stops_(std::exchange(state.spare_stops, {})) {
        stops_.clear();
    }
    Path(Path&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), stops_(std::move(other.stops_)) {}
    Path(const Path&) = delete;
    Path& operator=(const Path&) = delete;
    ~Path() {
        if (state_ != nullptr) state_->spare_stops = std::move(stops_);
    }

    void push_back(Stop stop) { stops_.push_back(stop); }
    bool empty() const { return stops_.empty(); }
    const Stop& front() const { return stops_.front(); }
    const Stop& back() const { return stops_.back(); }
    std::vector<Stop>::const_iterator begin() const { return stops_.begin(); }
    std::vector<Stop>::const_iterator end() const { return stops_.end(); }

  private:
    State* state_;
    std::vector<Stop> stops_;
};

// A key: whole pages of words, in a namespace.
struct Key {
    const uint32_t* words;
    int32_t pages;
    uint32_t namespace_id;

    const uint32_t* page(int32_t at, const Config& config) const {
        return words + static_cast<size_t>(at) * config.page_words;
    }
};

}  // namespace kvcanon
