#include "wire_batch.hpp"

#include <string>

#include "msgpack_reader.hpp"

namespace kvcanon {

namespace {

constexpr uint64_t MOST_TOKEN = 0xffffffff;
constexpr size_t MOST_HASH_BYTES = 64;
constexpr uint64_t MOST_RANK = 65535;
// Engines have a handful; each has a book of its own.
constexpr uint64_t MOST_GROUP = 255;

enum class Field {
    TYPE,
    HASHES,
    PARENT,
    TOKENS,
    BLOCK_SIZE,
    LORA_ID,
    MEDIUM,
    LORA_NAME,
    EXTRA_KEYS,
    GROUP,
    SALT,
    EXTRA_KEY,
    SPEC_KIND,
    SPEC_WINDOW,
    LOCALITY,
    OWNERSHIP,
    UNKNOWN,
};

Field field_named(std::string_view name) {
    if (name == "type") return Field::TYPE;
    if (name == "block_hashes") return Field::HASHES;
    if (name == "parent_block_hash") return Field::PARENT;
    if (name == "token_ids") return Field::TOKENS;
    if (name == "block_size") return Field::BLOCK_SIZE;
    if (name == "lora_id") return Field::LORA_ID;
    if (name == "medium") return Field::MEDIUM;
    if (name == "lora_name") return Field::LORA_NAME;
    if (name == "extra_keys") return Field::EXTRA_KEYS;
    if (name == "group_idx") return Field::GROUP;
    if (name == "cache_salt") return Field::SALT;
    if (name == "extra_key") return Field::EXTRA_KEY;
    if (name == "kv_cache_spec_kind") return Field::SPEC_KIND;
    if (name == "kv_cache_spec_sliding_window") return Field::SPEC_WINDOW;
    if (name == "locality") return Field::LOCALITY;
    if (name == "ownership") return Field::OWNERSHIP;
    return Field::UNKNOWN;
}

// The fields of an event that is an array, after its type.
constexpr Field STORED_FIELDS[] = {Field::HASHES,     Field::PARENT,     Field::TOKENS,
                                   Field::BLOCK_SIZE, Field::LORA_ID,    Field::MEDIUM,
                                   Field::LORA_NAME,  Field::EXTRA_KEYS, Field::GROUP};
constexpr Field REMOVED_FIELDS[] = {Field::HASHES, Field::MEDIUM, Field::GROUP};

bool kind_named(std::string_view name, WireKind& kind) {
    if (name == "BlockStored") return kind = WireKind::STORED, true;
    if (name == "BlockRemoved") return kind = WireKind::REMOVED, true;
    if (name == "AllBlocksCleared") return kind = WireKind::CLEARED, true;
    return false;
}

// By the names of vLLM's `KVCacheSpecKind`.
GroupKind group_kind_named(std::string_view name) {
    if (name == "full_attention" || name == "mla_attention" || name == "sink_full_attention") {
        return GroupKind::FULL;
    }
    if (name == "sliding_window" || name == "sliding_window_mla" ||
        name == "chunked_local_attention") {
        return GroupKind::WINDOW;
    }
    return name == "mamba" ? GroupKind::STATES : GroupKind::OTHER;
}

// Reads the events of one payload into a batch.
class Decoder {
  public:
    Decoder(WireBatch& batch, Reader reader) : batch_(batch), reader_(reader) {}

    void read_batch() {
        const size_t parts = reader_.array("the batch");
        if (parts < 2) reader_.fail("the batch has no events");
        batch_.timestamp = reader_.number("the time");
        const size_t events = reader_.array("the list of events");
        for (size_t i = 0; i < events; ++i) read_event(static_cast<uint32_t>(i));
        for (size_t i = 2; i < parts; ++i) {
            if (i != 2 || reader_.type() != Reader::Type::WHOLE) {
                reader_.skip();
            } else {
                batch_.rank = small("the rank", MOST_RANK);
            }
        }
        if (!reader_.at_end()) reader_.fail("bytes follow the batch");
    }

