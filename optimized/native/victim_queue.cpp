#include "victim_queue.hpp"

#include <algorithm>

namespace kvcanon {

void VictimQueue::put(const Candidate& candidate) {
    where_.reach(candidate.node, NOWHERE);
    if (where_[candidate.node] == NOWHERE) {
        heap_.push_back(candidate);
        sift_up(heap_.size() - 1, candidate);
    } else {
        restore(static_cast<size_t>(where_[candidate.node]), candidate);
    }
}

void VictimQueue::remove(uint32_t node) {
    assert(find(node) != nullptr);
    const auto at = static_cast<size_t>(where_[node]);
    where_[node] = NOWHERE;
    const Candidate last = heap_.back();
    heap_.pop_back();
    if (at < heap_.size()) restore(at, last);
}

void VictimQueue::clear() {
    for (size_t at = 0; at < heap_.size(); ++at) where_[heap_[at].node] = NOWHERE;
    heap_.clear();
}

const Candidate* VictimQueue::find(uint32_t node) const {
    if (node >= where_.size() || where_[node] == NOWHERE) return nullptr;
    return &heap_[static_cast<size_t>(where_[node])];
}

bool VictimQueue::in_order() const {
    for (size_t at = 0; at < heap_.size(); ++at) {
        if (find(heap_[at].node) != &heap_[at]) return false;
        if (at != 0 && precedes(heap_[at], heap_[(at - 1) / WIDTH])) return false;
    }
    return true;
}

void VictimQueue::place(size_t at, const Candidate& candidate) {
    heap_[at] = candidate;
    where_[candidate.node] = static_cast<int32_t>(at);
}

// Move entries down to make way for a candidate that belongs at `at` or above.
void VictimQueue::sift_up(size_t at, const Candidate& candidate) {
    while (at != 0) {
        const size_t above = (at - 1) / WIDTH;
        if (!precedes(candidate, heap_[above])) break;
        place(at, heap_[above]);
        at = above;
    }
    place(at, candidate);
}

// Move entries up to make way for a candidate that belongs at `at` or below.
void VictimQueue::sift_down(size_t at, const Candidate& candidate) {
    for (;;) {
        const size_t begin = at * WIDTH + 1;
        if (begin >= heap_.size()) break;
        const size_t end = std::min(begin + WIDTH, heap_.size());
        size_t least = begin;
        for (size_t each = begin + 1; each < end; ++each) {
            if (precedes(heap_[each], heap_[least])) least = each;
        }
        if (!precedes(heap_[least], candidate)) break;
        place(at, heap_[least]);
        at = least;
    }
    place(at, candidate);
}

// Put a candidate at `at`, whose entry has another key or is gone, and then where it belongs.
void VictimQueue::restore(size_t at, const Candidate& candidate) {
    if (at != 0 && precedes(candidate, heap_[(at - 1) / WIDTH])) {
        sift_up(at, candidate);
    } else {
        sift_down(at, candidate);
    }
}

}  // namespace kvcanon
