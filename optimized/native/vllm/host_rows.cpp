#include "host_rows.hpp"

#include <cassert>
#include <numeric>

namespace kvcanon {

HostRows::HostRows(int32_t count)
    : rows_(static_cast<size_t>(count) + 1), free_(static_cast<size_t>(count)) {
    // The lowest is taken first.
    std::iota(free_.rbegin(), free_.rend(), 0);
    rows_.back().older = rows_.back().newer = count;
}

int32_t HostRows::take_free() {
    const int32_t row = free_.back();
    free_.pop_back();
    (*this)[row].holds = 1;
    return row;
}

void HostRows::hold(int32_t row) {
    if ((*this)[row].holds++ == 0) unlink(row);
}

void HostRows::let_go(int32_t row) {
    HostRow& held = (*this)[row];
    assert(held.holds > 0);
    if (--held.holds > 0) return;
    if (held.page != nullptr) {
        link(row);
    } else {
        free_.push_back(row);
    }
}

void HostRows::use(int32_t row) {
    if ((*this)[row].holds > 0) return;
    unlink(row);
    link(row);
}

void HostRows::empty(int32_t row) {
    HostRow& emptied = (*this)[row];
    emptied.page = nullptr;
    emptied.is_leaving = false;
    if (emptied.holds > 0) return;
    unlink(row);
    free_.push_back(row);
}

void HostRows::link(int32_t row) {
    HostRow& last = rows_.back();
    (*this)[row].older = last.older;
    (*this)[row].newer = count();
    (*this)[last.older].newer = row;
    last.older = row;
    ++evictable_;
}

void HostRows::unlink(int32_t row) {
    HostRow& gone = (*this)[row];
    (*this)[gone.older].newer = gone.newer;
    (*this)[gone.newer].older = gone.older;
    gone.older = gone.newer = NOWHERE;
    --evictable_;
}

}  // namespace kvcanon
