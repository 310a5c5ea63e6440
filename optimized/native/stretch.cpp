#include "stretch.hpp"

#include <algorithm>
#include <cassert>

namespace kvcanon {

namespace {

void shrink(Stretch* stretch, size_t words_per_page) {
    const size_t pages = static_cast<size_t>(stretch->needed);
    if (stretch->needed == stretch->pages || pages == 0) return;
    stretch->words.resize(pages * words_per_page);
    stretch->pages = stretch->needed;
    if (stretch->named > stretch->pages) stretch->named = stretch->pages;
    if (stretch->names != nullptr) stretch->names.resize(pages * NAME_BYTES);
}

// Whether what the next page of a stretch follows has a name.
bool is_next(const Naming& wanted) {
    const Stretch* stretch = wanted.stretch;
    return stretch->named != 0 || stretch->above == nullptr ||
           stretch->above->named >= stretch->above_end;
}

// What must have names before a stretch whose turn it is not.
Naming above(const Naming& wanted) {
    return {wanted.stretch->above, wanted.stretch->above_end, wanted.seed, wanted.seed_bytes};
}

// The names to compute of a stretch that is next.
HashJob begin(const Naming& wanted, size_t words_per_page) {
    Stretch* stretch = wanted.stretch;
    // Events pin what they name, so that all that is above it is there, too.
    assert(wanted.pages <= stretch->pages);
    if (stretch->names == nullptr) {
        stretch->names.resize(static_cast<size_t>(stretch->pages) * NAME_BYTES);
    }
    if (stretch->named == 0 && stretch->above != nullptr) {
        stretch->has_parent = true;
        std::memcpy(stretch->parent_name, name_of(stretch->above, stretch->above_end - 1),
                    NAME_BYTES);
    }
    const auto named = static_cast<size_t>(stretch->named);
    const bool follows_page = named != 0 || stretch->has_parent;
    const uint8_t* before = named != 0             ? name_of(stretch, stretch->named - 1)
                            : stretch->has_parent ? stretch->parent_name
                                                  : wanted.seed;
    return {before,
            follows_page ? NAME_BYTES : wanted.seed_bytes,
            stretch->words + named * words_per_page,
            words_per_page,
            static_cast<size_t>(wanted.pages) - named,
            stretch->names + named * NAME_BYTES};
}

void end(const Naming& wanted) {
    wanted.stretch->named = wanted.pages;
    StretchRef::drop(std::exchange(wanted.stretch->above, nullptr));
}

}  // namespace

StretchRef make_stretch(const uint32_t* words, int32_t pages, size_t words_per_page, uint32_t space,
                        Stretch* above, int32_t above_end) {
    StretchRef made(new Stretch);
    const size_t count = static_cast<size_t>(pages) * words_per_page;
    made->words.resize(count);
    std::memcpy(made->words, words, count * sizeof(uint32_t));
    made->pages = made->needed = pages;
    made->space = space;
    made->above = above;
    made->above_end = above_end;
    if (above != nullptr) ++above->refs;
    return made;
}

void name_pages(std::vector<Naming> wanted, size_t words_per_page) {
    std::vector<HashJob> jobs;
    std::vector<Naming> under_way, later;
    while (!wanted.empty()) {
        std::sort(wanted.begin(), wanted.end(), [](const Naming& a, const Naming& b) {
            return a.stretch != b.stretch ? a.stretch < b.stretch : a.pages > b.pages;
        });
        jobs.clear();
        under_way.clear();
        later.clear();
        const Stretch* last = nullptr;
        for (const Naming& each : wanted) {
            // Of one stretch the most pages come first; the others are among them.
            if (each.stretch == last || each.stretch->named >= each.pages) continue;
            last = each.stretch;
            if (is_next(each)) {
                under_way.push_back(each);
                jobs.push_back(begin(each, words_per_page));
            } else {
                later.push_back(each);
                later.push_back(above(each));
            }
        }
        hash_pages_batch(jobs.data(), jobs.size());
        for (const Naming& each : under_way) end(each);
        wanted.swap(later);
    }
}

void shorten(Stretch* stretch, int32_t pages, size_t words_per_page) {
    assert(pages <= stretch->needed);
    stretch->needed = pages;
    if (stretch->pins == 0) shrink(stretch, words_per_page);
}

void unpin(Stretch* stretch, size_t words_per_page) {
    assert(stretch->pins > 0);
    if (--stretch->pins == 0) shrink(stretch, words_per_page);
}

}  // namespace kvcanon
