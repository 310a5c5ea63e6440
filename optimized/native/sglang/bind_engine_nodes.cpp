#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bind_arrays.hpp"
#include "bind_named_tuples.hpp"
#include "bind_numbers.hpp"
#include "bind_rows.hpp"
#include "docstrings_sglang.hpp"
#include "engine_nodes.hpp"
#include "errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

// Fields of SGLang's result of a match.
constexpr size_t MATCH_FIELDS = 14;

// Never released.
PyObject *inserted_type = nullptr, *evicted_type = nullptr, *to_copy_type = nullptr;

struct Names {
    Name key{"key"}, token_ids{"token_ids"}, extra_key{"extra_key"}, cache_salt{"cache_salt"},
        limit{"limit"}, prev_prefix_len{"prev_prefix_len"}, inserted_len{"inserted_len"},
        mamba_value{"mamba_value"}, priority{"priority"}, prompt{"prompt"},
        track_adopted_ranges{"track_adopted_ranges"}, swa_branching_seqlen{"swa_branching_seqlen"},
        follow_cuts{"follow_cuts"}, table{"table"}, get{"get"}, put_parts{"put_parts"};
};

const Names& names() {
    static const Names all;
    return all;
}

}  // namespace

Slots::Slots(nb::object given) : given_(std::move(given)) {
    if (given_.is_none()) return;
    const nb::object table = names().table.of(given_);
    if (!table.is_none()) table_ = nb::cast<RowTable*>(table);
}

nb::object Slots::get(const Runs& rows) const {
    if (table_ != nullptr) return slots_of_rows(*table_, rows);
    return names().get.of(given_)(rows);
}

nb::object Slots::get_or_none(const Runs& rows) const { return rows ? get(rows) : nb::none(); }

void Slots::put(nb::handle parts, nb::handle slots) const {
    names().put_parts.of(given_)(parts, slots);
}

