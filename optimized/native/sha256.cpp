#include "sha256.hpp"

#include <algorithm>

#include "sha256_ways.hpp"

namespace kvcanon {

namespace {

// A job under way.
struct Chain {
    HashJob job{};
    size_t page = 0;

    size_t pages_left() const { return job.pages - page; }

    HashRun rest() const {
        const uint8_t* seed = job.seed_len == 0 ? nullptr : job.seed;
        uint8_t* out = job.out + page * HASH_BYTES;
        return {page == 0 ? seed : out - HASH_BYTES, job.words + page * job.words_per_page, out};
    }

    void hash_alone(const HashWay& way, size_t pages) {
        way.one(rest(), job.words_per_page, pages);
        page += pages;
    }

    void begin(const HashWay& way, const HashJob& next) {
        job = next;
        page = 0;
        // The first page of the default namespace has no parent hash in its message.
        if (job.pages != 0 && job.seed_len == 0) hash_alone(way, 1);
    }
};

void hash_together(const HashWay& way, Chain& first, Chain& second) {
    const size_t pages = std::min(first.pages_left(), second.pages_left());
    way.two(first.rest(), second.rest(), first.job.words_per_page, pages);
    first.page += pages;
    second.page += pages;
}

}  // namespace

const std::vector<HashWay>& hash_ways() {
    static const std::vector<HashWay> ways = [] {
        std::vector<HashWay> found;
#if defined(__x86_64__)
        if (has_sha_ni()) found.push_back(sha_ni_way());
#elif defined(__aarch64__) && defined(__linux__)
        if (has_armv8_sha2()) found.push_back(armv8_sha2_way());
#endif
        found.push_back(portable_way());
        return found;
    }();
    return ways;
}

void hash_pages(const uint8_t* seed, size_t seed_len, const uint32_t* words, size_t words_per_page,
                size_t pages, uint8_t* out) {
    const HashJob job{seed, seed_len, words, words_per_page, pages, out};
    hash_pages_batch(&job, 1);
}

void hash_pages_batch(const HashJob* jobs, size_t count) {
    hash_pages_batch(hash_ways().front(), jobs, count);
}

void hash_pages_batch(const HashWay& way, const HashJob* jobs, size_t count) {
    Chain first;
    Chain second;
    size_t next = 0;
    const auto refill = [&](Chain& chain) {
        while (chain.pages_left() == 0 && next < count) chain.begin(way, jobs[next++]);
        return chain.pages_left() != 0;
    };
    while (refill(first)) {
        if (way.two != nullptr && refill(second) &&
            first.job.words_per_page == second.job.words_per_page) {
            hash_together(way, first, second);
        } else {
            first.hash_alone(way, first.pages_left());
        }
    }
    second.hash_alone(way, second.pages_left());
}

}  // namespace kvcanon
