// Memory that runs out at a chosen allocation: operator new and realloc of this program.
#pragma once

#include <cstddef>

namespace kvcanon::faults {

// Counts allocations while it lives, and fails one of them, or that and all later ones.
class FailingMemory {
  public:
    enum class Fails { ONCE, FROM_THEN_ON };

    FailingMemory(long allocation, Fails fails);
    FailingMemory(const FailingMemory&) = delete;
    FailingMemory& operator=(const FailingMemory&) = delete;
    ~FailingMemory();

    // Whether the chosen allocation was reached.
    static bool failed();
    // Whether this allocation is to fail.
    static bool fails_now();
    // Lets the harness allocate while a call of the cache is under test.
    class Pause {
      public:
        Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;
        ~Pause();

      private:
        bool was_armed_;
    };
};

}  // namespace kvcanon::faults
