"""A case: a configuration, a list of actions, and the drain at its end. It is data, and JSON.

Every action is *total*: its picks are numbers, taken modulo the number of candidates, and an action
without candidates does nothing. So any part of a case is a case, which makes reducing easy.

An action is not an operation. `serve` is a whole request with five or more operations of the cache;
the cache's answers decide which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attrs import asdict, fields_dict, frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Counts, Medium

PICKS = 1 << 12
"""Picks are below this number."""

RANKS, MOST_RANKS = 3, 16
"""How many ranks a case of ranks has, and how many it may have."""

DRAIN = (FULL, SWA, MAMBA)


class Action(NamedTuple):
    """The name of an action, and three picks for it."""

    name: str
    a: int = 0
    b: int = 0
    c: int = 0


@frozen
class Case:
    """All that is needed to repeat a run."""

    config: CacheConfig
    actions: tuple[Action, ...]
    drain: tuple[Component, ...] = DRAIN
    """The order of components in which the drain evicts, slot by slot; empty for no drain.

    The first component hides the later ones: a leaf is evicted with the data of all components.
    """
    unobserved: bool = False
    """Whether black-box guards look at neither events nor free slots between the calls of clients.

    Looking may change a cache. They then check the events of many operations at once, when a client
    takes them, and count free slots by answers alone.
    """
    one_namespace: bool = False
    """Whether clients use the default namespace alone, though the cache offers others."""
    ranks: int = 1
    """How many ranks get the calls; their copies end at different times."""
    rank_apart: bool = False
    """Whether the last rank has a process of its own, with another seed of Python's hashes."""
    store: Medium | None = None
    """The medium of the store below the host tier; None without a store."""


def case_to_json(case: Case) -> dict[str, Any]:
    """Encode a case; fields of the configuration that have their default are left out."""
    usual = asdict(CacheConfig())
    config = {name: value for name, value in asdict(case.config).items() if value != usual[name]}
    unobserved = {"unobserved": True} if case.unobserved else {}
    alone = {"one_namespace": True} if case.one_namespace else {}
    ranks = {"ranks": case.ranks} if case.ranks > 1 else {}
    apart = {"rank_apart": True} if case.rank_apart else {}
    store = {} if case.store is None else {"store": case.store.value}
    return {
        "config": config,
        "actions": [list(action) for action in case.actions],
        "drain": [component.value for component in case.drain],
        **unobserved,
        **alone,
        **ranks,
        **apart,
        **store,
    }


def case_from_json(value: Mapping[str, Any]) -> Case:
    """Decode a case. Raises: BadArgument."""
    unknown = value.keys() - fields_dict(Case).keys()
    if unknown:
        raise BadArgument("case", f"has {', '.join(sorted(unknown))}, which no case has")
    drain = value.get("drain", [component.value for component in DRAIN])
    try:
        return Case(
            config_from_json(value.get("config", {})),
            tuple(_action(each) for each in value["actions"]),
            tuple(Component(each) for each in drain),
            bool(value.get("unobserved", False)),
            bool(value.get("one_namespace", False)),
            _ranks(value.get("ranks", 1)),
            bool(value.get("rank_apart", False)),
            Medium(value["store"]) if "store" in value else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadArgument("case", f"is no case: {type(error).__name__}: {error}") from error


def config_from_json(value: Mapping[str, Any]) -> CacheConfig:
    """Decode a configuration; missing fields have their defaults. Raises: BadArgument."""
    given = dict(value)
    unknown = given.keys() - fields_dict(CacheConfig).keys()
    if unknown:
        raise BadArgument("config", f"has {', '.join(sorted(unknown))}, which no config has")
    for pools in ("device_slots", "host_slots"):
        if pools in given:
            given[pools] = Counts(**given[pools])
    return CacheConfig(**given)


def _ranks(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST_RANKS:
        raise BadArgument("case", f"has {value!r} ranks; give 1 to {MOST_RANKS}")
    return value


def _action(value: Sequence[Any]) -> Action:
    name, *picks = value
    if not isinstance(name, str) or len(picks) > 3 or not all(isinstance(p, int) for p in picks):
        raise BadArgument("actions", f"{value!r} is not a name and up to three picks")
    return Action(name, *picks)
