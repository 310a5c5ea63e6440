#include "bind_hashing.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sha256.hpp"
#include "sha256_ways.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

using Words = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Hashes = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1, HASH_BYTES>>;

const HashWay& way_named(const std::optional<std::string>& name) {
    const std::vector<HashWay>& ways = hash_ways();
    if (!name) return ways.front();
    std::string known;
    for (const HashWay& way : ways) {
        if (*name == way.name) return way;
        known += std::string(known.empty() ? "" : ", ") + way.name;
    }
    throw nb::value_error(
        ("This processor has no way '" + *name + "' to compute SHA-256; it has " + known + ".")
            .c_str());
}

// A job with its own memory for the hashes. `seed` and `words` must outlive it.
HashJob job_of(const nb::bytes& seed, const Words& words, size_t words_per_page,
               std::unique_ptr<uint8_t[]>& hashes) {
    if (seed.size() != 0 && seed.size() != HASH_BYTES) {
        throw nb::value_error(("A seed has no bytes (the default namespace) or 32; this one has " +
                               std::to_string(seed.size()) + ".")
                                  .c_str());
    }
    if (words_per_page == 0) throw nb::value_error("A page has at least one word.");
    const size_t pages = words.size() / words_per_page;
    hashes.reset(new uint8_t[pages * HASH_BYTES]);
    return {reinterpret_cast<const uint8_t*>(seed.c_str()),
            seed.size(),
            words.data(),
            words_per_page,
            pages,
            hashes.get()};
}

// Hand the hashes over to an array, which frees them.
Hashes as_array(std::unique_ptr<uint8_t[]> hashes, size_t pages) {
    uint8_t* data = hashes.get();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
    hashes.release();
    return Hashes(data, {pages, HASH_BYTES}, owner);
}

std::vector<Hashes> page_hashes_batch(const std::vector<nb::bytes>& seeds,
                                      const std::vector<Words>& words,
                                      const std::vector<size_t>& words_per_page,
                                      const std::optional<std::string>& way_name) {
    if (seeds.size() != words.size() || seeds.size() != words_per_page.size()) {
        throw nb::value_error(
            "Each chain has a seed, words and words a page; these lists differ in length.");
    }
    const HashWay& way = way_named(way_name);
    std::vector<std::unique_ptr<uint8_t[]>> hashes(seeds.size());
    std::vector<HashJob> jobs;
    jobs.reserve(seeds.size());
    for (size_t i = 0; i < seeds.size(); ++i) {
        jobs.push_back(job_of(seeds[i], words[i], words_per_page[i], hashes[i]));
    }
    {
        nb::gil_scoped_release release;
        hash_pages_batch(way, jobs.data(), jobs.size());
    }
    std::vector<Hashes> arrays;
    arrays.reserve(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
        arrays.push_back(as_array(std::move(hashes[i]), jobs[i].pages));
    }
    return arrays;
}

Hashes page_hashes(const nb::bytes& seed, const Words& words, size_t words_per_page,
                   const std::optional<std::string>& way_name) {
    return page_hashes_batch({seed}, {words}, {words_per_page}, way_name).front();
}

std::vector<std::string> names_of_ways() {
    std::vector<std::string> hashes;
    for (const HashWay& way : hash_ways()) hashes.emplace_back(way.name);
    return hashes;
}

}  // namespace

void bind_hashing(nb::module_& m) {
    m.def("hash_ways", &names_of_ways,
          "List the implementations of SHA-256 that this processor can run, the fastest first.");
    m.def("page_hashes", &page_hashes, nb::arg("seed"), nb::arg("words"), nb::arg("words_per_page"),
          nb::arg("way") = nb::none(),
          "Return the page hashes of one chain: uint8[pages, 32].\n\n"
          "They equal those of `kvcanon.spec.hashing.page_hashes`. The words of a page are its "
          "tokens; a\nbigram has two words.");
    m.def("page_hashes_batch", &page_hashes_batch, nb::arg("seeds"), nb::arg("words"),
          nb::arg("words_per_page"), nb::arg("way") = nb::none(),
          "Return the page hashes of several chains.\n\n"
          "Two chains of one page size take little longer than one.");
}

}  // namespace kvcanon
