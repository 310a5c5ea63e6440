#include "sha256.hpp"

#include <algorithm>
#include <cstring>

#include "sha256_ways.hpp"

namespace kvcanon {

namespace {

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Tokens are hashed as they lie in memory, so the processor must be little endian."
#endif

constexpr size_t BLOCK_BYTES = 64;
// What follows a message: one byte that marks its end, and its length in bits.
constexpr size_t END_BYTES = 1 + 8;

constexpr uint32_t INITIAL_STATE[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

void store_big_endian(uint32_t word, uint8_t* out) {
    for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(word >> (24 - 8 * i));
}

// One chain under way: it hands out the blocks of its pages in turn, and takes their names down.
class Chain {
  public:
    bool done() const { return page_ == job_.pages; }

    void begin(const HashJob& job) {
        job_ = job;
        page_ = 0;
        parent_ = job.seed;
        parent_bytes_ = job.seed_len;
        begin_page();
    }

    // The blocks that lie one after another from here on. Most pages are hashed where they lie.
    size_t ready_blocks() const { return ready_blocks_; }
    const uint8_t* data() const { return data_; }
    uint32_t* state() { return state_; }

    // Go on after the state has taken in the next `blocks` blocks.
    void advance(size_t blocks) {
        block_ += blocks;
        if (block_ == page_blocks_) {
            end_page();
        } else if (blocks < ready_blocks_) {
            data_ += blocks * BLOCK_BYTES;
            ready_blocks_ -= blocks;
        } else {
            find_blocks();
        }
    }

  private:
    size_t page_bytes() const { return job_.words_per_page * sizeof(uint32_t); }

    const uint8_t* page() const {
        return reinterpret_cast<const uint8_t*>(job_.words + page_ * job_.words_per_page);
    }

    void begin_page() {
        std::copy(std::begin(INITIAL_STATE), std::end(INITIAL_STATE), state_);
        message_bytes_ = parent_bytes_ + page_bytes();
        page_blocks_ = (message_bytes_ + END_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES;
        block_ = 0;
        if (!done()) find_blocks();
    }

    void end_page() {
        uint8_t* name = job_.out + page_ * NAME_BYTES;
        for (int i = 0; i < 8; ++i) store_big_endian(state_[i], name + 4 * i);
        parent_ = name;
        parent_bytes_ = NAME_BYTES;
        ++page_;
        begin_page();
    }

    void find_blocks() {
        const size_t begin = block_ * BLOCK_BYTES;
        if (begin >= parent_bytes_ && begin + BLOCK_BYTES <= message_bytes_) {
            data_ = page() + (begin - parent_bytes_);
            ready_blocks_ = (message_bytes_ - begin) / BLOCK_BYTES;
        } else {
            assemble_block(begin);
            data_ = edge_;
            ready_blocks_ = 1;
        }
    }

    // Put together a block that the name before the page, or the end of the message, lies in.
    void assemble_block(size_t begin) {
        size_t filled = 0;
        if (begin < parent_bytes_) {
            filled = parent_bytes_ - begin;
            std::memcpy(edge_, parent_ + begin, filled);
        }
        const size_t end = std::min(begin + BLOCK_BYTES, message_bytes_);
        if (begin + filled < end) {
            const size_t from = begin + filled - parent_bytes_;
            std::memcpy(edge_ + filled, page() + from, end - begin - filled);
            filled = end - begin;
        }
        std::memset(edge_ + filled, 0, BLOCK_BYTES - filled);
        if (begin <= message_bytes_ && message_bytes_ < begin + BLOCK_BYTES) {
            edge_[message_bytes_ - begin] = 0x80;
        }
        if (block_ + 1 == page_blocks_) {
            const uint64_t bits = uint64_t{message_bytes_} * 8;
            store_big_endian(static_cast<uint32_t>(bits >> 32), edge_ + BLOCK_BYTES - 8);
            store_big_endian(static_cast<uint32_t>(bits), edge_ + BLOCK_BYTES - 4);
        }
    }

    HashJob job_{};
    size_t page_ = 0;
    const uint8_t* parent_ = nullptr;
    size_t parent_bytes_ = 0;
    size_t message_bytes_ = 0;
    size_t page_blocks_ = 0;
    size_t block_ = 0;
    const uint8_t* data_ = nullptr;
    size_t ready_blocks_ = 0;
    uint32_t state_[8];
    uint8_t edge_[BLOCK_BYTES];
};

void finish(const Sha256& way, Chain& chain) {
    while (!chain.done()) {
        const size_t blocks = chain.ready_blocks();
        way.compress(chain.state(), chain.data(), blocks);
        chain.advance(blocks);
    }
}

}  // namespace

void hash_pages(const uint8_t* seed, size_t seed_len, const uint32_t* words, size_t words_per_page,
                size_t pages, uint8_t* out) {
    const HashJob job{seed, seed_len, words, words_per_page, pages, out};
    hash_pages_batch(&job, 1);
}

void hash_pages_batch(const HashJob* jobs, size_t count) {
    hash_pages_batch(sha256_ways().front(), jobs, count);
}

void hash_pages_batch(const Sha256& way, const HashJob* jobs, size_t count) {
    Chain lanes[2];
    size_t next = 0;
    const auto refill = [&](Chain& lane) {
        while (lane.done() && next < count) lane.begin(jobs[next++]);
        return !lane.done();
    };
    if (way.compress_two != nullptr) {
        while (refill(lanes[0]) && refill(lanes[1])) {
            const size_t blocks = std::min(lanes[0].ready_blocks(), lanes[1].ready_blocks());
            way.compress_two(lanes[0].state(), lanes[0].data(), lanes[1].state(), lanes[1].data(),
                             blocks);
            for (Chain& lane : lanes) lane.advance(blocks);
        }
        // The last of the chains may be in either lane.
        finish(way, lanes[1]);
    }
    while (refill(lanes[0])) finish(way, lanes[0]);
}

}  // namespace kvcanon
