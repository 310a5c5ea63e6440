// The native base class of PrefixCache: the state, its engine, and memory for keys of other types.
#pragma once

#include <chrono>
#include <type_traits>

#include "check.hpp"
#include "operation.hpp"
#include "py_engine.hpp"
#include "turn.hpp"

namespace kvcanon {

struct CacheCore {
    PyEngine engine;
    State state;
    // The words of a key that came as 64-bit numbers; good until the next call.
    std::vector<uint32_t> words;
    Calls calls[OPERATIONS];
    Gate gate;
    // Whether the cache was closed, and whether its pools have no device memory now.
    bool closed = false;
    bool detached = false;

    CacheCore(const Config& config, nanobind::object performer)
        : engine(std::move(performer)), state(config, &engine) {}
    CacheCore(const CacheCore&) = delete;
    CacheCore& operator=(const CacheCore&) = delete;

    GivenKey key(nanobind::handle tokens, int64_t namespace_id) {
        return key_of(state, tokens, namespace_id, words);
    }

    // Do the work of one operation while no other runs, and count it. Throws: as `Turn` and
    // `with_memory`.
    template <typename Work>
    auto operate(Operation operation, Work work);

    // Where asserts are on, check a part of the state that no law speaks of. Throws: SpecViolation.
    void audit() {
#ifndef NDEBUG
        check_some(state);
#endif
    }

    // Read the state while no operation runs.
    template <typename Work>
    auto look(Work work);

    // For calls that start a copy, or give, take or free slots without a word of which rows.
    // Throws: BadArgument where the caller copies.
    void refuse_if_caller_copies() const {
        if (!state.config.caller_copies) return;
        throw BadArgument("cache", "leaves copies to its caller; call the methods of `Nodes`");
    }

    // Throws: BadArgument for any operation of a closed cache, and for one that gives or fills
    // device slots while there is no device memory.
    void refuse_if_away(Operation operation) const {
        if (closed) throw BadArgument("cache", "is closed; make a new one");
        if (detached && (operation == Operation::ALLOCATE || operation == Operation::INSERT ||
                         operation == Operation::EVICT || operation == Operation::LOAD_BACK)) {
            throw BadArgument("cache", "is detached from its tensors; attach them first");
        }
    }
};

// What snapshots, metrics and tests read of a cache: kvcanon.optimized._core.Tree.
struct TreeView {
    // Keeps the cache alive.
    nanobind::object owner;
    CacheCore& core;

    explicit TreeView(nanobind::object cache)
        : owner(std::move(cache)), core(nanobind::cast<CacheCore&>(owner)) {}
};

// What a cache decides about the store below its host tier: kvcanon.optimized._core.Tier.
struct TierView {
    // Keeps the cache alive.
    nanobind::object owner;
    CacheCore& core;

    explicit TierView(nanobind::object cache)
        : owner(std::move(cache)), core(nanobind::cast<CacheCore&>(owner)) {}
};

// Counts one call of an operation, and measures its time.
class Stopwatch {
  public:
    explicit Stopwatch(Calls& calls) : calls_(calls), began_(std::chrono::steady_clock::now()) {
        ++calls.count;
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began_;
        calls_.nanoseconds += static_cast<uint64_t>(took.count());
    }

  private:
    Calls& calls_;
    std::chrono::steady_clock::time_point began_;
};

template <typename Work>
auto CacheCore::operate(Operation operation, Work work) {
    Calls& asked = calls[static_cast<int>(operation)];
    const Turn turn(gate, operation == Operation::RESET ? Turn::For::RECOVERY : Turn::For::CALL);
    const Stopwatch stopwatch(asked);
    engine.begin();
    try {
        refuse_if_away(operation);
        if constexpr (std::is_void_v<decltype(work())>) {
            with_memory(state, gate, work);
            audit();
        } else {
            auto result = with_memory(state, gate, work);
            audit();
            return result;
        }
    } catch (const CacheError&) {
        ++asked.refused;
        throw;
    } catch (const SpecViolation&) {
        throw;
    } catch (const OutOfMemory&) {
        throw;
    } catch (const EngineDied& death) {
        break_off(gate, death.what());
        throw Unusable(refusal_of(gate));
    } catch (...) {
        // The state is consistent at every call of the engine. What else raises has no memory for a
        // result, or could not write the bytes of pages that the tree has by now.
        if (!engine.raised() && state.changed) {
            break_off(gate, "an error broke off an earlier call in the middle");
        }
        throw;
    }
}

template <typename Work>
auto CacheCore::look(Work work) {
    const Turn turn(gate);
    return with_memory(state, gate, work);
}

// Adds the classes of results.
void bind_outcomes(nanobind::module_& m);

// Adds the operations of a cache.
void bind_operations(nanobind::class_<CacheCore>& core);

// Adds the methods that show the state of a cache.
void bind_inspection(nanobind::class_<TreeView>& tree);

// Adds the class of events, and the methods that return them.
void bind_events(nanobind::module_& m, nanobind::class_<CacheCore>& core,
                 nanobind::class_<TreeView>& tree);

// Adds the class of page runs, and the methods of a tier.
void bind_tier(nanobind::module_& m, nanobind::class_<TierView>& tier);

// Adds events for the wire, and the method that takes them.
void bind_packed_events(nanobind::module_& m, nanobind::class_<CacheCore>& core);

}  // namespace kvcanon
