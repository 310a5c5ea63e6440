#include "pack_events.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "emit.hpp"
#include "enum_values.hpp"
#include "event_lists.hpp"
#include "msgpack_writer.hpp"

namespace kvcanon {

namespace {

// The fields of an encoded namespace: extra key, salt, LoRA. `spec.oracle.framing` has the frames.
struct SpaceTexts {
    std::optional<std::string_view> extra_key, salt, lora;

    explicit SpaceTexts(std::string_view encoded) {
        for (std::optional<std::string_view>* field : {&extra_key, &salt, &lora}) {
            if (encoded.empty()) return;
            const bool present = encoded.front() != 0;
            encoded.remove_prefix(1);
            if (!present) continue;
            size_t length = 0;
            for (int i = 3; i >= 0; --i) {
                length = length << 8 | static_cast<uint8_t>(encoded[static_cast<size_t>(i)]);
            }
            *field = encoded.substr(4, length);
            encoded.remove_prefix(4 + length);
        }
    }
};

// Encodes the events of one list in one dialect.
class Encoder {
  public:
    Encoder(const PackedEvents& events, Dialect dialect, std::string& out)
        : events_(events), dialect_(dialect), writer_(out) {}

    void encode(const PackedEvents::Item& item) {
        switch (item.kind) {
            case EventKind::STORED: stored(item); break;
            case EventKind::REMOVED: removed(item); break;
            case EventKind::CLEARED: begin("AllBlocksCleared", 0); break;
        }
    }

  private:
    bool is_array() const { return dialect_ == Dialect::LEGACY; }

    void begin(std::string_view type, size_t fields) {
        if (is_array()) {
            writer_.array(fields + 1);
        } else if (dialect_ == Dialect::VLLM && type == "BlockStored") {
            // It has more fields than a small map holds, though most of them are left out.
            writer_.wide_map(fields + 1);
        } else {
            writer_.map(fields + 1);
        }
        if (!is_array()) writer_.text("type");
        writer_.text(type);
    }

    // A field has its name in a map, and its place in an array.
    Writer& field(std::string_view name) {
        if (!is_array()) writer_.text(name);
        return writer_;
    }

    void hash(const uint8_t* digest) {
        if (dialect_ == Dialect::VLLM) {
            writer_.whole(eight_bytes(digest + HASH_BYTES - 8));
        } else {
            writer_.whole_signed(static_cast<int64_t>(eight_bytes(digest)));
        }
    }

    void hashes(const PackedEvents::Item& item) {
        field("block_hashes").array(item.pages);
        const size_t first = item.first_hash + (item.has_parent ? 1 : 0);
        for (size_t page = 0; page < item.pages; ++page) {
            hash(events_.hashes.data() + (first + page) * HASH_BYTES);
        }
    }

    void medium(const PackedEvents::Item& item) {
        // vLLM knows the host by another name.
        const bool renamed = dialect_ == Dialect::VLLM && item.medium == CPU;
        field("medium").text(renamed ? "CPU" : MEDIUM_VALUES[item.medium]);
    }

    void tokens(const PackedEvents::Item& item) {
        const uint32_t* words = events_.words.data() + item.first_word;
        const size_t units = size_t{item.pages} * events_.page_size;
        field("token_ids").array(units);
        for (size_t unit = 0; unit < units; ++unit) {
            if (events_.unit_words == 2) writer_.array(2);
            for (uint32_t word = 0; word < events_.unit_words; ++word) writer_.whole(*words++);
        }
    }

    void stored(const PackedEvents::Item& item) {
        const SpaceTexts texts(events_.namespaces[item.space]);
        begin("BlockStored", 6 + optional_fields(texts));
        hashes(item);
        field("parent_block_hash");
        if (item.has_parent) {
            hash(events_.hashes.data() + item.first_hash * HASH_BYTES);
        } else {
            writer_.nil();
        }
        tokens(item);
        field("block_size").whole(events_.page_size);
        field("lora_id").nil();
        medium(item);
        if (is_array()) return;
        if (dialect_ == Dialect::VLLM) {
            text_or_nil("lora_name", texts.lora);
            if (has_extra_keys(texts)) extra_keys(item, texts);
        } else {
            if (texts.salt) field("cache_salt").text(*texts.salt);
            if (texts.lora) field("lora_name").text(*texts.lora);
        }
        if (texts.extra_key) field("extra_key").text(*texts.extra_key);
    }

