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

// How many blocks the last `bytes` of a message and its end take.
constexpr size_t blocks_to_end(size_t bytes) {
    return (bytes + END_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

// Write the end of a message of `message_bytes` after its last `bytes`, which stand at `tail`.
void write_end(uint8_t* tail, size_t bytes, size_t message_bytes) {
    uint8_t* end = tail + blocks_to_end(bytes) * BLOCK_BYTES;
    std::memset(tail + bytes, 0, static_cast<size_t>(end - tail) - bytes);
    tail[bytes] = 0x80;
    const uint64_t bits = uint64_t{message_bytes} * 8;
    for (int i = 0; i < 8; ++i) end[-1 - i] = static_cast<uint8_t>(bits >> (8 * i));
}

void hash_message(const Sha256& way, const uint8_t* message, size_t bytes, uint8_t* out) {
    uint32_t state[8];
    std::copy(std::begin(INITIAL_STATE), std::end(INITIAL_STATE), state);
    way.compress(state, message, bytes / BLOCK_BYTES);
    const size_t rest = bytes % BLOCK_BYTES;
    uint8_t tail[2 * BLOCK_BYTES];
    std::copy(message + bytes - rest, message + bytes, tail);
    write_end(tail, rest, bytes);
    way.compress(state, tail, blocks_to_end(rest));
    way.store_name(state, out);
}

// One chain under way: it hands out the blocks of its pages in turn, and takes their names down.
//
// A message is the name before the page, the page, and its end. The blocks that lie wholly in the
// page are hashed where they are. The others stand in an *edge*, one after another: the message with
// its middle cut out. There are two edges, for pages in turn, because the words of a page are to be
// written long before they are read: the processor waits for bytes that were written just now and
// in smaller pieces. Only the name must come last.
class Chain {
  public:
    explicit Chain(const Sha256& way) : way_(way) {}

    bool done() const { return page_ == job_.pages; }

    void begin(const HashJob& job) {
        job_ = job;
        page_ = 0;
        if (done()) return;
        lay_out();
        std::copy(job.seed, job.seed + job.seed_len, edge_of(page_));
        if (job.seed_len == 0) {
            // Nothing comes before this page, so it is no message like the others.
            hash_message(way_, page_at(page_), page_bytes(), job.out);
            page_ = 1;
            std::copy(job.out, job.out + NAME_BYTES, edge_of(page_));
            if (done()) return;
        }
        write_words(page_);
        begin_page();
    }

    // The next blocks that lie one after another.
    const uint8_t* data() const { return data_; }
    size_t ready_blocks() const { return ready_blocks_; }
    uint32_t* state() { return state_; }

    // Go on after the state has taken in the next `blocks` blocks.
    void advance(size_t blocks) {
        data_ += blocks * BLOCK_BYTES;
        ready_blocks_ -= blocks;
        if (ready_blocks_ != 0) return;
        if (part_ == Part::HEAD) {
            hand_out(Part::MIDDLE, page_at(page_) + head_bytes_, middle_blocks_);
        } else if (part_ == Part::MIDDLE) {
            hand_out(Part::TAIL, edge_of(page_) + BLOCK_BYTES, edge_blocks_ - 1);
        } else {
            end_page();
        }
    }

  private:
    enum class Part { HEAD, MIDDLE, TAIL };

    size_t page_bytes() const { return job_.words_per_page * sizeof(uint32_t); }

    const uint8_t* page_at(size_t page) const {
        return reinterpret_cast<const uint8_t*>(job_.words + page * job_.words_per_page);
    }

    uint8_t* edge_of(size_t page) { return edges_[page % 2]; }

    // Divide the messages, which are all alike, and write what does not differ between them.
    void lay_out() {
        head_bytes_ = std::min(BLOCK_BYTES - NAME_BYTES, page_bytes());
        middle_blocks_ = (page_bytes() - head_bytes_) / BLOCK_BYTES;
        tail_bytes_ = (page_bytes() - head_bytes_) % BLOCK_BYTES;
        const size_t edge_bytes = NAME_BYTES + head_bytes_ + tail_bytes_;
        edge_blocks_ = blocks_to_end(edge_bytes);
        for (uint8_t* edge : edges_) write_end(edge, edge_bytes, NAME_BYTES + page_bytes());
    }

    // Write what the edge of a page holds of its words.
    void write_words(size_t page) {
        if (page == job_.pages) return;
        const uint8_t* from = page_at(page);
        uint8_t* to = edge_of(page) + NAME_BYTES;
        std::memcpy(to, from, head_bytes_);
        std::memcpy(to + head_bytes_, from + head_bytes_ + middle_blocks_ * BLOCK_BYTES,
                    tail_bytes_);
    }

    // Begin a page whose edge is complete.
    void begin_page() {
        std::copy(std::begin(INITIAL_STATE), std::end(INITIAL_STATE), state_);
        if (middle_blocks_ == 0) {
            hand_out(Part::TAIL, edge_of(page_), edge_blocks_);
        } else {
            hand_out(Part::HEAD, edge_of(page_), 1);
        }
        write_words(page_ + 1);
    }

    void hand_out(Part part, const uint8_t* data, size_t blocks) {
        part_ = part;
        data_ = data;
        ready_blocks_ = blocks;
    }

    void end_page() {
        way_.store_name(state_, job_.out + page_ * NAME_BYTES);
        ++page_;
        if (done()) return;
        way_.store_name(state_, edge_of(page_));
        begin_page();
    }

    const Sha256& way_;
    HashJob job_{};
    size_t page_ = 0;
    size_t head_bytes_ = 0;     // Of the page, beside the name in the first block.
    size_t middle_blocks_ = 0;  // Those that lie wholly in the page.
    size_t tail_bytes_ = 0;     // Of the page, after those.
    size_t edge_blocks_ = 0;
    Part part_ = Part::TAIL;
    const uint8_t* data_ = nullptr;
    size_t ready_blocks_ = 0;
    uint32_t state_[8];
    uint8_t edges_[2][3 * BLOCK_BYTES];
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
    Chain lanes[2] = {Chain(way), Chain(way)};
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