namespace {

// The tokens of a key of SGLang, and the number of its namespace.
struct Prompt {
    nb::object tokens;
    nb::object namespace_number;
};

// `core` answers for keys that have a namespace or a limit, or are of bigrams.
Prompt prompt_of(const EngineNodes& self, nb::handle core, nb::handle key) {
    const Names& name = names();
    const bool is_plain = self.config().page_words == self.config().page_size &&
                          name.extra_key.of(key).is_none() && name.cache_salt.of(key).is_none() &&
                          name.limit.of(key).is_none();
    if (is_plain) return {name.token_ids.of(key), nb::int_(0)};
    const nb::object found = name.prompt.of(core)(key);
    return {nb::object(found[0]), nb::object(found[1])};
}

int64_t count_of(const Name& name, nb::handle params, const char* what) {
    const nb::object given = name.of(params);
    return given.is_none() ? 0 : whole_number(given, what);
}

// Where a state would have made a prefix longer; nothing where none can be kept there.
nb::object state_branch(const EngineNodes& self, int64_t walked, int64_t reached) {
    const int64_t aligned = walked / self.state_grid * self.state_grid;
    return aligned > reached ? nb::object(nb::int_(aligned)) : nb::object(nb::none());
}

// Most lists of a result are empty: an empty tuple stands for each, which takes no memory.
nb::object nothing() { return nb::steal(PyTuple_New(0)); }

template <typename Each, typename Listed>
nb::object list_or_nothing(const std::vector<Each>& given, Listed listed) {
    return given.empty() ? nothing() : nb::object(listed(given));
}

nb::object do_match(EngineNodes& self, nb::handle core, nb::handle params) {
    CacheCore& cache = self.nodes.core;
    const Prompt prompt = prompt_of(self, core, names().key.of(params));
    const NodeMatched found = cache.operate(Operation::MATCH, [&] {
        const GivenKey given = prompt_key(cache, prompt.tokens, prompt.namespace_number);
        return match_nodes(cache.state, given.key);
    });
    const int64_t size = self.config().page_size;
    const int64_t device = found.device_pages * size, reached = found.prefix_pages * size,
                  walked = found.walked_pages * size;
    const bool parts = walked > reached;
    const nb::object branch =
        parts && self.config().swa() ? nb::object(nb::int_(walked)) : nb::object(nb::none());
    const nb::object of_states =
        parts && self.config().mamba ? state_branch(self, walked, reached) : nb::object(nb::none());
    const nb::object last =
        found.last == handle_of(cache.state.root) ? nb::object(nb::none()) : nb::cast(found.last);
    nb::object actions = found.cuts.empty() ? nb::object(nb::list())
                                            : names().follow_cuts.of(core)(cuts_of(found.cuts));
    // In the order of SGLang's fields: after the prefix on the device its end, and twice the end of
    // all of it, as host node and as best match. All beyond the device is there after a load. The
    // last says nothing of a shorter prefix.
    return named_tuple(self.match.ptr(), device, found.device_end, found.end, found.end,
                       reached - device, found.host_only[SWA] * size, branch,
                       found.host_only[MAMBA], of_states, nb::none(), walked, actions, last,
                       nb::none());
}

nb::object do_slots(EngineNodes& self, uint64_t end, uint64_t above) {
    const Runs rows = self.nodes.core.look([&] {
        const State& state = self.nodes.core.state;
        return slots_between(node_at(state, end), node_at(state, above), FULL, GPU);
    });
    return self.slots[FULL][GPU].get(rows);
}

bool is_true(nb::handle given) {
    const int truth = PyObject_IsTrue(given.ptr());
    if (truth < 0) nb::raise_python_error();
    return truth != 0;
}

// The pages whose full data, and whose window data, the tree took.
nb::tuple adopted_pages(const NodeInserted& done) {
    nb::list full, windows;
    for (const auto* adopted : {&done.full, &done.healed}) {
        for (const Adopted& each : *adopted) {
            full.append(nb::make_tuple(each.begin, each.begin + each.rows.slots()));
        }
    }
    for (const AdoptedWindow& each : done.windows) {
        windows.append(nb::make_tuple(each.pages.begin, each.pages.end));
    }
    return nb::make_tuple(full, windows);
}

// Nodes whose windows came back take the request's full slots, whose windows SGLang's map has
// already; returns those that they had.
nb::object replace_healed(const EngineNodes& self, const std::vector<Adopted>& healed,
                          nb::handle slots, const std::optional<Int64s>& numbers) {
    if (healed.empty()) return nb::none();
    const Slots& full = self.slots[FULL][GPU];
    Runs rows;
    for (const Adopted& each : healed) rows.append(each.rows);
    nb::object had = full.get(rows);
    if (!numbers) {
        full.put(adopted_of(healed), slots);
        return had;
    }
    for (const Adopted& each : healed) put_pages(*full.table(), each.rows, *numbers, each.begin);
    return had;
}

// Windows that came back where a lock holds the full slots: the lowest node, those slots, and
// pages.
nb::list locked_windows(EngineNodes& self, const std::vector<AdoptedWindow>& windows) {
    nb::list listed;
    for (const AdoptedWindow& each : windows) {
        if (!each.locked) continue;
        listed.append(nb::make_tuple(each.end, do_slots(self, each.end, each.above),
                                     each.pages.begin, each.pages.end));
    }
    return listed;
}

// SGLang's result of an insert that leaves nothing to do but to free what nodes had before.
nb::object inserted_whole(const EngineNodes& self, const NodeInserted& done,
                          const nb::object& replaced) {
    nb::list actions;
    if (!replaced.is_none()) {
        nb::list freed;
        freed.append(replaced);
        actions.append(self.free_slots(freed, self.kinds[FULL]));
    }
    // In the order of SGLang's fields: the prefix, the total, and the end.
    const int64_t prefix = done.walked_pages * self.page_tokens(FULL);
    return self.insert_step(actions, self.insert(prefix, 0, done.end));
}

nb::object do_insert(EngineNodes& self, nb::handle core, nb::handle params, nb::handle slots,
                     int64_t freed_window_tokens) {
    CacheCore& cache = self.nodes.core;
    const Names& name = names();
    const Prompt prompt = prompt_of(self, core, name.key.of(params));
    const int64_t size = self.config().page_size;
    const int64_t prefix = count_of(name.prev_prefix_len, params, "prev_prefix_len"),
                  counted = count_of(name.inserted_len, params, "inserted_len");
    Offered offered;
    offered.state = self.config().mamba && !name.mamba_value.of(params).is_none();
    offered.priority = count_of(name.priority, params, "priority");
    const bool asks_pages = is_true(name.track_adopted_ranges.of(params)),
               has_hint = !name.swa_branching_seqlen.of(params).is_none();
    RowTable* table = self.slots[FULL][GPU].table();
    const std::optional<Int64s> numbers = table == nullptr ? std::nullopt : int64s_of(slots);
    OnRows on_rows;
    if (numbers) {
        on_rows = [&](int64_t first, const Runs& rows) {
            put_pages(*table, rows, *numbers, first);
        };
    }
    const std::optional<NodeInserted> inserted =
        cache.operate(Operation::INSERT, [&]() -> std::optional<NodeInserted> {
            const GivenKey given = prompt_key(cache, prompt.tokens, prompt.namespace_number);
            const int64_t pages = given.key.pages;
            if (pages == 0) return {};
            const auto up_to = [&](int64_t tokens) {
                return std::min(pages, tokens / size + (tokens % size != 0 ? 1 : 0));
            };
            offered.owned_pages = up_to(prefix);
            offered.window_from = up_to(freed_window_tokens);
            offered.counted_pages = std::min(pages, counted / size);
            return insert_nodes(cache.state, given.key, offered, on_rows);
        });
    if (!inserted) return nb::none();
    const NodeInserted& done = *inserted;
    if (!numbers && !done.full.empty()) self.slots[FULL][GPU].put(adopted_of(done.full), slots);
    const nb::object replaced = replace_healed(self, done.healed, slots, numbers);
    const bool is_locked = std::any_of(done.windows.begin(), done.windows.end(),
                                       [](const AdoptedWindow& each) { return each.locked; });
    // Copies to the host follow the cuts.
    const bool copies = self.config().host_tier() && !(done.wanted.empty() && done.cuts.empty());
    const bool has_rest = copies || is_locked || !done.duplicates.empty() || asks_pages ||
                          self.config().mamba || has_hint;
    if (!has_rest) return inserted_whole(self, done, replaced);
    return named_tuple(
        inserted_type, done.end, done.walked_pages,
        asks_pages ? nb::object(adopted_pages(done)) : nb::object(nb::none()), replaced,
        is_locked ? nb::object(locked_windows(self, done.windows)) : nothing(), state_row_of(done),
        list_or_nothing(done.duplicates, pages_of), copies ? nb::cast(done.wanted) : nothing(),
        done.wanted_end, copies ? nb::object(cuts_of(done.cuts)) : nothing());
}

void add_freed(const EngineNodes& self, Freed& freed, Component component, const Slots& from,
               const Runs& rows) {
    if (!rows || !from.is_there()) return;
    nb::list tensors;
    tensors.append(from.get(rows));
    freed.slots[self.kinds[component]] = tensors;
    freed.amounts[self.kinds[component]] = rows.slots() * self.page_tokens(component);
}

// What a victim needs on the host, in tokens and states, where SGLang has such slots there.
Counts needed_of(const EngineNodes& self, const Counts& lacks) {
    Counts needed;
    for (const Component each : ALL_COMPONENTS) {
        if (self.slots[each][CPU].is_there()) needed[each] = lacks[each] * self.page_tokens(each);
    }
    return needed;
}

nb::object do_evict_step(EngineNodes& self, nb::handle component, nb::handle amount,
                         bool together) {
    const Component of = component_of(component);
    const int64_t wanted = whole_number(amount, "amount"), size = self.page_tokens(of);
    if (wanted < 1) throw BadArgument("amount", "is " + std::to_string(wanted) + "; at least 1");
    CacheCore& cache = self.nodes.core;
    const EvictStep step = cache.operate(Operation::EVICT, [&] {
        return evict_step(cache.state, of, (wanted - 1) / size + 1, together);
    });
    if (step.copy_first) {
        return named_tuple(to_copy_type, step.node, step.whole && step.unbacked, step.with_it,
                           three_of(needed_of(self, step.lacks)));
    }
    const Freed device = freed_of(self, step.journal.freed, GPU),
                host = freed_of(self, step.journal.freed, CPU);
    // In the order of SGLang's fields: no action, no node to evict, and whether one left.
    return self.eviction_step(device.slots, host.slots, device.amounts, nb::list(), nb::none(),
                              step.node != 0, step.lost * self.config().page_size);
}

nb::object do_evict_node(EngineNodes& self, uint64_t node, nb::handle component) {
    CacheCore& cache = self.nodes.core;
    const EvictStep step = cache.operate(Operation::EVICT, [&] {
        return evict_node(cache.state, node_at(cache.state, node), component_of(component));
    });
    const Freed device = freed_of(self, step.journal.freed, GPU),
                host = freed_of(self, step.journal.freed, CPU);
    return named_tuple(evicted_type, device.slots, host.slots, device.amounts,
                       step.lost * self.config().page_size);
}

void find_results() {
    if (evicted_type != nullptr) return;
    const nb::module_ types = nb::module_::import_("kvcanon.optimized.native_types");
    inserted_type = nb::object(types.attr("PromptInserted")).release().ptr();
    to_copy_type = nb::object(types.attr("VictimToCopy")).release().ptr();
    // Last, since it says that all are there.
    evicted_type = nb::object(types.attr("SlotsEvicted")).release().ptr();
}

void make_engine_nodes(EngineNodes* self, nb::handle_t<NodesView> nodes, nb::handle results,
                       nb::handle kinds, nb::handle device_slots, nb::handle host_slots,
                       int64_t state_grid) {
    find_torch();
    find_results();
    const nb::object match(results[0]);
    if (nb::len(nb::object(nb::getattr(match, "_fields", nb::tuple()))) != MATCH_FIELDS) {
        throw BadArgument("results", "have no named tuple with SGLang's " +
                                         std::to_string(MATCH_FIELDS) + " fields of a match");
    }
    if (state_grid < 1) throw BadArgument("state_grid", "is less than 1");
    const auto at = [](nb::handle three, Component component) {
        return Slots(nb::object(three[static_cast<size_t>(component)]));
    };
    new (self) EngineNodes{nb::borrow(nodes),
                           *nb::inst_ptr<NodesView>(nodes),
                           match,
                           nb::object(results[1]),
                           nb::object(results[2]),
                           nb::object(results[3]),
                           nb::object(results[4]),
                           {nb::object(kinds[0]), nb::object(kinds[1]), nb::object(kinds[2])},
                           {{at(device_slots, FULL), at(host_slots, FULL)},
                            {at(device_slots, SWA), at(host_slots, SWA)},
                            {at(device_slots, MAMBA), at(host_slots, MAMBA)}},
                           state_grid};
}

}  // namespace

