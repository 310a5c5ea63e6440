// Runs: slot numbers kept as stretches of consecutive numbers.
//
// Slots are handed out lowest first and come back a node at a time, so that a list of slots is
// mostly a few runs: what would be one number a page is then a few numbers a node, whatever the
// page size. The order of the slots is part of the value (slot i holds page
// i), so that runs are never sorted nor joined across a gap in that order.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvcanon {

using Slot = int32_t;

struct Run {
    Slot begin;
    int32_t size;
};

// A list of runs that belongs to a node. The common case, one run, needs no allocation.
class Runs {
  public:
    Runs() = default;
    Runs(const Runs& other) { *this = other; }
    Runs(Runs&& other) noexcept { *this = std::move(other); }
    ~Runs() { clear(); }

    Runs& operator=(const Runs& other) {
        if (this != &other) {
            clear();
            for (const Run& run : other) append(run);
        }
        return *this;
    }

    Runs& operator=(Runs&& other) noexcept {
        if (this != &other) {
            clear();
            if (other.many()) {
                more_ = other.more_;
            } else {
                only_ = other.only_;
            }
            first_ = std::exchange(other.first_, ONE);
            slots_ = std::exchange(other.slots_, 0);
        }
        return *this;
    }

    // How many slots there are.
    int32_t slots() const { return slots_; }
    explicit operator bool() const { return slots_ != 0; }

    const Run* begin() const { return many() ? more_->data() + first_ : &only_; }
    const Run* end() const {
        return many() ? more_->data() + more_->size() : &only_ + (slots_ != 0 ? 1 : 0);
    }

    void append(Run run) {
        assert(run.size >= 0);
        if (run.size == 0) return;
        if (slots_ == 0) {
            only_ = run;
        } else {
            Run& last = many() ? more_->back() : only_;
            // Unsigned: what a caller hands over may be any number.
            if (static_cast<uint32_t>(last.begin) + static_cast<uint32_t>(last.size) ==
                static_cast<uint32_t>(run.begin)) {
                last.size += run.size;
            } else {
                if (!many()) keep_many(new std::vector<Run>{only_});
                more_->push_back(run);
            }
        }
        slots_ += run.size;
    }

    void append(const Runs& other) {
        for (const Run& run : other) append(run);
    }

    // Drop the first `count` slots, fewer than there are. Its time depends on their runs alone.
    void drop(int32_t count) noexcept {
        assert(0 < count && count < slots_);
        slots_ -= count;
        while (count > 0) {
            Run& run = many() ? (*more_)[first_] : only_;
            const int32_t here = run.size < count ? run.size : count;
            run.begin += here;
            run.size -= here;
            count -= here;
            if (run.size == 0) ++first_;
        }
        if (many()) drop_skipped();
        assert(begin() != end());
    }

    void clear() {
        if (many()) delete more_;
        first_ = ONE;
        slots_ = 0;
    }

  private:
    // `first_` of a list that has at most one run.
    static constexpr uint32_t ONE = 0xffffffff;

    bool many() const { return first_ != ONE; }

    void keep_many(std::vector<Run>* runs) {
        more_ = runs;
        first_ = 0;
    }

    // Forget skipped runs once they are more than the others.
    void drop_skipped() noexcept {
        if (first_ + 1 == more_->size()) {
            const std::vector<Run>* former = more_;
            only_ = former->back();
            first_ = ONE;
            delete former;
        } else if (first_ > more_->size() / 2) {
            more_->erase(more_->begin(), more_->begin() + first_);
            first_ = 0;
        }
    }

    union {
        Run only_{0, 0};
        std::vector<Run>* more_;
    };
    // Runs of `more_` before this one are no longer of this list.
    uint32_t first_ = ONE;
    int32_t slots_ = 0;
};

// Reads a list of runs front to back, so many slots at a time.
class RunReader {
  public:
    explicit RunReader(const Runs& runs) : at_(runs.begin()), end_(runs.end()) {}

    Runs next(int32_t count) {
        Runs taken;
        while (count > 0) {
            assert(at_ != end_);
            const int32_t here = count < at_->size - used_ ? count : at_->size - used_;
            taken.append({at_->begin + used_, here});
            used_ += here;
            count -= here;
            if (used_ == at_->size) {
                ++at_;
                used_ = 0;
            }
        }
        return taken;
    }

    void skip(int32_t count) { next(count); }

  private:
    const Run* at_;
    const Run* end_;
    int32_t used_ = 0;
};

// The runs of an array of slots, in its order.
Runs runs_of(const Slot* slots, size_t count);

// Write the slots out, one number each; `out` has room for all of them.
void expand(const Runs& runs, Slot* out);

}  // namespace kvcanon
