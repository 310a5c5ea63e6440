// What places a node in the queues of victims: values that anybody reads, and that only `update` in
// victims.hpp writes, which then moves the node to its place in the queues.
//
// So code that changes such a value and forgets the queues does not compile.
#pragma once

namespace kvcanon {

// A value that the queues' rule reads.
template <typename Value>
class Queued {
  public:
    Queued() = default;
    Queued(const Queued&) = default;
    Queued& operator=(const Queued&) = delete;
    ~Queued() = default;

    operator const Value&() const { return value_; }
    const Value& get() const { return value_; }

  private:
    friend class QueuedWriter;
    Value value_{};
};

}  // namespace kvcanon