Freed freed_of(const EngineNodes& self, const Runs (&freed)[COMPONENTS][MEDIA], Medium medium) {
    Freed found;
    const Component of_window = medium == GPU ? FULL : SWA;
    add_freed(self, found, SWA, self.slots[of_window][medium], freed[SWA][medium]);
    add_freed(self, found, MAMBA, self.slots[MAMBA][medium], freed[MAMBA][medium]);
    add_freed(self, found, FULL, self.slots[FULL][medium], freed[FULL][medium]);
    return found;
}

void bind_engine_nodes(nb::module_& m) {
    nb::class_<EngineNodes> nodes(m, "EngineNodes", docs::ENGINE_NODES);
    nodes.def("__init__", &make_engine_nodes, "nodes"_a, "results"_a, "kinds"_a, "device_slots"_a,
              "host_slots"_a, "state_grid"_a, nb::sig(docs::ENGINE_NODES_INIT));
    const auto add = [&nodes](const char* name, auto function, const Docstring& doc,
                              const auto&... arguments) {
        nodes.def(name, function, arguments..., nb::sig(doc.signature), doc.text);
    };
    add("match", &do_match, docs::ENGINE_MATCH, "core"_a, "params"_a);
    add("insert", &do_insert, docs::ENGINE_INSERT, "core"_a, "params"_a, "slots"_a,
        "freed_window_tokens"_a);
    add("slots", &do_slots, docs::ENGINE_SLOTS, "end"_a, "above"_a);
    add("evict_step", &do_evict_step, docs::ENGINE_EVICT_STEP, "component"_a, "amount"_a,
        "together"_a = false);
    add("evict_node", &do_evict_node, docs::ENGINE_EVICT_NODE, "node"_a, "component"_a);
    bind_engine_copies(nodes);
}

}  // namespace kvcanon