  private:
    // A number of which there are few: each rank and group has a book of its own.
    int64_t small(const char* what, uint64_t most) {
        const Whole value = reader_.whole(what);
        if (value.negative || value.bits > most) {
            reader_.fail(std::string(what) + " is out of range");
        }
        return static_cast<int64_t>(value.bits);
    }

    void read_event(uint32_t index) {
        WireEvent event;
        event.index = index;
        event.first_id = static_cast<uint32_t>(batch_.ids.size());
        event.first_word = batch_.words.size();
        event.first_extra = batch_.extras.size();
        has_hashes_ = false;
        const bool known =
            reader_.type() == Reader::Type::MAP ? read_map(event) : read_array(event);
        if (!known) {
            batch_.ids.resize(event.first_id);
            batch_.words.resize(event.first_word);
            batch_.extras.resize(event.first_extra);
            ++batch_.unknown;
            return;
        }
        if (event.kind != WireKind::CLEARED && !has_hashes_) {
            reader_.fail("an event has no block_hashes");
        }
        batch_.events.push_back(event);
    }

    bool read_map(WireEvent& event) {
        bool known = false, typed = false;
        const size_t pairs = reader_.map("an event");
        for (size_t i = 0; i < pairs; ++i) {
            const Field field = field_named(reader_.text("the name of a field"));
            if (field == Field::TYPE) {
                known = kind_named(reader_.text("the type of an event"), event.kind);
                typed = true;
            } else {
                read_field(event, field);
            }
        }
        if (!typed) reader_.fail("an event has no type");
        return known;
    }

    bool read_array(WireEvent& event) {
        const size_t parts = reader_.array("an event");
        if (parts == 0) reader_.fail("an event has no type");
        const bool known = kind_named(reader_.text("the type of an event"), event.kind);
        const bool stored = event.kind == WireKind::STORED;
        const size_t named = !known || event.kind == WireKind::CLEARED ? 0
                             : stored                                  ? std::size(STORED_FIELDS)
                                                                       : std::size(REMOVED_FIELDS);
        for (size_t i = 1; i < parts; ++i) {
            if (i > named) {
                reader_.skip();
            } else {
                read_field(event, stored ? STORED_FIELDS[i - 1] : REMOVED_FIELDS[i - 1]);
            }
        }
        return known;
    }

    void read_field(WireEvent& event, Field field) {
        const bool needed = field == Field::HASHES || field == Field::UNKNOWN;
        if (!needed && reader_.take_nil()) return;
        switch (field) {
            case Field::HASHES: read_hashes(event); break;
            case Field::PARENT:
                event.has_parent = true;
                event.parent = read_id("parent_block_hash");
                break;
            case Field::TOKENS: read_tokens(event); break;
            case Field::BLOCK_SIZE:
                event.block_size = static_cast<int64_t>(reader_.whole("block_size").bits);
                break;
            case Field::MEDIUM: event.medium = {true, reader_.text("medium")}; break;
            case Field::LORA_NAME: event.lora = read_text(); break;
            case Field::SALT: event.salt = read_text(); break;
            case Field::EXTRA_KEY: event.extra_key = read_text(); break;
            case Field::GROUP:
                if (reader_.type() == Reader::Type::WHOLE) {
                    event.group = small("group_idx", MOST_GROUP);
                    event.has_group = true;
                } else {
                    reader_.skip();
                }
                break;
            case Field::EXTRA_KEYS: read_extra_keys(event); break;
            case Field::SPEC_KIND: event.group_kind = read_group_kind(); break;
            case Field::SPEC_WINDOW: read_window(event); break;
            case Field::LOCALITY: event.locality = read_text(); break;
            case Field::OWNERSHIP: event.ownership = read_text(); break;
            case Field::LORA_ID:
            case Field::TYPE:
            case Field::UNKNOWN: reader_.skip(); break;
        }
    }

    // A field that says something of a namespace; what is no text is no field that we know.
    Text read_text() {
        if (reader_.type() != Reader::Type::TEXT) {
            reader_.skip();
            return {};
        }
        return {true, reader_.text("a name")};
    }

