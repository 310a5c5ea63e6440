"""Keys and pages as text: a reader finds the prompt among the calls."""

from __future__ import annotations

from kvcanon.conformance.judge.explain import key_in_words, legend, with_names
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Counts, Key, Namespace

KEY = Key(((0,), (1,), (2,)), Namespace(lora="a"))


def test_a_key_is_written_as_python() -> None:
    """A key is the Python that makes it; a long one is cut."""
    names = {"Key": Key, "Namespace": Namespace}
    for key in (KEY, Key(((7, 8),)), Key((), Namespace(extra_key="", cache_salt="s"))):
        assert eval(key_in_words(key), names) == key  # noqa: S307  # As a reader would.
    long = key_in_words(Key(tuple((page,) for page in range(300))))
    assert long == "Key(((0,), (1,), (2,), (3,), ..., (298,), (299,)))"


def test_keys_and_their_prefixes_have_the_names_of_the_report() -> None:
    """The longest key is replaced first, and prefixes are named by the key."""
    text = f"page 0 of {key_in_words(KEY.prefix(1))} left before {key_in_words(KEY)}"
    other = Key(((0,),))
    named = with_names(f"{text}, and {key_in_words(other)}", {"key_1": KEY, "key_2": other})
    assert named == "page 0 of key_1.prefix(1) left before key_1, and key_2"


def test_the_legend_tells_nodes_and_hashes() -> None:
    """Each node and page hash that a text names is told: its prompt, and its slots."""
    cache = ReferenceCache(CacheConfig(device_slots=Counts(full=4)))
    cache.insert(KEY, 0, cache.allocate(Counts(full=3)))
    state = cache.snapshot()
    (node,) = state.below_root()
    short = page_hashes(namespace_seed(KEY.namespace), KEY.pages)[1].hex()[:8]
    told = legend(f"node {node.node_id} and page {short}; node 99 and node {state.root_id}", state)
    assert told == {
        f"node {node.node_id}": f"pages 0..2 of {key_in_words(KEY)}; full slots 0 1 2 on GPU",
        f"page {short}": f"page 1 of {key_in_words(KEY.prefix(2))}, in node {node.node_id}",
    }
