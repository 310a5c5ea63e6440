// The native base class of PrefixCache: the state, its engine, and memory for keys of other types.
//
// The GIL does not keep two calls apart. An engine is Python code: it may call the cache again, or
// let another thread run, in the middle of a call.
#pragma once

#include <chrono>

#include "operation.hpp"
#include "py_engine.hpp"

namespace kvcanon {

struct CacheCore {
    PyEngine engine;
    State state;
    // The words of a key that came as 64-bit numbers; good until the next call.
    std::vector<uint32_t> words;
    Calls calls[OPERATIONS];
    // Whether a call is under way.
    bool busy = false;
    // Whether memory ran out in the middle of a call, so that the state may be inconsistent.
    bool broken = false;
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

    // Do the work of one operation while no other runs. An exception of the engine passes through:
    // the state is consistent at every call of the engine. Throws: SpecViolation where another call
    // is running, or memory ran out in an earlier one.
    template <typename Work>
    auto operate(Operation operation, Work work);

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

// Keeps other calls out while one runs, and measures its time.
class CallGuard {
  public:
    CallGuard(CacheCore& tree, Calls& calls) : tree_(tree), calls_(calls) {
        if (tree.busy) {
            throw SpecViolation(
                "called in the middle of another call, by its engine or from a second thread; a "
                "cache takes one call at a time");
        }
        if (tree.broken) {
            throw SpecViolation(
                "memory ran out in the middle of an earlier call; make a new cache");
        }
        tree.busy = true;
        ++calls.count;
        began_ = std::chrono::steady_clock::now();
    }
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;
    ~CallGuard() {
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began_;
        calls_.nanoseconds += static_cast<uint64_t>(took.count());
        tree_.busy = false;
    }

  private:
    CacheCore& tree_;
    Calls& calls_;
    std::chrono::steady_clock::time_point began_;
};

template <typename Work>
auto CacheCore::operate(Operation operation, Work work) {
    Calls& asked = calls[static_cast<int>(operation)];
    const CallGuard guard(*this, asked);
    try {
        refuse_if_away(operation);
        return work();
    } catch (const CacheError&) {
        ++asked.refused;
        throw;
    } catch (const SpecViolation&) {
        throw;
    } catch (const nanobind::python_error&) {
        throw;
    } catch (...) {
        broken = true;
        throw;
    }
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

}  // namespace kvcanon
