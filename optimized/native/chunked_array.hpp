// An array that grows by chunks: no growth moves the items that are there, so that no call pays for
// the size of the array.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <vector>

namespace kvcanon {

template <typename Item>
class ChunkedArray {
  public:
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    Item& operator[](size_t at) {
        assert(at < size_);
        return chunks_[at / CHUNK][at % CHUNK];
    }
    const Item& operator[](size_t at) const {
        assert(at < size_);
        return chunks_[at / CHUNK][at % CHUNK];
    }
    const Item& back() const { return (*this)[size_ - 1]; }

    void push_back(const Item& item) {
        reserve(size_ + 1);
        ++size_;
        (*this)[size_ - 1] = item;
    }

    // Allocate now what so many items need.
    void reserve(size_t size) {
        while (size > chunks_.size() * CHUNK) {
            // Owned before the list grows, which may fail.
            chunks_.push_back(std::unique_ptr<Item[]>(new Item[CHUNK]));
        }
    }

    // Its chunk stays, to be used again.
    void pop_back() {
        assert(!empty());
        --size_;
    }

    // Add items so that there are more than `at`, and perhaps some more.
    void reach(size_t at, const Item& item) {
        while (at >= size_) {
            reserve(at + 1);
            for (const size_t end = chunks_.size() * CHUNK; size_ < end;) push_back(item);
        }
    }

    void clear() { size_ = 0; }

  private:
    static constexpr size_t CHUNK = 4096;

    std::vector<std::unique_ptr<Item[]>> chunks_;
    size_t size_ = 0;
};

}  // namespace kvcanon
