// A transfer engine that is a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind_arrays.hpp"
#include "errors.hpp"

namespace kvcanon {

// Calls an object with `submit(transfer_id, direction, moves)`, `poll()`, `wait(transfer_id)` and
// `restart()`. A move is a component's number with its source and target slots as arrays. If the
// object has an `agree` that is not None, there are other ranks. An engine with streams has
// `event_after(point)` besides, and `submit` takes what it returned as a fourth argument.
//
// `submit` answers whether the object will complete the order. Where an interrupt ended it, the
// object decides that later, in `give_up(transfer_id)`, which the cache asks before anything else;
// an order that it gave up it never completes. Here it is only noted what is not decided yet, and
// which failures the cache has not read.
//
// A list that `poll` returns is emptied here once it was read, so that no completion is lost if an
// interrupt ends Python code between the engine and the cache.
class PyEngine : public Engine {
  public:
    explicit PyEngine(nanobind::object engine)
        : engine_(std::move(engine)),
          has_ranks_(!nanobind::getattr(engine_, "agree", nanobind::none()).is_none()) {}

    void submit(const Transfer& transfer) override {
        nanobind::list moves;
        for (const Component component : ALL_COMPONENTS) {
            if (!transfer.sources[component]) continue;
            moves.append(nanobind::make_tuple(static_cast<int>(component),
                                              array_of(transfer.sources[component]),
                                              array_of(transfer.targets[component])));
        }
        const auto direction = static_cast<int>(transfer.direction);
        failed_.reserve(failed_.size() + 1);
        undecided_.push_back(transfer.transfer_id);
        nanobind::object taken;
        call([&] {
            taken = after_.is_none()
                        ? engine_.attr("submit")(transfer.transfer_id, direction, moves)
                        : engine_.attr("submit")(transfer.transfer_id, direction, moves, after_);
        });
        decide(yes_or_no(taken, "submit"));
    }

    Completions poll() override {
        decide_all();
        Completions completions;
        nanobind::object answer;
        call([&] { answer = engine_.attr("poll")(); });
        if (!nanobind::try_cast(answer, completions)) {
            throw SpecViolation(
                "the engine's poll must return pairs of a transfer id and whether it succeeded");
        }
        completions.insert(completions.end(), failed_.begin(), failed_.end());
        failed_.clear();
        if (PyList_Check(answer.ptr())) nanobind::borrow<nanobind::list>(answer).clear();
        return completions;
    }

    void wait(uint64_t transfer_id) override {
        decide_all();
        call([&] { engine_.attr("wait")(transfer_id); });
    }

    // Wait until no copy runs, forget all completions, and begin anew. Throws: EngineDied.
    void restart() {
        if (engine_.is_none()) return;
        call([&] { engine_.attr("restart")(); });
        undecided_.clear();
        failed_.clear();
    }

    // A call of the cache begins.
    void begin() { raised_ = false; }
    // Whether the engine raised in this call.
    bool raised() const { return raised_; }

    bool has_ranks() const override { return has_ranks_; }

    std::vector<int> agree(const std::vector<int>& arrivals) override {
        nanobind::object answer;
        call([&] { answer = engine_.attr("agree")(arrivals); });
        std::vector<int> least;
        if (!nanobind::try_cast(answer, least)) {
            throw SpecViolation("agree must return a list of numbers");
        }
        return least;
    }

    nanobind::object& object() { return engine_; }

    // While it lives, transfers are submitted to run after a point in a stream's work: a stream, an
    // event, or None for the current stream. Throws what the engine raises for any other object.
    class After {
      public:
        After(PyEngine& engine, nanobind::handle point) : engine_(engine) {
            if (point.is_none() || engine.engine_.is_none()) return;
            engine.after_ = engine.engine_.attr("event_after")(point);
        }
        After(const After&) = delete;
        After& operator=(const After&) = delete;
        ~After() { engine_.after_ = nanobind::none(); }

      private:
        PyEngine& engine_;
    };

  private:
    // Have it decided what becomes of the orders whose `submit` raised.
    void decide_all() {
        while (!undecided_.empty()) {
            failed_.reserve(failed_.size() + 1);
            nanobind::object never;
            call([&] { never = engine_.attr("give_up")(undecided_.back()); });
            decide(!yes_or_no(never, "give_up"));
        }
    }

    // Note what becomes of the last order that was not decided; there is room for a failure.
    void decide(bool taken) {
        if (!taken) failed_.emplace_back(undecided_.back(), false);
        undecided_.pop_back();
    }

    static bool yes_or_no(const nanobind::object& answer, const char* method) {
        if (!PyBool_Check(answer.ptr())) {
            throw SpecViolation(std::string("the engine's ") + method +
                                " must return True or False");
        }
        return answer.is(nanobind::borrow(Py_True));
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
    bool has_ranks_;
    nanobind::object after_ = nanobind::none();
    bool raised_ = false;
    std::vector<uint64_t> undecided_;
    Completions failed_;
};

}  // namespace kvcanon
