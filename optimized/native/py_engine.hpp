// A transfer engine that is a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "bind_arrays.hpp"
#include "errors.hpp"

namespace kvcanon {

// Calls an object with `submit(transfer_id, direction, moves)`, `poll()` and `wait(transfer_id)`.
// A move is a component's number with its source and target slots as arrays. If the object has an
// `agree` that is not None, there are other ranks.
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
        engine_.attr("submit")(transfer.transfer_id, static_cast<int>(transfer.direction), moves);
    }

    Completions poll() override {
        Completions completions;
        const nanobind::object answer = engine_.attr("poll")();
        if (!nanobind::try_cast(answer, completions)) {
            throw SpecViolation(
                "the engine's poll must return pairs of a transfer id and whether it succeeded");
        }
        return completions;
    }

    void wait(uint64_t transfer_id) override { engine_.attr("wait")(transfer_id); }

    bool has_ranks() const override { return has_ranks_; }

    std::vector<int> agree(const std::vector<int>& arrivals) override {
        const nanobind::object answer = engine_.attr("agree")(arrivals);
        std::vector<int> least;
        if (!nanobind::try_cast(answer, least)) {
            throw SpecViolation("agree must return a list of numbers");
        }
        return least;
    }

    nanobind::object& object() { return engine_; }

  private:
    nanobind::object engine_;
    bool has_ranks_;
};

}  // namespace kvcanon