    BlockId read_id(const char* what) {
        if (reader_.type() == Reader::Type::WHOLE) return {reader_.whole(what).bits, nullptr, 0};
        const std::string_view bytes = reader_.bytes(what);
        if (bytes.empty() || bytes.size() > MOST_HASH_BYTES) {
            reader_.fail(std::string(what) + " has " + std::to_string(bytes.size()) + " bytes");
        }
        BlockId id;
        id.bytes = reinterpret_cast<const uint8_t*>(bytes.data());
        id.length = static_cast<uint32_t>(bytes.size());
        for (size_t i = 0; i < bytes.size() && i < 8; ++i) id.key = id.key << 8 | id.bytes[i];
        return id;
    }

    void read_hashes(WireEvent& event) {
        if (has_hashes_) reader_.fail("an event has block_hashes twice");
        has_hashes_ = true;
        const size_t count = reader_.array("block_hashes");
        for (size_t i = 0; i < count; ++i) batch_.ids.push_back(read_id("a block hash"));
        event.ids = static_cast<uint32_t>(count);
    }

    uint32_t read_token() {
        const Whole token = reader_.whole("a token");
        if (token.negative || token.bits > MOST_TOKEN) reader_.fail("a token is out of range");
        return static_cast<uint32_t>(token.bits);
    }

    void read_tokens(WireEvent& event) {
        if (event.units != 0) reader_.fail("an event has token_ids twice");
        const size_t count = reader_.array("token_ids");
        const bool pairs = count != 0 && reader_.type() == Reader::Type::ARRAY;
        event.unit_words = pairs ? 2 : 1;
        event.units = static_cast<uint32_t>(count);
        batch_.words.reserve(batch_.words.size() + count * event.unit_words);
        for (size_t i = 0; i < count; ++i) {
            if (pairs && reader_.array("a pair of tokens") != 2) {
                reader_.fail("a pair of tokens has not two");
            }
            for (uint32_t word = 0; word < event.unit_words; ++word) {
                batch_.words.push_back(read_token());
            }
        }
    }

    GroupKind read_group_kind() {
        const Text name = read_text();
        return name.is_there ? group_kind_named(name.value) : GroupKind::UNSAID;
    }

    void read_window(WireEvent& event) {
        if (reader_.type() != Reader::Type::WHOLE) {
            reader_.skip();
            return;
        }
        const Whole tokens = reader_.whole("kv_cache_spec_sliding_window");
        event.window = tokens.negative || tokens.bits > MOST_TOKEN ? 0 : int64_t(tokens.bits);
    }

    void read_extra_keys(WireEvent& event) {
        if (event.extras != 0) reader_.fail("an event has extra_keys twice");
        if (reader_.type() != Reader::Type::ARRAY) {
            reader_.skip();
            return;
        }
        const size_t count = reader_.array("extra_keys");
        for (size_t i = 0; i < count; ++i) {
            const uint8_t* begin = reader_.position();
            const bool is_nil = reader_.type() == Reader::Type::NIL;
            reader_.skip();
            const auto bytes = static_cast<size_t>(reader_.position() - begin);
            batch_.extras.emplace_back(reinterpret_cast<const char*>(begin), is_nil ? 0 : bytes);
            if (!is_nil) event.extras = static_cast<uint32_t>(i + 1);
        }
        batch_.extras.resize(event.first_extra + event.extras);
    }

    WireBatch& batch_;
    Reader reader_;
    bool has_hashes_ = false;
};

}  // namespace

size_t names_among(std::string_view extra) {
    if (extra.empty()) return 0;
    Reader reader(reinterpret_cast<const uint8_t*>(extra.data()), extra.size());
    if (reader.type() != Reader::Type::ARRAY) return 0;
    const size_t count = reader.array("extra keys");
    for (size_t i = 0; i < count; ++i) {
        if (reader.type() != Reader::Type::TEXT) return 0;
        reader.skip();
    }
    return count;
}

void WireBatch::decode(const uint8_t* payload, size_t size) {
    timestamp = 0;
    rank = 0;
    unknown = 0;
    events.clear();
    ids.clear();
    words.clear();
    extras.clear();
    Decoder(*this, Reader(payload, size)).read_batch();
}

}  // namespace kvcanon
