// Copies between the device and the host, and room for them there, with SGLang's own objects.
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "bind_numbers.hpp"
#include "docstrings_sglang.hpp"
#include "engine_nodes.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

// Tokens, or states, as pages of the tree: what is wanted rounded up, what is free rounded down.
enum class Rounded { UP, DOWN };

Counts pages_of(const EngineNodes& self, nb::handle tokens, Rounded rounded) {
    Counts pages;
    for (const Component each : ALL_COMPONENTS) {
        const int64_t given = whole_number(nb::object(tokens[static_cast<size_t>(each)]), "tokens");
        const int64_t size = self.page_tokens(each);
        pages[each] = given / size + (rounded == Rounded::UP && given % size != 0 ? 1 : 0);
    }
    return pages;
}

nb::tuple room_of(const EngineNodes& self, const HostRoom& room) {
    const Freed device = freed_of(self, room.freed, GPU), host = freed_of(self, room.freed, CPU);
    return nb::make_tuple(device.slots, host.slots, host.amounts, room.reclaimed, room.fits);
}

nb::tuple do_make_room(EngineNodes& self, nb::handle wanted, nb::handle free) {
    CacheCore& cache = self.nodes.core;
    return room_of(self, cache.operate(Operation::EVICT_HOST, [&] {
        return make_host_room(cache.state, pages_of(self, wanted, Rounded::UP),
                              pages_of(self, free, Rounded::DOWN));
    }));
}

nb::tuple do_make_room_for(EngineNodes& self, nb::handle nodes, nb::handle free, bool locks) {
    CacheCore& cache = self.nodes.core;
    bool pools[COMPONENTS];
    for (const Component each : ALL_COMPONENTS) pools[each] = self.slots[each][CPU].is_there();
    return room_of(self, cache.operate(Operation::EVICT_HOST, [&] {
        return make_host_room_for(cache.state, nodes_at(cache.state, nodes), pools,
                                  pages_of(self, free, Rounded::DOWN), locks);
    }));
}

nb::tuple do_read_for_backup(EngineNodes& self, nb::handle nodes) {
    const PairedSlots found = self.nodes.core.look([&] {
        const State& state = self.nodes.core.state;
        return slots_to_back_up(state, nodes_at(state, nodes));
    });
    const Slots& full = self.slots[FULL][GPU];
    return nb::make_tuple(full.get_or_none(found.slots.of[FULL]), full.get_or_none(found.paired),
                          self.slots[MAMBA][GPU].get_or_none(found.slots.of[MAMBA]));
}

nb::tuple do_read_for_load(EngineNodes& self, uint64_t end) {
    const NodeSlots found = self.nodes.core.look([&] {
        const State& state = self.nodes.core.state;
        return slots_to_load(state, node_at(state, end));
    });
    const auto on_host = [&](Component component) {
        return self.slots[component][CPU].get_or_none(found.of[component]);
    };
    return nb::make_tuple(on_host(FULL), on_host(SWA), on_host(MAMBA));
}

// The token slots on a medium that a copy writes, by component; None for one that it leaves out.
class Target {
  public:
    Target(const EngineNodes& self, Medium medium, nb::handle full, nb::handle swa,
           nb::handle states)
        : self_(self), medium_(medium), given_{full, swa, states} {
        for (const Component each : ALL_COMPONENTS) {
            wanted[each] = !given_[each].is_none();
            if (wanted[each] && slots(each).table() != nullptr) {
                numbers_[each] = int64s_of(given_[each]);
            }
        }
    }

    bool wanted[COMPONENTS];

    // Set the tables of this module; those of Python's wait for `finish`. Throws: BadArgument, also
    // where those would have too few slots.
    void put(const SlotLists& rows) const {
        for (const Component each : ALL_COMPONENTS) {
            if (const std::optional<Int64s>& numbers = numbers_[each]) {
                put_pages(*slots(each).table(), rows[each], *numbers, 0);
            } else if (wanted[each]) {
                const auto given = static_cast<int64_t>(nb::len(given_[each]));
                require_pages(self_.page_tokens(each), rows[each], given, 0);
            }
        }
    }

    void finish(const NodeSlots& placed) const {
        for (const Component each : ALL_COMPONENTS) {
            const Runs& rows = placed.of[each];
            if (!rows || numbers_[each] || !slots(each).is_there()) continue;
            nb::list parts;
            parts.append(nb::make_tuple(0, rows));
            slots(each).put(parts, given_[each]);
        }
    }

  private:
    const Slots& slots(Component component) const { return self_.slots[component][medium_]; }

    const EngineNodes& self_;
    const Medium medium_;
    const nb::handle given_[COMPONENTS];
    std::optional<Int64s> numbers_[COMPONENTS];
};

std::vector<uint64_t> do_add_host_copy(EngineNodes& self, nb::handle nodes, nb::handle full,
                                       nb::handle swa, nb::handle states) {
    const Target target(self, CPU, full, swa, states);
    const HostCopied copied = self.nodes.core.operate(Operation::COMMIT_HOST, [&] {
        State& state = self.nodes.core.state;
        return add_host_copy(state, nodes_at(state, nodes), target.wanted,
                             [&](const SlotLists& rows) { target.put(rows); });
    });
    target.finish(copied.slots);
    return copied.stored;
}

nb::object do_add_device_copy(EngineNodes& self, uint64_t end, nb::handle full, nb::handle swa,
                              nb::handle states) {
    const Target target(self, GPU, full, swa, states);
    const PairedSlots copied = self.nodes.core.operate(Operation::LOAD_BACK, [&] {
        State& state = self.nodes.core.state;
        return add_device_copy(state, node_at(state, end), target.wanted,
                               [&](const SlotLists& rows) { target.put(rows); });
    });
    target.finish(copied.slots);
    return self.slots[FULL][GPU].get_or_none(copied.paired);
}

}  // namespace

void bind_engine_copies(nb::class_<EngineNodes>& nodes) {
    const auto add = [&nodes](const char* name, auto function, const Docstring& doc,
                              const auto&... arguments) {
        nodes.def(name, function, arguments..., nb::sig(doc.signature), doc.text);
    };
    add("make_room", &do_make_room, docs::ENGINE_MAKE_ROOM, "wanted"_a, "free"_a);
    add("make_room_for", &do_make_room_for, docs::ENGINE_MAKE_ROOM_FOR, "nodes"_a, "free"_a,
        "locks"_a);
    add("read_for_backup", &do_read_for_backup, docs::ENGINE_READ_FOR_BACKUP, "nodes"_a);
    add("add_host_copy", &do_add_host_copy, docs::ENGINE_ADD_HOST, "nodes"_a, "full"_a.none(),
        "swa"_a.none(), "states"_a.none());
    add("read_for_load", &do_read_for_load, docs::ENGINE_READ_FOR_LOAD, "end"_a);
    add("add_device_copy", &do_add_device_copy, docs::ENGINE_ADD_DEVICE, "end"_a, "full"_a.none(),
        "swa"_a.none(), "states"_a.none());
}

}  // namespace kvcanon
