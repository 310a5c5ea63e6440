"""Faults of a tree core, each of which the script must find.

A fault is planted around a core, in the calls by which SGLang uses it: what such a call takes or
returns is changed, as by a core with that fault. So a fault needs no build, and fits every core.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from attrs import Factory, define

Core = Any
"""A `UnifiedTreeCoreInterface` of SGLang, which has no types here."""
Fault = Callable[[Core], None]
Method = Callable[..., Any]


def faulty_factory(create: Method, fault: Fault) -> Method:
    """A function that makes tree cores with a fault."""

    def create_faulty(*given: object, **named: object) -> Core:
        core = create(*given, **named)
        fault(core)
        return core

    return create_faulty


def wrong_slot_after_split(core: Core) -> None:
    """The upper node of a split gets its last page's slots wrong."""
    nodes = SeenNodes()
    match, collect = core.match_prefix, core.collect_full_device_indices
    _watch_inserts(core, nodes)

    def match_prefix(params: object) -> object:
        result = match(params)
        nodes.matched(result.last_device_node)
        return result

    def collect_full_device_indices(node: int, until: int) -> object:
        slots = collect(node, until)
        if node not in nodes.split or len(slots) < 2 * core.page_size:
            return slots
        slots = slots.clone()
        slots[-core.page_size :] = slots[: core.page_size]
        return slots

    _replace(core, match_prefix, collect_full_device_indices)


def window_refreshed_too_far(core: Core) -> None:
    """A match makes recent not its own window alone, but that of every earlier end on its path."""
    ends = set[tuple[object, ...]]()
    match, begin = core.match_prefix, core.begin_insert

    def begin_insert(params: Any) -> object:  # noqa: ANN401
        ends.add(_named_tokens(params.key, len(params.key) // core.page_size * core.page_size))
        return begin(params)

    def match_prefix(params: Any) -> object:  # noqa: ANN401
        result = match(params)
        for length in range(core.page_size, result.device_prefix_len, core.page_size):
            if _named_tokens(params.key, length) in ends:
                match(_like(params, key=params.key[:length]))
        return match(params) if result.device_prefix_len else result

    _replace(core, begin_insert, match_prefix)


def load_back_one_page_off(core: Core) -> None:
    """Loaded pages are put into the tree one page off their place."""
    commit = core.commit_load_back

    def commit_load_back(node: int, slots: Any, *rest: object) -> object:  # noqa: ANN401
        return commit(node, slots.roll(core.page_size), *rest)

    _replace(core, commit_load_back)


def backup_one_page_off(core: Core) -> None:
    """A page is copied to the host from the slots of the page before it."""
    build = core.build_backup_spec

    def build_backup_spec(node: int) -> object:
        slots, others = build(node)
        return slots.roll(core.page_size), others

    _replace(core, build_backup_spec)


def namespace_ignored(core: Core) -> None:
    """Prompts of all namespaces share pages."""
    match, begin, root = core.match_prefix, core.begin_insert, core.root_node_handle

    def match_prefix(params: Any) -> object:  # noqa: ANN401
        return match(_like(params, key=_without_namespace(params.key)))

    def begin_insert(params: Any) -> object:  # noqa: ANN401
        return begin(_like(params, key=_without_namespace(params.key)))

    def root_node_handle(_extra_key: str | None = None) -> object:
        return root(None)

    _replace(core, match_prefix, begin_insert, root_node_handle)


def first_token_compared(core: Core) -> None:
    """Pages with the same first token are taken for one."""
    match, begin = core.match_prefix, core.begin_insert

    def match_prefix(params: Any) -> object:  # noqa: ANN401
        return match(_like(params, key=_by_first_tokens(params.key, core.page_size)))

    def begin_insert(params: Any) -> object:  # noqa: ANN401
        return begin(_like(params, key=_by_first_tokens(params.key, core.page_size)))

    _replace(core, match_prefix, begin_insert)


def hit_one_page_short(core: Core) -> None:
    """The last page of a hit is not found."""
    match = core.match_prefix

    def match_prefix(params: Any) -> object:  # noqa: ANN401
        result = match(params)
        shorter = result.device_prefix_len - core.page_size
        return match(_like(params, key=params.key[:shorter])) if shorter > 0 else result

    _replace(core, match_prefix)


def insert_swaps_pages(core: Core) -> None:
    """The last two pages of an insert are put into the tree in the wrong order."""
    begin = core.begin_insert

    def begin_insert(params: Any) -> object:  # noqa: ANN401
        size = core.page_size
        end = len(params.key) // size * size
        if params.value is None or end - params.prev_prefix_len < 2 * size:
            return begin(params)
        value = params.value.clone()
        first, second = slice(end - 2 * size, end - size), slice(end - size, end)
        value[first], value[second] = params.value[second], params.value[first]
        return begin(_like(params, value=value))

    _replace(core, begin_insert)


def lock_forgotten(core: Core) -> None:
    """A running request's prefix is not locked, so it can be evicted."""
    lock, unlock = core.inc_lock_ref, core.dec_lock_ref

    def inc_lock_ref(node: int, *given: object, **named: object) -> object:
        receipt = lock(node, *given, **named)
        unlock(node, receipt.to_dec_params())
        return receipt

    def dec_lock_ref(*_given: object, **_named: object) -> object:
        return import_module(_BASE).DecLockRefResult(delta=0)

    _replace(core, inc_lock_ref, dec_lock_ref)


def recency_of_another(core: Core) -> None:
    """A match also makes recent what was matched first of all."""
    match, reset = core.match_prefix, core.reset
    first: list[Any] = []

    def match_prefix(params: Any) -> object:  # noqa: ANN401
        if not first and len(params.key) >= core.page_size:
            length = len(params.key) // core.page_size * core.page_size
            first.append(_like(params, key=params.key[:length]))
        result = match(params)
        if first and not result.cache_actions:
            match(first[0])
        return result

    def forget() -> object:
        first.clear()
        return reset()

    forget.__name__ = "reset"
    _replace(core, match_prefix, forget)


def host_hit_forgotten(core: Core) -> None:
    """What is on the host alone is not found."""
    match = core.match_prefix

    def match_prefix(params: object) -> object:
        result = match(params)
        here = result.last_device_node
        return result._replace(
            host_hit_length=0, swa_host_hit_length=0, last_host_node=here, best_match_node=here
        )

    _replace(core, match_prefix)


def removals_lost(core: Core) -> None:
    """Of two removal events of a step, the second is lost."""
    take = core.take_events

    def take_events() -> list[object]:
        events = take()
        removals = [event for event in events if type(event).__name__ == "BlockRemoved"]
        return [event for event in events if event not in removals[1:]]

    _replace(core, take_events)


FAULTS: Mapping[str, Fault] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        wrong_slot_after_split,
        window_refreshed_too_far,
        load_back_one_page_off,
        backup_one_page_off,
        namespace_ignored,
        first_token_compared,
        hit_one_page_short,
        insert_swaps_pages,
        lock_forgotten,
        recency_of_another,
        host_hit_forgotten,
        removals_lost,
    )
}
"""The faults, by name."""

