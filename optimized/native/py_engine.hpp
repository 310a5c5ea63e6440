// A transfer engine that is a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "bind_arrays.hpp"
#include "errors.hpp"

namespace kvcanon {

// Calls an object with `submit(transfer_id, direction, moves)`, `poll()` and `wait(transfer_id)`.
// A move is a component's number with its source and target slots as arrays. An engine with streams
// has `event_after(point)` besides, and `submit` takes what it returned as a fourth argument.
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
        const auto direction = static_cast<int>(transfer.direction);
        if (after_.is_none()) {
            engine_.attr("submit")(transfer.transfer_id, direction, moves);
        } else {
            engine_.attr("submit")(transfer.transfer_id, direction, moves, after_);
        }
    }

    std::vector<std::pair<uint64_t, bool>> poll() override {
        std::vector<std::pair<uint64_t, bool>> completions;
        const nanobind::object answer = engine_.attr("poll")();
        if (!nanobind::try_cast(answer, completions)) {
            throw SpecViolation(
                "the engine's poll must return pairs of a transfer id and whether it succeeded");
        }
        return completions;
    }

    void wait(uint64_t transfer_id) override { engine_.attr("wait")(transfer_id); }

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
    nanobind::object engine_;
    nanobind::object after_ = nanobind::none();
};

}  // namespace kvcanon
