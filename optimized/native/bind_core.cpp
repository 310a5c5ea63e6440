#include "bind_core.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>

#include "bind_errors.hpp"
#include "bind_numbers.hpp"
#include "bind_reprs.hpp"
#include "cache_core.hpp"
#include "docstrings.hpp"
#include "docstrings_nodes.hpp"
#include "emit.hpp"
#include "enum_values.hpp"
#include "nodes_view.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

constexpr int64_t MOST_SLOTS = std::numeric_limits<Slot>::max();
// Besides, there are the root, and nodes that are made while others leave.
constexpr int64_t MOST_FULL_SLOTS = (int64_t{1} << HANDLE_INDEX_BITS) - 1024;

// Receipts of different caches differ, so that a cache does not accept the receipt of another.
uint64_t next_serial() {
    static uint64_t serial = 0;
    return serial++ & 0x7fffff;
}

void require(bool holds, const char* argument, int64_t number, const char* limits) {
    if (holds) return;
    throw BadArgument(argument, "is " + std::to_string(number) + "; it must be " + limits);
}

Counts pool_sizes(const nb::tuple& slots, const char* argument) {
    if (slots.size() != COMPONENTS)
        throw BadArgument(argument, "must be three numbers: full, swa, mamba");
    Counts counts;
    for (const Component component : ALL_COMPONENTS) {
        counts[component] = whole_number(slots[static_cast<size_t>(component)], argument);
        require(0 <= counts[component] && counts[component] <= MOST_SLOTS, argument,
                counts[component], "at least 0 and at most 2**31 - 1");
    }
    return counts;
}

void make_core(CacheCore* self, nb::handle page_units, int64_t unit_words, int64_t window_tokens,
               bool mamba, const nb::tuple& device_slots, const nb::tuple& host_slots,
               int write_policy, int eviction_policy, int64_t load_back_threshold_pages,
               bool events, int64_t max_pending_events, nb::object engine, int tag_bits,
               const nb::tuple& padding_slots, bool caller_copies, std::optional<int> store) {
    const int64_t page_size = whole_number(page_units, "page_size");
    require(unit_words == 1 || unit_words == 2, "unit_words", unit_words, "1 or 2");
    require(1 <= page_size && page_size <= MOST_PAGE_WORDS / 2, "page_size", page_size,
            "at least 1 and at most 2**29");
    require(0 <= window_tokens && window_tokens <= MOST_WINDOW_TOKENS, "window_tokens",
            window_tokens, "at least 0 and at most 2**60");
    require(0 <= load_back_threshold_pages, "load_back_threshold_pages", load_back_threshold_pages,
            "at least 0");
    require(0 <= write_policy && write_policy <= static_cast<int>(WritePolicy::WRITE_BACK),
            "write_policy", write_policy, "an index into _core.ENUMS");
    require(0 <= eviction_policy && eviction_policy <= static_cast<int>(EvictionPolicy::PRIORITY),
            "eviction_policy", eviction_policy, "an index into _core.ENUMS");
    require(1 <= max_pending_events, "max_pending_events", max_pending_events, "at least 1");
    const int first_store = static_cast<int>(DISK), last_store = static_cast<int>(EXTERNAL);
    require(!store || (first_store <= *store && *store <= last_store), "store", store.value_or(0),
            "None, or an index into _core.ENUMS of DISK or EXTERNAL");
    require(0 < tag_bits && tag_bits <= 32, "tag_bits", tag_bits, "1 to 32");
    Config config;
    config.page_size = static_cast<int32_t>(page_size);
    config.page_words = static_cast<int32_t>(page_size * unit_words);
    config.unit_words = static_cast<int32_t>(unit_words);
    config.window_tokens = window_tokens;
    config.mamba = mamba;
    config.device_slots = pool_sizes(device_slots, "device_slots");
    config.host_slots = pool_sizes(host_slots, "host_slots");
    // Each node but the root has full pages of its own.
    const int64_t pages = config.device_slots[FULL] + config.host_slots[FULL];
    require(
        pages <= MOST_FULL_SLOTS, "device_slots", pages,
        "at most 2**27 - 1024 for full data, with those of the host: handles name no more nodes");
    config.padding_slots = pool_sizes(padding_slots, "padding_slots");
    for (const Component component : ALL_COMPONENTS) {
        require(config.padding(component, GPU) <= config.capacity(component, GPU), "padding_slots",
                config.padding(component, GPU), "at most the pool's device slots");
    }
    config.write_policy = static_cast<WritePolicy>(write_policy);
    config.eviction_policy = static_cast<EvictionPolicy>(eviction_policy);
    config.load_back_threshold_pages = load_back_threshold_pages;
    config.events = events;
    config.max_pending_events = max_pending_events;
    config.tag_bits = tag_bits;
    config.caller_copies = caller_copies;
    config.has_store = store.has_value();
    if (store) config.store_medium = static_cast<Medium>(*store);
    if (config.host_tier() && engine.is_none() && !caller_copies) {
        throw BadArgument("engine", "is None; a cache with a host tier needs one");
    }
    if (config.has_store && !config.host_tier()) {
        throw BadArgument("store", "needs a host tier above it; choose a write policy");
    }
    if (config.has_store && (config.swa() || config.mamba)) {
        throw BadArgument("store", "keeps full data alone; leave it out, or windows and states");
    }
    new (self) CacheCore(config, std::move(engine));
    self->state.serial = next_serial();
    emit_cleared(self->state);
}

