// An engine whose copies complete, fail or raise as the input decides.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "stamps.hpp"

namespace kvcanon::fuzz {

struct EngineRaised : std::exception {};

class ManualEngine : public Engine {
  public:
    explicit ManualEngine(Stamps& stamps) : stamps_(stamps) {}

    // Make the next call raise after it did its work.
    void arm() { armed_ = true; }
    void disarm() { armed_ = false; }
    // Whether copies fail when the cache waits for them.
    bool failing = false;

    // Whether there is another rank. Of the copies that have ended here, the last `behind` have not
    // ended there; if `failing_there`, the others have failed there.
    bool ranked = false;
    int behind = 0;
    bool failing_there = false;

    void submit(const Transfer& transfer) override {
        Order order{transfer.transfer_id, transfer.direction, {}, {}};
        for (const Component component : {FULL, SWA, MAMBA}) {
            order.sources[component] = slots_in(transfer.sources[component]);
            order.targets[component] = slots_in(transfer.targets[component]);
        }
        open_.push_back(std::move(order));
        raise_if_armed();
    }

    std::vector<std::pair<uint64_t, bool>> poll() override {
        raise_if_armed();
        return std::exchange(completions_, {});
    }

    void wait(uint64_t transfer_id) override {
        const auto sought = std::find_if(open_.begin(), open_.end(), [&](const Order& order) {
            return order.transfer_id == transfer_id;
        });
        if (sought != open_.end()) complete_up_to(*sought);
        raise_if_armed();
    }

    bool has_ranks() const override { return ranked; }

    std::vector<int> agree(const std::vector<int>& arrivals) override {
        raise_if_armed();
        std::vector<int> least = arrivals;
        int left = behind;
        for (auto each = least.rbegin(); each != least.rend(); ++each) {
            if (*each == static_cast<int>(Arrival::WAITING)) continue;
            const Arrival there = left-- > 0      ? Arrival::WAITING
                                  : failing_there ? Arrival::FAILED
                                                  : Arrival::DONE;
            *each = std::min(*each, static_cast<int>(there));
        }
        return least;
    }

    size_t open_orders() const { return open_.size(); }

    // A failed copy may have written anything.
    void complete(size_t at, bool ok) {
        const Order order = std::move(open_[at]);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
        const bool backup = order.direction == Direction::BACKUP;
        for (const Component component : {FULL, SWA, MAMBA}) {
            for (size_t i = 0; i < order.sources[component].size(); ++i) {
                const Stamp found =
                    stamps_.at(component, backup ? GPU : CPU, order.sources[component][i]);
                stamps_.at(component, backup ? CPU : GPU, order.targets[component][i]) =
                    ok ? found : GARBAGE;
            }
        }
        completions_.emplace_back(order.transfer_id, ok);
    }

  private:
    struct Order {
        uint64_t transfer_id;
        Direction direction;
        std::vector<Slot> sources[COMPONENTS];
        std::vector<Slot> targets[COMPONENTS];
    };

    // Completes an order and all before it in its direction; later orders have larger ids.
    void complete_up_to(Order last) {
        for (size_t at = 0; at < open_.size();) {
            if (open_[at].direction == last.direction &&
                open_[at].transfer_id <= last.transfer_id) {
                complete(at, !failing);
            } else {
                ++at;
            }
        }
    }

    void raise_if_armed() {
        if (std::exchange(armed_, false)) throw EngineRaised();
    }

    Stamps& stamps_;
    std::vector<Order> open_;
    std::vector<std::pair<uint64_t, bool>> completions_;
    bool armed_ = false;
};

}  // namespace kvcanon::fuzz
