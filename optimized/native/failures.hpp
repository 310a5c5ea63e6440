// Failures: which copies in flight build on a copy that failed in the running settlement.
#pragma once

#include "state.hpp"

namespace kvcanon {

// The nodes whose copies failed or were cancelled. A path that was searched once is remembered, so
// that many copies of one path take the time of one.
class Failures {
  public:
    Failures() = default;
    Failures(const Failures&) = delete;
    Failures& operator=(const Failures&) = delete;
    ~Failures();

    bool empty() const { return failed_.empty(); }
    // A copy of a node's full data failed.
    void add_failed(Node* node, Direction direction);
    // A copy was cancelled: those below it have no more use either.
    void add_cancelled(const Transfer& transfer);
    // Whether a copy needs data that a failed copy did not bring.
    bool are_above(const Transfer& transfer);

  private:
    bool are_above(Node* end, Direction direction);
    void forget_sound();

    std::vector<Node*> failed_;
    // Nodes without a failure at or above them.
    std::vector<Node*> sound_;
};

}  // namespace kvcanon
