"""Ways to serve that are tried: their flags, without a server."""

from __future__ import annotations

from kvcanon.lab.servers.server_setup import Ports, ServerSetup, arguments
from kvcanon.lab.servers.tiny_model import FULL_MODEL
from kvcanon.lab.servers.tried_ways import WAYS
from paths import ROOT


def test_each_way_has_flags_of_its_own() -> None:
    """A way is known by its name, and adds flags to the usual ones."""
    assert len({way.name for way in WAYS}) == len(WAYS)
    for way in WAYS:
        setup = ServerSetup(FULL_MODEL, "kvcanon", way.host, events=False, flags=way.flags)
        given = arguments(setup, ROOT, Ports(1, 2, 3))
        assert given[-len(way.flags) :] == list(way.flags)
        assert way.flags[0] not in given[: -len(way.flags)]
