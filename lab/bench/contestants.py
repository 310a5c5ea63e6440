"""Contestants: the reference, the optimized cache, the peers, and any cache by its factory.

A peer is measured in its own environment. A peer without one is left out, and the report says so;
nothing is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from attrs import Factory, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import RELEASES, Release
from kvcanon.lab.releases.environment import Peer, peers_in


@frozen
class Contestant:
    """A cache to measure."""

    name: str
    driver: str
    """A module of `drivers`."""
    options: Mapping[str, str] = Factory(dict)
    release: Release | None = None
    """The peer in whose environment it runs; None for this process's environment."""
    host_tier: bool = True
    """Whether its driver measures a host tier."""


SGLANG = RELEASES["sglang==0.5.23"]
VLLM = RELEASES["vllm==0.33.0"]
CONTESTANTS = {
    each.name: each
    for each in (
        Contestant("optimized", "optimized"),
        Contestant("reference", "tree", {"cache": "reference"}),
        Contestant("sglang-rust", "sglang", {"core": "rust"}, SGLANG),
        Contestant("sglang-python", "sglang", {"core": "python"}, SGLANG),
        Contestant("vllm", "vllm", {}, VLLM, host_tier=False),
    )
}


@frozen
class Field:
    """The contestants of one contest."""

    contestants: tuple[Contestant, ...]
    peers: Mapping[str, Peer]
    """The environments, by release."""
    missing: Mapping[str, str] = Factory(dict)
    """Contestants that were left out, with the reason."""

    def stubbed(self) -> dict[str, dict[str, str]]:
        """Return the stand-ins in the environments that are used, by release."""
        used = {each.release.name for each in self.contestants if each.release is not None}
        return {name: peer.stubbed for name, peer in self.peers.items() if name in used}


def field(names: list[str], folder: Path, *, host_tier: bool = False) -> Field:
    """Return the named contestants, or all that can be measured here if none is named.

    With `host_tier` they must have one.

    Raises:
        UsageError: one that was named cannot be measured.
    """
    peers = peers_in(folder)
    wanted = [contestant_named(name) for name in names] or list(CONTESTANTS.values())
    lacking = {
        each.name: "has no host tier" if host_tier and not each.host_tier else _lack(each, peers)
        for each in wanted
    }
    missing = {name: why for name, why in lacking.items() if why}
    if names and missing:
        raise UsageError("; ".join(f"{name}: {why}" for name, why in missing.items()))
    there = tuple(each for each in wanted if each.name not in missing)
    return Field(there, peers, missing)


def contestant_named(name: str) -> Contestant:
    """Return the contestant of this name. Raises: UsageError."""
    if name in CONTESTANTS:
        return CONTESTANTS[name]
    if ":" in name:
        return Contestant(name, "tree", {"cache": name})
    known = ", ".join(CONTESTANTS)
    raise UsageError(f"no cache {name!r}; name {known}, or one as package.module:factory")


def _lack(contestant: Contestant, peers: Mapping[str, Peer]) -> str:
    """Return why a contestant cannot be measured here; empty if it can."""
    release = contestant.release
    if release is not None:
        if release.name in peers:
            return ""
        return f"no environment; make it with `kvcanon lab peers make {release.name}`"
    if contestant.driver == "optimized":
        try:
            import_module("kvcanon.optimized")
        except ImportError as error:
            return str(error)
    return ""
