// Fails every allocation of every call of random histories, one after the other.
//
// A call whose memory runs out is refused and changes nothing, or it closes the cache. A closed
// cache refuses all calls until `reset`, and after it does the same as a new one.
//
// Usage: memory_faults FIRST_SEED HISTORIES
//        memory_faults plant NAME    as `plant` describes, or the names for the name `list`
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.hpp"
#include "planted.hpp"
#include "reset.hpp"
#include "world.hpp"

namespace kvcanon::faults {
namespace {

constexpr int CALLS = 40;
// The kinds of calls up to this one are matches.
constexpr int LAST_MATCH = 1;

struct Tally {
    long calls = 0, refused = 0, closed = 0;
};

using fuzz::digest;
using fuzz::require;

// Whether a cache that was recovered, and that no request knows any more, does what a new one does.
// The history of its clock is no difference.
void require_like_new(World& recovered, std::mt19937 random) {
    World fresh(recovered.config);
    fresh.state.clock = recovered.state.clock;
    fresh.state.next_id = recovered.state.next_id;
    recovered.answers = fresh.answers;
    for (int at = 0; at < CALLS; ++at) {
        require(digest(recovered.state) == digest(fresh.state), "a recovered cache differs");
        require(recovered.answers == fresh.answers, "a recovered cache answers otherwise");
        const Call call = drawn_call(random);
        recovered.play(call);
        fresh.play(call);
        check(recovered.state);
    }
}

// What a closed cache does: it refuses, and `reset` recovers it.
void require_recovery(World& world, const std::mt19937& random) {
    world.failing = -1;
    bool refused = false;
    try {
        const Turn turn(world.gate);
    } catch (const Unusable&) {
        refused = true;
    }
    require(refused, "a cache went on after memory ran out in the middle of a call");
    world.end_copies();
    // Both ways to begin anew, as the seeds fall.
    if (std::mt19937 coin = random; coin() % 2 == 0) {
        reset_or_recover(world.state, world.gate);
    } else {
        forget(world.state, world.gate);
    }
    check(world.state);
    require(world.state.node_count == 0 && world.state.holds.empty(), "something is left");
    for (const Runs& read : world.reads) {
        for (const Slot slot : fuzz::slots_in(read)) {
            require(!world.state.pool(FULL, CPU).free.contains(slot),
                    "a slot that the store reads may be given away after a recovery");
        }
    }
    world.drop_requests();
    require_like_new(world, random);
}

// Make one call in which an allocation fails; returns whether there was that allocation.
bool fail_once(World& world, const Call& call, long allocation, FailingMemory::Fails fails,
               const std::mt19937& random, Tally& tally) {
    const std::function<void()> prepared = world.prepare(call);
    const uint64_t before = digest(world.state);
    world.failing = allocation;
    world.fails = fails;
    ++tally.calls;
    try {
        prepared();
        return FailingMemory::failed();
    } catch (const CacheError&) {
        return FailingMemory::failed();
    } catch (const OutOfMemory&) {}
    world.failing = -1;
    if (!world.gate.broken.empty()) {
        ++tally.closed;
        require(call.kind > LAST_MATCH, "memory that ran out in a match closed the cache");
        require_recovery(world, random);
        return true;
    }
    ++tally.refused;
    check(world.state);
    require(digest(world.state) == before, "a call that memory refused changed something");
    // The same call, with memory, does what it would have done.
    prepared();
    check(world.state);
    return true;
}

void play_history(uint32_t seed, Tally& tally) {
    std::mt19937 random(seed);
    const Config config = drawn_config(random);
    std::vector<Call> calls;
    for (int at = 0; at < CALLS; ++at) calls.push_back(drawn_call(random));
    for (size_t at = 0; at < calls.size(); ++at) {
        for (const auto fails : {FailingMemory::Fails::ONCE, FailingMemory::Fails::FROM_THEN_ON}) {
            bool reached = true;
            for (long allocation = 0; reached; ++allocation) {
                World world(config);
                for (size_t earlier = 0; earlier < at; ++earlier) world.play(calls[earlier]);
                try {
                    reached = fail_once(world, calls[at], allocation, fails, random, tally);
                } catch (const CacheError&) {
                    reached = true;
                }
            }
        }
    }
}

}  // namespace
}  // namespace kvcanon::faults

int main(int count, char** arguments) {
    if (count != 3) return std::fputs("usage: memory_faults FIRST_SEED HISTORIES\n", stderr), 2;
    if (std::strcmp(arguments[1], "plant") == 0) {
        if (std::strcmp(arguments[2], "list") != 0) return kvcanon::faults::plant(arguments[2]);
        return kvcanon::faults::list_planted(), 0;
    }
    const auto first = static_cast<uint32_t>(std::atol(arguments[1]));
    const auto histories = static_cast<uint32_t>(std::atol(arguments[2]));
    kvcanon::faults::Tally tally;
    for (uint32_t seed = first; seed < first + histories; ++seed) {
        kvcanon::faults::play_history(seed, tally);
    }
    std::printf("%ld calls, %ld refused and unchanged, %ld closed and recovered\n", tally.calls,
                tally.refused, tally.closed);
}
