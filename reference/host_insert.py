"""Host insert: pages that were fetched from storage find their place on the host.

Nodes that are on the device only are *refilled*: they get a host copy from the fetched bytes. What
is not in the tree becomes a new node, on the host only.

What readers get wrong: fetched pages are worth nothing behind a gap. Where the parents of a host
copy must have one too, everything below the first page without a host copy is dropped.
"""

from __future__ import annotations

from kvcanon.reference.announce import announce_stored
from kvcanon.reference.host import make_host_room
from kvcanon.reference.slots import place
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import add_leaf, node_ending_at, path_to, walk, walked_pages
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.oracle.cutting import split
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, Key