    size_t optional_fields(const SpaceTexts& texts) const {
        if (is_array()) return 0;
        const size_t extra_key = texts.extra_key ? 1 : 0;
        // vLLM's lora_name is there always.
        if (dialect_ == Dialect::VLLM) return extra_key + 1 + (has_extra_keys(texts) ? 1U : 0U);
        return extra_key + (texts.salt ? 1U : 0U) + (texts.lora ? 1U : 0U);
    }

    static bool has_extra_keys(const SpaceTexts& texts) { return texts.salt || texts.lora; }

    void text_or_nil(std::string_view name, const std::optional<std::string_view>& value) {
        field(name);
        if (value) {
            writer_.text(*value);
        } else {
            writer_.nil();
        }
    }

    // What vLLM hashes besides tokens: the LoRA with each block, the salt with the first of all.
    void extra_keys(const PackedEvents::Item& item, const SpaceTexts& texts) {
        field("extra_keys").array(item.pages);
        for (uint32_t page = 0; page < item.pages; ++page) {
            const bool salted = texts.salt && page == 0 && !item.has_parent;
            const size_t keys = (texts.lora ? 1U : 0U) + (salted ? 1U : 0U);
            if (keys == 0) {
                writer_.nil();
                continue;
            }
            writer_.array(keys);
            if (texts.lora) writer_.text(*texts.lora);
            if (salted) writer_.text(*texts.salt);
        }
    }

    void removed(const PackedEvents::Item& item) {
        begin("BlockRemoved", 2);
        hashes(item);
        medium(item);
    }

    const PackedEvents& events_;
    const Dialect dialect_;
    Writer writer_;
};

}  // namespace

std::string PackedEvents::encode(Dialect dialect, double timestamp, int64_t rank) const {
    std::string out;
    // A token has three bytes mostly, a hash nine, an event a hundred besides.
    out.reserve(words.size() * 4 + hashes.size() / HASH_BYTES * 9 + items.size() * 128 + 32);
    Writer writer(out);
    writer.array(3);
    writer.number(timestamp);
    writer.array(items.size());
    Encoder encoder(*this, dialect, out);
    for (const Item& item : items) encoder.encode(item);
    writer.whole_signed(rank);
    return out;
}

PackedEvents pack_events(State& state) {
    PackedEvents packed;
    packed.unit_words = static_cast<uint32_t>(state.config.unit_words);
    packed.page_size = static_cast<uint32_t>(state.config.page_words) / packed.unit_words;
    const auto page_words = static_cast<size_t>(state.config.page_words);
    std::map<uint32_t, uint32_t> spaces{{0, 0}};
    const std::vector<Event> events = pending_events(state);
    size_t stored_pages = 0, pages = 0;
    for (const Event& event : events) {
        pages += static_cast<size_t>(event.pages) + 1;
        if (event.kind == EventKind::STORED) stored_pages += static_cast<size_t>(event.pages);
    }
    packed.items.reserve(events.size());
    packed.hashes.reserve(pages * HASH_BYTES);
    packed.words.reserve(stored_pages * page_words);
    for (const Event& event : events) {
        PackedEvents::Item item{event.kind, event.medium};
        const TokenSpan* span = event.span.get();
        if (span != nullptr) {
            const auto [found, is_new] = spaces.try_emplace(
                span->namespace_id, static_cast<uint32_t>(packed.namespaces.size()));
            if (is_new) {
                packed.namespaces.push_back(state.namespaces->at(span->namespace_id).encoded);
            }
            item.space = found->second;
            item.pages = static_cast<uint32_t>(event.pages);
            item.first_hash = packed.hashes.size() / HASH_BYTES;
            item.first_word = packed.words.size();
            packed.pages += item.pages;
            const auto add_hash = [&](const uint8_t* hash) {
                packed.hashes.insert(packed.hashes.end(), hash, hash + HASH_BYTES);
            };
            if (event.kind == EventKind::STORED) {
                const uint8_t* before = hash_before(span, event.offset);
                item.has_parent = before != nullptr;
                if (item.has_parent) add_hash(before);
                const uint8_t* first = hash_of(span, event.offset);
                packed.hashes.insert(packed.hashes.end(), first,
                                     first + static_cast<size_t>(event.pages) * HASH_BYTES);
                const uint32_t* words =
                    span->words + static_cast<size_t>(event.offset) * page_words;
                packed.words.insert(packed.words.end(), words,
                                    words + static_cast<size_t>(event.pages) * page_words);
            } else {
                // Of what was removed the last page comes first.
                for (int32_t page = event.pages; page-- > 0;) {
                    add_hash(hash_of(span, event.offset + page));
                }
            }
        }
        packed.items.push_back(item);
    }
    return packed;
}

}  // namespace kvcanon