// The number of a namespace, and the numbers of those that were forgotten for it.
nb::tuple add_namespace(CacheCore& core, const nb::bytes& encoded, const nb::bytes& seed,
                        const nb::bytes& storage_seed) {
    const auto check = [](const char* name, const nb::bytes& given) {
        if (given.size() == 0 || given.size() == HASH_BYTES) return;
        throw BadArgument(name, "must have 32 bytes, or none for the default namespace");
    };
    check("seed", seed);
    check("storage_seed", storage_seed);
    return core.look([&] {
        Namespaces& all = *core.state.namespaces;
        const std::string name(encoded.c_str(), encoded.size());
        if (const auto known = all.find(name)) {
            all.use(*known);
            return nb::make_tuple(all.number_of(*known), nb::list());
        }
        const std::vector<int64_t> forgotten = all.next_forgotten();
        const uint32_t added =
            all.add(name, reinterpret_cast<const uint8_t*>(seed.c_str()), seed.size());
        all.seed_storage(added, reinterpret_cast<const uint8_t*>(storage_seed.c_str()),
                         storage_seed.size());
        return nb::make_tuple(all.number_of(added), forgotten);
    });
}

// Whether a number is that of a namespace that was not forgotten. It counts as used, then.
bool use_namespace(CacheCore& core, int64_t number) {
    return core.look([&] {
        const std::optional<uint32_t> index = core.state.namespaces->index_of(number);
        if (index) core.state.namespaces->use(*index);
        return index.has_value();
    });
}

// The engine may refer back to the cache: Python's garbage collector must see that cycle.

nb::object& reference_of(CacheCore* core) { return core->engine.object(); }

nb::object& reference_of(TreeView* tree) { return tree->owner; }

nb::object& reference_of(TierView* tier) { return tier->owner; }

nb::object& reference_of(NodesView* nodes) { return nodes->owner; }

template <typename Type>
int visit(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    const nb::handle referred = reference_of(nb::inst_ptr<Type>(self));
    Py_VISIT(referred.ptr());
    return 0;
}

template <typename Type>
int clear(PyObject* self) {
    if (nb::inst_ready(self)) reference_of(nb::inst_ptr<Type>(self)).reset();
    return 0;
}

template <typename Type>
PyType_Slot collected[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit<Type>)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear<Type>)},
                           {0, nullptr}};

// Debuggers and failed assertions also show a cache whose constructor raised.
std::string repr_of_core(nb::handle_t<CacheCore> self) {
    const nb::str name = nb::borrow<nb::str>(self.type().attr("__name__"));
    if (!nb::inst_ready(self)) return std::string("<") + name.c_str() + ": not made>";
    return repr_of(name.c_str(), *nb::inst_ptr<CacheCore>(self));
}

// The values of each enum that kvcanon.spec has too, by its name there.
nb::dict enums() {
    nb::dict found;
    const auto add = [&found](const char* name, const auto& values) {
        nb::list listed;
        for (const char* value : values) listed.append(value);
        found[name] = nb::tuple(listed);
    };
    add("Component", COMPONENT_VALUES);
    add("Medium", MEDIUM_VALUES);
    add("Direction", DIRECTION_VALUES);
    add("TransferStatus", STATUS_VALUES);
    add("LoadDecision", LOAD_DECISION_VALUES);
    add("WritePolicy", WRITE_POLICY_VALUES);
    add("EvictionPolicy", EVICTION_POLICY_VALUES);
    add("EventKind", EVENT_KIND_VALUES);
    return found;
}

}  // namespace

