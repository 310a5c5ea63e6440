// A transfer engine that is a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <set>

#include "bind_arrays.hpp"
#include "errors.hpp"

namespace kvcanon {

// Calls an object with `submit(transfer_id, direction, moves)`, `poll()`, `wait(transfer_id)` and
// `restart()`. A move is a component's number with its source and target slots as arrays.
//
// A list that `poll` returns is emptied here once it was read, so that no completion is lost if an
// interrupt ends Python code between the engine and the cache.
class PyEngine : public Engine {
  public:
    explicit PyEngine(nanobind::object engine) : engine_(std::move(engine)) {}

    void submit(const Transfer& transfer) override {
        nanobind::list moves;
        for (const Component component : ALL_COMPONENTS) {
            if (!transfer.sources[component]) continue;
            moves.append(nanobind::make_tuple(static_cast<int>(component),
                                              array_of(transfer.sources[component]),
                                              array_of(transfer.targets[component])));
        }
        // Until it is known that the engine took the order.
        unsure_.push_back(transfer.transfer_id);
        call([&] {
            engine_.attr("submit")(transfer.transfer_id, static_cast<int>(transfer.direction),
                                   moves);
        });
        unsure_.pop_back();
    }

    std::vector<std::pair<uint64_t, bool>> poll() override {
        settle_unsure();
        std::vector<std::pair<uint64_t, bool>> completions;
        nanobind::object answer;
        call([&] { answer = engine_.attr("poll")(); });
        if (!nanobind::try_cast(answer, completions)) {
            throw SpecViolation(
                "the engine's poll must return pairs of a transfer id and whether it succeeded");
        }
        // What was given up has failed, whatever the engine says of it later.
        completions.erase(
            std::remove_if(completions.begin(), completions.end(),
                           [&](const auto& each) { return given_up_.count(each.first) != 0; }),
            completions.end());
        completions.insert(completions.end(), failed_.begin(), failed_.end());
        failed_.clear();
        if (PyList_Check(answer.ptr())) nanobind::borrow<nanobind::list>(answer).clear();
        return completions;
    }

    void wait(uint64_t transfer_id) override {
        settle_unsure();
        call([&] { engine_.attr("wait")(transfer_id); });
    }

    // Wait until no copy runs, forget all completions, and begin anew. Throws: EngineDied.
    void restart() {
        if (engine_.is_none()) return;
        call([&] { engine_.attr("restart")(); });
        unsure_.clear();
        failed_.clear();
    }

    // A call of the cache begins.
    void begin() { raised_ = false; }
    // Whether the engine raised in this call.
    bool raised() const { return raised_; }

    nanobind::object& object() { return engine_; }

  private:
    // Decide about orders whose `submit` raised: those that the engine never performs have failed.
    void settle_unsure() {
        while (!unsure_.empty()) {
            const uint64_t transfer_id = unsure_.back();
            failed_.reserve(failed_.size() + 1);
            bool never = false;
            call([&] { never = nanobind::cast<bool>(engine_.attr("give_up")(transfer_id)); });
            if (never) {
                given_up_.insert(transfer_id);
                failed_.emplace_back(transfer_id, false);
            }
            unsure_.pop_back();
        }
    }

    template <typename Call>
    void call(Call call) {
        try {
            call();
        } catch (const nanobind::python_error& error) {
            raised_ = true;
            const nanobind::object unusable =
                nanobind::module_::import_("kvcanon.spec.errors").attr("CacheUnusable");
            if (!error.matches(unusable)) throw;
            throw EngineDied(nanobind::str(error.value()).c_str());
        }
    }

    nanobind::object engine_;
    bool raised_ = false;
    std::vector<uint64_t> unsure_;
    std::vector<std::pair<uint64_t, bool>> failed_;
    std::set<uint64_t> given_up_;
};

}  // namespace kvcanon
