#include "planted.hpp"

#include <cstdio>
#include <cstring>

#include "check.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "evict.hpp"
#include "insert.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "transfer.hpp"
#include "tree.hpp"
#include "victims.hpp"
#include "world.hpp"

namespace kvcanon::faults {

namespace {

constexpr int32_t PAGES = 3;

// A tree with a node of three pages, and a second one below the first page: three nodes.
class Scene {
  public:
    Scene() : world(config()), state(world.state) {
        inner = inserted({1, 2, 3});
        inserted({1, 5, 6});
        inner = inner->parent;
    }

    static Config config() {
        Config config;
        config.device_slots[FULL] = 16;
        config.host_slots[FULL] = 16;
        config.write_policy = WritePolicy::WRITE_BACK;
        return config;
    }

    Node* inserted(const std::vector<uint32_t>& words) {
        const Key key{words.data(), PAGES, 0};
        const int32_t start = match(state, key).device_pages;
        Counts counts;
        counts[FULL] = PAGES - start;
        insert(state, key, start, allocate(state, counts), 0, 0);
        return node_ending_at(state, walk(state, key), PAGES);
    }

    Counts all() const {
        Counts counts;
        counts[FULL] = 16;
        return counts;
    }

    World world;
    State& state;
    // The upper node, which has two children.
    Node* inner;
};

struct Planted {
    const char* name;
    void (*happen)(Scene& scene);
};

// Write what `update` alone may write, behind the back of the queues.
template <typename Value>
Value& behind(const Queued<Value>& value) {
    return const_cast<Value&>(value.get());
}

// The queues believe that an inner node is still used, and that a leaf is not locked.
void use_without_requeue(Scene& scene) {
    behind(scene.inner->first_child.get()->last_access) = scene.state.tick();
    evict(scene.state, scene.all());
}

void lock_without_requeue(Scene& scene) {
    behind(scene.inner->last_child->data[FULL].lock_refs) = 1;
    evict(scene.state, scene.all());
}

// Nothing asks for this node, but the audit at the end of each call finds it.
void forget_a_child(Scene& scene) {
    behind(scene.inner->device_children) -= 2;
    check_some(scene.state);
}

void free_twice(Scene& scene) {
    Counts one;
    one[FULL] = 1;
    const SlotLists slots = allocate(scene.state, one);
    free_slots(scene.state, slots);
    release(scene.state, FULL, GPU, slots[FULL]);
}

void free_held_slots(Scene& scene) {
    Counts one;
    one[FULL] = 1;
    release(scene.state, FULL, GPU, allocate(scene.state, one)[FULL]);
}

void place_too_few_slots(Scene& scene) {
    Node* leaf = scene.inner->last_child;
    const Runs slots = take(scene.state, leaf, FULL, GPU);
    place(scene.state, leaf, FULL, GPU, RunReader(slots).next(1));
}

void place_over_data(Scene& scene) {
    place(scene.state, scene.inner, FULL, GPU, scene.state.pool(FULL, GPU).free.take(1));
}

void remove_a_leaf_with_data(Scene& scene) { remove_leaf(scene.state, scene.inner->last_child); }

void add_a_second_child(Scene& scene) {
    const uint32_t words[] = {1, 2, 9};
    add_leaf(scene.state, scene.inner, {words, PAGES, 0}, PAGES, 1, 0);
}

void announce_what_is_not_there(Scene& scene) { emit_removed(scene.state, scene.inner, CPU); }

void unlock_twice(Scene& scene) {
    const uint64_t receipt = hold(scene.state, scene.inner, -1).receipt;
    release_hold(scene.state, receipt);
    release_hold(scene.state, receipt);
}

void copy_what_is_not_there(Scene& scene) {
    Hold& held = hold(scene.state, scene.inner, -1);
    enqueue(scene.state, Direction::LOAD_BACK, {{scene.inner, FULL}}, held);
}

void lose_a_copy(Scene& scene) {
    Hold& held = hold(scene.state, scene.inner, -1);
    const uint64_t copy = enqueue(scene.state, Direction::BACKUP, {{scene.inner, FULL}}, held);
    scene.inner->data[FULL].filling[CPU] = nullptr;
    scene.world.engine.wait(copy);
    settle(scene.state);
}

void read_a_hash_that_is_not_there(Scene& scene) { hash_of(scene.inner->span.get(), 0); }

void end_with_a_victim_left(Scene& scene) {
    scene.state.pool(FULL, GPU).leaving_slots = 1;
    check_some(scene.state);
}

constexpr Planted ALL[] = {
    {"use_without_requeue", use_without_requeue},
    {"lock_without_requeue", lock_without_requeue},
    {"forget_a_child", forget_a_child},
    {"free_twice", free_twice},
    {"free_held_slots", free_held_slots},
    {"place_too_few_slots", place_too_few_slots},
    {"place_over_data", place_over_data},
    {"remove_a_leaf_with_data", remove_a_leaf_with_data},
    {"add_a_second_child", add_a_second_child},
    {"announce_what_is_not_there", announce_what_is_not_there},
    {"unlock_twice", unlock_twice},
    {"copy_what_is_not_there", copy_what_is_not_there},
    {"lose_a_copy", lose_a_copy},
    {"read_a_hash_that_is_not_there", read_a_hash_that_is_not_there},
    {"end_with_a_victim_left", end_with_a_victim_left},
};

}  // namespace

int plant(const char* name) {
    for (const Planted& each : ALL) {
        if (std::strcmp(each.name, name) != 0) continue;
        Scene scene;
        check(scene.state);
        try {
            each.happen(scene);
        } catch (const SpecViolation& found) {
            std::fprintf(stderr, "audit: %s\n", found.what());
            std::abort();
        }
        return 0;
    }
    return 2;
}

void list_planted() {
    for (const Planted& each : ALL) std::puts(each.name);
}

}  // namespace kvcanon::faults
