#include "audit.hpp"

#include <cstdio>
#include <cstdlib>

#include "emit.hpp"
#include "tier.hpp"
#include "tree.hpp"

namespace kvcanon::fuzz {

namespace {

class Digest {
  public:
    void add(uint64_t number) { value = (value ^ number) * 0x100000001b3ULL ^ value >> 29; }
    void add(const std::vector<Slot>& slots) {
        add(slots.size());
        for (const Slot slot : slots) add(static_cast<uint64_t>(slot));
    }
    uint64_t value = 0xcbf29ce484222325ULL;
};

void add_node(Digest& digest, const Node* node) {
    const int64_t numbers[] = {static_cast<int64_t>(node->node_id), node->start, node->pages,
                               node->hit_count, node->priority};
    for (const int64_t number : numbers) digest.add(static_cast<uint64_t>(number));
    digest.add(node->created);
    digest.add(node->last_access);
    for (const Component component : ALL_COMPONENTS) {
        const Data& data = node->data[component];
        digest.add(static_cast<uint64_t>(data.lock_refs));
        digest.add(data.used);
        for (const Medium medium : {GPU, CPU}) {
            digest.add(slots_in(data.slots(medium)));
            digest.add(data.filling[medium] == nullptr ? 0 : data.filling[medium]->transfer_id);
        }
    }
}

std::string hash_at(const TokenSpan* span, int32_t page) {
    return {reinterpret_cast<const char*>(hash_of(span, page)), HASH_BYTES};
}

// The prompt that ends with a node.
Prompt prompt_of(const State& state, Node* end) {
    Prompt prompt{end->namespace_id, end->end(), 0};
    for (const Node* node : path_to(end)) {
        for (int32_t page = 0; page < node->pages; ++page) {
            const int32_t last_word = (page + 1) * state.config.page_words - 1;
            prompt.bits |= state.words(node)[last_word] << (node->start + page);
        }
    }
    return prompt;
}

// The hashes of all pages down to the end of a node.
std::vector<std::string> hashes_down_to(const State& state, Node* node) {
    std::vector<uint32_t> words;
    for (const Node* each : path_to(node)) {
        const uint32_t* first = state.words(each);
        const int32_t count = each->pages * state.config.page_words;
        words.insert(words.end(), first, first + count);
    }
    return hashes_of(state, {words.data(), node->end(), node->namespace_id});
}

}  // namespace

void fail(const char* what) {
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
}

std::vector<std::string> hashes_of(const State& state, const Key& key) {
    const auto pages = static_cast<size_t>(key.pages);
    std::string joined(pages * HASH_BYTES, '\0');
    const Namespaces::Entry& owner = state.namespaces->at(key.namespace_id);
    hash_pages(owner.seed, owner.seed_bytes, key.words,
               static_cast<size_t>(state.config.page_words), pages,
               reinterpret_cast<uint8_t*>(joined.data()));
    std::vector<std::string> hashes;
    for (size_t page = 0; page < pages; ++page) {
        hashes.push_back(joined.substr(page * HASH_BYTES, HASH_BYTES));
    }
    return hashes;
}

void require_lawful(const State& state) {
    for (size_t full = 0; full < state.swa_of_full.size(); ++full) {
        const Slot swa = state.swa_of_full[full];
        if (swa < 0) continue;
        require(!state.pools[FULL][GPU].free.contains(static_cast<Slot>(full)) &&
                    !state.pools[SWA][GPU].free.contains(swa),
                "a free slot is paired");
    }
    for (const Node* node : all_nodes(state)) {
        const Node* parent = node->parent;
        if (parent == nullptr) continue;
        const Data& full = node->data[FULL];
        const Data& above = parent->data[FULL];
        const bool first = parent->parent == nullptr;
        require(full.on(GPU) || full.on(CPU), "a node is nowhere");
        require(!full.on(GPU) || first || above.on(GPU), "device data is behind a gap");
        require(!full.on(CPU) || first || above.on(CPU) || !state.config.backed_parents(),
                "a host copy is behind a gap");
        for (const Component component : {SWA, MAMBA}) {
            const Data& data = node->data[component];
            for (const Medium medium : {GPU, CPU}) {
                require(!data.on(medium) || full.on(medium), "data is where its full data is not");
            }
            require(data.lock_refs == 0 || full.lock_refs != 0, "more is locked than full data");
        }
        require(first || full.lock_refs == 0 || above.lock_refs != 0,
                "a lock does not reach the root");
        for (const Medium medium : {GPU, CPU}) {
            require(full.filling[medium] == nullptr || full.lock_refs != 0,
                    "a copy under way holds nothing");
        }
    }
}

void require_stamped(const State& state, Stamps& stamps) {
    for (const Node* node : all_nodes(state)) {
        if (node->parent == nullptr) continue;
        const Prompt prompt = prompt_of(state, const_cast<Node*>(node));
        for (const Component component : {FULL, SWA, MAMBA}) {
            const Data& data = node->data[component];
            for (const Medium medium : {GPU, CPU}) {
                if (!data.resident(medium)) continue;
                const std::vector<Slot> slots = slots_in(data.slots(medium));
                int32_t page = node->end() - static_cast<int32_t>(slots.size());
                for (const Slot slot : slots) {
                    require(stamps.at(component, medium, slot) == prompt.stamp(page++),
                            "other bytes are behind a slot of the tree");
                }
            }
        }
    }
}

uint64_t digest(const State& state) {
    Digest digest;
    for (const Node* node : all_nodes(state)) add_node(digest, node);
    for (const auto& by_medium : state.pools) {
        for (const Pool& pool : by_medium) {
            digest.add(pool.free.list());
            digest.add(pool.held.list());
        }
    }
    digest.add(state.swa_of_full);
    digest.add(state.full_of_swa);
    digest.add(state.holds.size());
    digest.add(state.transfers.size());
    digest.add(state.arrived.size());
    digest.add(state.stored.size());
    digest.add(state.read_by_store.list());
    digest.add(state.events.log.size());
    digest.add(static_cast<uint64_t>(state.events.pages));
    digest.add(state.events.given_up ? 1 : 0);
    digest.add(state.namespaces->size());
    digest.add(state.clock);
    digest.add(state.next_id);
    return digest.value;
}

void Hearer::hear(State& state) {
    for (const Event& event : pending_events(state)) {
        if (event.kind == EventKind::CLEARED) there_ = {};
        std::set<std::string>& there = there_[event.medium];
        for (int32_t page = 0; page < event.pages; ++page) {
            const std::string name = hash_at(event.span.get(), event.offset + page);
            if (event.kind == EventKind::STORED) {
                require(there.insert(name).second, "an event stores a page that was there already");
            } else {
                require(there.erase(name) == 1, "an event removes a page that was not there");
            }
        }
    }
    forget_events(state);
}

void Hearer::require_true(State& state) {
    if (!state.config.events) return;
    hear(state);
    Announced there;
    for (const Node* node : all_nodes(state)) {
        if (node->parent == nullptr) continue;
        const std::vector<std::string> hashes = hashes_down_to(state, const_cast<Node*>(node));
        for (const Medium medium : {GPU, CPU}) {
            if (!node->data[FULL].resident(medium)) continue;
            there[medium].insert(hashes.begin() + node->start, hashes.end());
        }
    }
    for (const Event& event : stored_events(state)) {
        for (int32_t page = 0; page < event.pages; ++page) {
            there[event.medium].insert(hash_at(event.span.get(), event.offset + page));
        }
    }
    require(there == there_, "the events and the cache disagree");
}

}  // namespace kvcanon::fuzz
