#include "stretch.hpp"

#include <cassert>
#include <vector>

namespace kvcanon {

namespace {

template <typename Item>
Item* resized(Item* items, size_t bytes) {
    void* moved = std::realloc(items, bytes);
    if (moved == nullptr) throw std::bad_alloc();
    return static_cast<Item*>(moved);
}

void shrink(Stretch* stretch, size_t words_per_page) {
    const size_t pages = static_cast<size_t>(stretch->needed);
    if (stretch->needed == stretch->pages || pages == 0) return;
    stretch->words = resized(stretch->words, pages * words_per_page * sizeof(uint32_t));
    stretch->pages = stretch->needed;
    if (stretch->named > stretch->pages) stretch->named = stretch->pages;
    if (stretch->names != nullptr) stretch->names = resized(stretch->names, pages * NAME_BYTES);
}

}  // namespace

StretchRef make_stretch(const uint32_t* words, int32_t pages, size_t words_per_page, uint32_t space,
                        Stretch* above, int32_t above_end) {
    StretchRef made(new Stretch);
    const size_t bytes = static_cast<size_t>(pages) * words_per_page * sizeof(uint32_t);
    made->words = resized(static_cast<uint32_t*>(nullptr), bytes);
    std::memcpy(made->words, words, bytes);
    made->pages = made->needed = pages;
    made->space = space;
    made->above = above;
    made->above_end = above_end;
    if (above != nullptr) ++above->refs;
    return made;
}

void name_pages(Stretch* stretch, int32_t pages, size_t words_per_page, const uint8_t* seed,
                size_t seed_bytes) {
    if (stretch->named >= pages) return;
    // Those above come first. A long chain of them must not become a deep recursion.
    std::vector<std::pair<Stretch*, int32_t>> unnamed{{stretch, pages}};
    while (unnamed.back().first->named == 0 && unnamed.back().first->above != nullptr) {
        const Stretch* last = unnamed.back().first;
        unnamed.emplace_back(last->above, last->above_end);
    }
    while (!unnamed.empty()) {
        auto [each, end] = unnamed.back();
        unnamed.pop_back();
        if (each->named >= end) continue;
        if (each->named == 0) {
            each->has_parent = each->above != nullptr;
            if (each->has_parent) {
                std::memcpy(each->parent_name, name_of(each->above, each->above_end - 1), NAME_BYTES);
            }
        }
        if (each->names == nullptr) {
            each->names = resized(each->names, static_cast<size_t>(each->pages) * NAME_BYTES);
        }
        const uint8_t* before = each->named != 0   ? name_of(each, each->named - 1)
                                : each->has_parent ? each->parent_name
                                                   : seed;
        const bool from_seed = each->named == 0 && !each->has_parent;
        hash_pages(before, from_seed ? seed_bytes : NAME_BYTES,
                   each->words + static_cast<size_t>(each->named) * words_per_page, words_per_page,
                   static_cast<size_t>(end - each->named),
                   each->names + static_cast<size_t>(each->named) * NAME_BYTES);
        each->named = end;
        StretchRef::drop(std::exchange(each->above, nullptr));
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