_BASE = "sglang.srt.mem_cache.base_prefix_cache"


@define
class SeenNodes:
    """The nodes of a tree that are known to have come of an insert, and those that have not."""

    inserted: set[int] = Factory(set)
    split: set[int] = Factory(set)

    def matched(self, node: int) -> None:
        """Look at the end of a match: an end that no insert had is that of a split."""
        if node not in self.inserted:
            self.split.add(node)


def _watch_inserts(core: Core, nodes: SeenNodes) -> None:
    begin, resume = core.begin_insert, core.resume_insert

    def noted(step: Any) -> object:  # noqa: ANN401
        if step.result is not None:
            nodes.inserted.add(step.result.last_device_node)
        return step

    def begin_insert(params: object) -> object:
        return noted(begin(params))

    def resume_insert() -> object:
        return noted(resume())

    _replace(core, begin_insert, resume_insert)


def _replace(core: Core, *methods: Method) -> None:
    """Put methods in the place of those of the same names."""
    for method in methods:
        setattr(core, method.__name__, method)


def _like(params: Any, **changes: object) -> object:  # noqa: ANN401
    """Copy the arguments of a call with changes."""
    return import_module("dataclasses").replace(params, **changes)


def _named_tokens(key: Any, length: int) -> tuple[object, ...]:  # noqa: ANN401
    return (key.extra_key, key.cache_salt, *key.raw_token_ids()[:length])


def _without_namespace(key: Any) -> object:  # noqa: ANN401
    return type(key)(key.token_ids, None, key.is_bigram, key.limit, None)


def _by_first_tokens(key: Any, size: int) -> object:  # noqa: ANN401
    """The key with each token made the first of its page."""
    given = key.token_ids
    tokens = [given[at - at % size] for at in range(len(given))]
    same = array(given.typecode, tokens) if isinstance(given, array) else type(given)(tokens)
    return type(key)(same, key.extra_key, key.is_bigram, key.limit, key.cache_salt)
