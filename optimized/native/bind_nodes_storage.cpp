// Binds what `Nodes` answers for storage below the host: hashes, tokens, holds and fetched pages.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind_numbers.hpp"
#include "bind_rows.hpp"
#include "docstrings_nodes.hpp"
#include "errors.hpp"
#include "fetched.hpp"
#include "host_hold.hpp"
#include "nodes_view.hpp"
#include "storage_hashes.hpp"
#include "tree.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

nb::str hex_of(const uint8_t* hash) {
    static constexpr char digits[] = "0123456789abcdef";
    char text[2 * HASH_BYTES];
    for (size_t at = 0; at < HASH_BYTES; ++at) {
        text[2 * at] = digits[hash[at] >> 4];
        text[2 * at + 1] = digits[hash[at] & 15];
    }
    return nb::str(text, sizeof text);
}

nb::list do_storage_hashes(NodesView& self, uint64_t end, std::optional<uint64_t> above) {
    return self.core.look([&] {
        State& state = self.core.state;
        Node* node = node_at(state, end);
        const Node* top = above ? node_at(state, *above) : node->parent;
        std::vector<const Node*> path;
        for (const Node* each = node; each != top; each = each->parent) {
            if (each->parent == nullptr) {
                if (!above) break;
                throw BadArgument("above", "is not above the node");
            }
            path.push_back(each);
        }
        hash_for_storage(state, node);
        nb::list hashes;
        for (; !path.empty(); path.pop_back()) {
            const Node* each = path.back();
            for (int32_t page = 0; page < each->pages; ++page) {
                hashes.append(hex_of(storage_hash(each, page)));
            }
        }
        return hashes;
    });
}

nb::object do_last_storage_hash(NodesView& self, uint64_t node) {
    return self.core.look([&]() -> nb::object {
        State& state = self.core.state;
        const Node* end = node_at(state, node);
        if (end->parent == nullptr) return nb::none();
        hash_for_storage(state, end);
        return hex_of(storage_hash(end, end->pages - 1));
    });
}

// The tokens of a node as 64-bit numbers. Where a unit is a bigram, those of its prompt.
nb::bytes do_tokens(NodesView& self, uint64_t node) {
    return self.core.look([&] {
        const State& state = self.core.state;
        const Node* found = node_at(state, node);
        const bool bigrams = state.config.page_words != state.config.page_size;
        const size_t step = bigrams ? 2 : 1;
        const auto count =
            static_cast<size_t>(found->pages) * static_cast<size_t>(state.config.page_words);
        std::vector<int64_t> tokens;
        if (count != 0) {
            const uint32_t* words = state.words(found);
            for (size_t at = 0; at < count; at += step) tokens.push_back(words[at]);
            if (bigrams) tokens.push_back(words[count - 1]);
        }
        return nb::bytes(reinterpret_cast<const char*>(tokens.data()),
                         tokens.size() * sizeof(int64_t));
    });
}

int64_t do_namespace_of(NodesView& self, uint64_t node) {
    return self.core.look([&] {
        const State& state = self.core.state;
        return state.namespaces->number_of(node_at(state, node)->namespace_id);
    });
}

uint64_t do_hold_host(NodesView& self, uint64_t node) {
    return self.core.operate(Operation::LOCK, [&] {
        State& state = self.core.state;
        return hold_on_host(state, node_at(state, node));
    });
}

void do_release_host(NodesView& self, uint64_t node, nb::handle receipt) {
    self.core.operate(Operation::UNLOCK, [&] {
        State& state = self.core.state;
        const uint64_t number = receipt_number(receipt);
        release_on_host(state, node_at(state, node), number);
    });
}

nb::object do_take_fetched(NodesView& self, uint64_t above, nb::handle tokens,
                           nb::handle namespace_number) {
    return fetched_of(self.core.operate(Operation::INSERT_HOST, [&] {
        State& state = self.core.state;
        const GivenKey given = prompt_key(self.core, tokens, namespace_number);
        return take_fetched(state, node_at(state, above), given.key);
    }));
}

nb::tuple do_take_fetched_window(NodesView& self, uint64_t above, uint64_t end, nb::handle pages) {
    return window_of(self.core.operate(Operation::INSERT_HOST, [&] {
        State& state = self.core.state;
        const int64_t count = whole_number(pages, "pages");
        return take_fetched_window(state, node_at(state, above), node_at(state, end), count);
    }));
}

nb::object do_take_fetched_state(NodesView& self, uint64_t end) {
    return rows_or_none(self.core.operate(Operation::INSERT_HOST, [&] {
        State& state = self.core.state;
        return take_fetched_state(state, node_at(state, end));
    }));
}

}  // namespace

void bind_nodes_storage(nb::class_<NodesView>& nodes) {
    const auto add = [&nodes](const char* name, auto function, const Docstring& doc,
                              const auto&... arguments) {
        nodes.def(name, function, arguments..., nb::sig(doc.signature), doc.text);
    };
    add("storage_hashes", &do_storage_hashes, docs::NODES_STORAGE_HASHES, "end"_a,
        "above"_a.none() = nb::none());
    add("last_storage_hash", &do_last_storage_hash, docs::NODES_LAST_STORAGE_HASH, "node"_a);
    add("tokens", &do_tokens, docs::NODES_TOKENS, "node"_a);
    add("namespace_of", &do_namespace_of, docs::NODES_NAMESPACE_OF, "node"_a);
    add("hold_host", &do_hold_host, docs::NODES_HOLD_HOST, "node"_a);
    add("release_host", &do_release_host, docs::NODES_RELEASE_HOST, "node"_a, "receipt"_a);
    add("take_fetched", &do_take_fetched, docs::NODES_TAKE_FETCHED, "above"_a, "tokens"_a,
        "namespace"_a = 0);
    add("take_fetched_window", &do_take_fetched_window, docs::NODES_TAKE_WINDOW, "above"_a, "end"_a,
        "pages"_a);
    add("take_fetched_state", &do_take_fetched_state, docs::NODES_TAKE_STATE, "end"_a);
}

}  // namespace kvcanon