void bind_core(nb::module_& m) {
    bind_errors();
    watch_forks();
    bind_outcomes(m);
    m.attr("ENUMS") = enums();
    m.attr("HASH_BYTES") = HASH_BYTES;
    m.attr("MAX_IDLE_NAMESPACES") = Namespaces::MOST_IDLE;
    m.attr("MAX_SLOTS") = MOST_SLOTS;
    m.attr("MAX_WINDOW_TOKENS") = MOST_WINDOW_TOKENS;
    nb::class_<CacheCore> core(m, "CacheCore", nb::type_slots(collected<CacheCore>),
                               docs::CACHE_CORE);
    core.def("__init__", &make_core, nb::kw_only(), "page_size"_a, "unit_words"_a,
             "window_tokens"_a, "mamba"_a, "device_slots"_a, "host_slots"_a, "write_policy"_a,
             "eviction_policy"_a, "load_back_threshold_pages"_a, "events"_a,
             "max_pending_events"_a = Config().max_pending_events, "engine"_a.none() = nb::none(),
             "tag_bits"_a = 32, "padding_slots"_a = nb::make_tuple(0, 0, 0),
             "caller_copies"_a = false, "store"_a.none() = nb::none(),
             nb::sig(docs::CACHE_CORE_INIT));
    core.def("__repr__", &repr_of_core);
    core.def("_close", [](CacheCore& self) { self.closed = true; }, "Refuse all later calls.");
    core.def(
        "_detach", [](CacheCore& self, bool detached) { self.detached = detached; }, "detached"_a,
        "Refuse calls that give or fill device slots, or accept them again.");
    core.def(
        "_add_namespace",
        [](CacheCore& self, const nb::bytes& encoded, const nb::bytes& seed) {
            return add_namespace(self, encoded, seed, nb::bytes("", 0));
        },
        "encoded"_a, "seed"_a,
        nb::sig("def _add_namespace(self, encoded: bytes, seed: bytes) -> "
                "tuple[int, list[int]]"),
        "Return the number of a namespace, and the numbers that were forgotten for it.");
    core.def("_use_namespace", &use_namespace, "number"_a,
             "Return whether a number is that of a namespace that was not forgotten, and use it.");
    nb::class_<TreeView> tree(m, "Tree", nb::type_slots(collected<TreeView>),
                              "What snapshots, metrics and tests read of a cache.");
    tree.def(
        "__init__",
        [](TreeView* self, nb::handle_t<CacheCore> cache) {
            new (self) TreeView(nb::borrow(cache));
        },
        "cache"_a);
    nb::class_<NodesView> nodes(m, "Nodes", nb::type_slots(collected<NodesView>), docs::NODES);
    nodes.def(
        "__init__",
        [](NodesView* self, nb::handle_t<CacheCore> cache) {
            if (!nb::inst_ptr<CacheCore>(cache)->engine.object().is_none()) {
                throw BadArgument("cache", "has an engine; the caller of `Nodes` copies itself");
            }
            find_node_results();
            new (self) NodesView(nb::borrow(cache));
        },
        "cache"_a);
    bind_nodes(m, nodes);
    nodes.def(
        "add_namespace",
        [](NodesView& self, const nb::bytes& encoded, const nb::bytes& seed,
           const nb::bytes& storage_seed) {
            return add_namespace(self.core, encoded, seed, storage_seed);
        },
        "encoded"_a, "seed"_a, "storage_seed"_a = nb::bytes("", 0),
        nb::sig(docs::NODES_ADD_NAMESPACE.signature), docs::NODES_ADD_NAMESPACE.text);
    nodes.def(
        "use_namespace",
        [](NodesView& self, int64_t number) { return use_namespace(self.core, number); },
        "number"_a, nb::sig(docs::NODES_USE_NAMESPACE.signature), docs::NODES_USE_NAMESPACE.text);
    bind_operations(core);
    bind_events(m, core, tree);
    bind_packed_events(m, core);
    nb::class_<TierView> tier(m, "Tier", nb::type_slots(collected<TierView>),
                              "What a cache decides about the store below its host tier.");
    tier.def(
        "__init__",
        [](TierView* self, nb::handle_t<CacheCore> cache) {
            if (!nb::inst_ptr<CacheCore>(cache)->state.config.has_store) {
                throw BadArgument("cache", "has no store below its host tier");
            }
            new (self) TierView(nb::borrow(cache));
        },
        "cache"_a);
    bind_tier(m, tier);
    bind_inspection(tree);
}

}  // namespace kvcanon
