// A priority queue of nodes whose data may be evicted, the smallest key first.
//
// It is a heap that knows where each node is, so that a node that is used moves to its new place at
// once. No entry is ever out of date: the cost of a call depends on the nodes that it changes, and
// not on what earlier calls left to be sorted. Which nodes belong in it, and who must say so, is in
// victims.hpp; this class knows keys and indices of nodes only.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunked_array.hpp"

namespace kvcanon {

// A node in a queue, with its eviction key.
struct Candidate {
    int64_t first, second;
    int32_t third;
    uint32_t node;
};

// Whether the first candidate is evicted before the second.
inline bool precedes(const Candidate& a, const Candidate& b) {
    if (a.first != b.first) return a.first < b.first;
    return a.second != b.second ? a.second < b.second : a.third < b.third;
}

class VictimQueue {
  public:
    bool empty() const { return heap_.empty(); }
    size_t size() const { return heap_.size(); }
    // The candidate that is evicted first.
    const Candidate& front() const {
        assert(!empty());
        return heap_[0];
    }
    // Visit candidates, the first one first, until `visit` returns false.
    template <typename Visit>
    void visit_in_order(Visit visit) const;
    // Allocate now what so many more nodes need, with places below this.
    void reserve(size_t more, uint32_t places) {
        heap_.reserve(heap_.size() + more);
        if (places != 0) where_.reach(places - 1, NOWHERE);
    }
    // Add a node, or move it to the place of its new key.
    void put(const Candidate& candidate);
    // Remove a node that is in the queue.
    void remove(uint32_t node);
    void clear();
    // The candidate of a node; nullptr where it is not in the queue.
    const Candidate* find(uint32_t node) const;
    // Whether no candidate is before the one that it must follow, and each is where it is known to
    // be; for tests.
    bool in_order() const;

  private:
    // Children of one entry: four are in two or three cache lines, and halve the levels of two.
    static constexpr size_t WIDTH = 4;
    static constexpr int32_t NOWHERE = -1;

    void place(size_t at, const Candidate& candidate);
    void sift_up(size_t at, const Candidate& candidate);
    void sift_down(size_t at, const Candidate& candidate);
    void restore(size_t at, const Candidate& candidate);

    ChunkedArray<Candidate> heap_;
    // Where each node is, by its index.
    ChunkedArray<int32_t> where_;
};

template <typename Visit>
void VictimQueue::visit_in_order(Visit visit) const {
    // Places whose parents were visited: a heap of its own, the first candidate on top.
    std::vector<size_t> open;
    const auto is_later = [this](size_t a, size_t b) { return precedes(heap_[b], heap_[a]); };
    const auto add = [&](size_t begin) {
        for (size_t at = begin; at < std::min(begin + WIDTH, heap_.size()); ++at) {
            open.push_back(at);
            std::push_heap(open.begin(), open.end(), is_later);
        }
    };
    if (!empty()) open.push_back(0);
    while (!open.empty()) {
        std::pop_heap(open.begin(), open.end(), is_later);
        const size_t at = open.back();
        open.pop_back();
        if (!visit(heap_[at])) return;
        add(at * WIDTH + 1);
    }
}

}  // namespace kvcanon
