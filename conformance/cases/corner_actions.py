"""Corner actions: lawful calls that engines make, and that the other actions hardly ever do.

They hand over parts of what a request could have: window slots for some pages only, no mamba state,
or several. They settle copies by name, serve tenants whose namespaces differ in one field, and read
slots on the host.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.cases.client import ActionKind, Client, ClientRequest, enter
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, MAMBA, SWA, Counts, Key, Namespace, Slots

CORNER: dict[str, ActionKind] = {}
"""Every corner action by name."""

_SOME = Namespace(extra_key="a", cache_salt="b", lora="c")
_LONG = Namespace(extra_key="tenant-" * 40, cache_salt="s" * 255, lora="l" * 257)

TENANTS = (
    (_SOME, evolve(_SOME, lora="d")),
    (_SOME, evolve(_SOME, lora=None)),
    (_SOME, evolve(_SOME, cache_salt="d")),
    (_SOME, evolve(_SOME, cache_salt=None)),
    (_SOME, evolve(_SOME, extra_key="d")),
    (_SOME, evolve(_SOME, extra_key=None)),
    (_SOME, evolve(_SOME, lora="C")),
    (_SOME, evolve(_SOME, extra_key="A")),
    (_LONG, evolve(_LONG, lora="l" * 256)),
    (_LONG, evolve(_LONG, extra_key=_LONG.extra_key[:-1] + "_" if _LONG.extra_key else None)),
    (_SOME, Namespace("c", "a", "b")),
    (Namespace(extra_key=""), Namespace()),
    (Namespace(lora=""), Namespace()),
    (Namespace(cache_salt="b", lora="c"), Namespace(cache_salt="b", lora="d")),
    (Namespace("a", None, ""), Namespace("a", "", None)),
    (Namespace(extra_key="é"), Namespace(extra_key="e")),
)
"""Pairs of namespaces that share nothing, though they differ little."""


@enter(CORNER, 2)
def serve_tenants(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request for one tenant, and one with the same tokens for a tenant like it."""
    if len(client.namespaces) < 2:
        return
    pages = client.known(a, 1).prefix(1 + b % 4).pages
    pair = TENANTS[c % len(TENANTS)]
    for namespace in pair if b % 2 else reversed(pair):
        key = Key(pages, namespace)
        client.keys.append(key)
        request = client.start(key, client.cache.match(key).device_pages, counted_pages=0)
        client.insert(request, priority=0)


@enter(CORNER, 1)
def admit_bare(client: Client, a: int, b: int, c: int) -> None:
    """Match, lock, and allocate slots for the rest, with window slots for its last pages only."""
    key = client.prompt(a, b, c)
    client.keys.append(key)
    start = client.cache.match(key).device_pages
    pages = len(key) - start
    receipt = client.cache.lock(key.prefix(start))
    windowed = b % (pages + 1) if SWA in client.components else 0
    states = int(MAMBA in client.components and pages > 0 and c % 3 > 0)
    try:
        slots = client.cache.allocate(Counts(pages, windowed, states))
    except CacheError:
        client.cache.unlock(receipt)
        client.spent.append(receipt)
        raise
    client.write(key, slots)
    client.requests.append(ClientRequest(key, receipt, start, slots))


@enter(CORNER, 1)
def finish_stateless(client: Client, a: int, b: int, c: int) -> None:
    """Insert all pages that a request computed, without its mamba state, and end it."""
    if client.requests:
        request = client.requests[a % len(client.requests)]
        if request.slots.mamba:
            client.cache.free(Slots(mamba=request.slots.mamba))
            request.slots = evolve(request.slots, mamba=())
        if b % 2:  # Then nothing holds the state before its pages.
            client.let_go(request)
        client.insert(request, priority=c % 3)


@enter(CORNER, 1)
def hold_block(client: Client, a: int, b: int, c: int) -> None:
    """Allocate pages, window slots for some of them and several states; free all in two calls."""
    full = 1 + a % 4
    swa = b % (full + 1) if SWA in client.components else 0
    slots = client.cache.allocate(Counts(full, swa, c % 4 if MAMBA in client.components else 0))
    at = c % (len(slots.mamba) + 1)
    try:
        client.cache.free(Slots(slots.full[: full - swa], (), slots.mamba[:at]))
        slots = Slots(slots.full[full - swa :], slots.swa, slots.mamba[at:])
    finally:
        client.cache.free(slots)


@enter(CORNER, 2, Capability.ARRIVED, Capability.SETTLE, host=True)
def settle(client: Client, a: int, b: int, c: int) -> None:
    """Ask which copies have arrived, and settle all of them or some, perhaps one as failed."""
    arrived = list(client.cache.arrived())
    if a % 4 == 0 and len(arrived) > 1:
        # The last one is no copy that another of its direction comes after.
        arrived.pop()
    if b % 4 == 0 and arrived:
        at = c % len(arrived)
        arrived[at] = Completion(arrived[at].transfer_id, ok=False)
    client.cache.settle(arrived[::-1] if b % 3 == 0 else arrived)


@enter(CORNER, 1, Capability.READ, host=True)
def read_host(client: Client, a: int, b: int, _c: int) -> None:
    """Read a slot on the host."""
    component = client.components[a % len(client.components)]
    capacity = client.cache.config.capacity(component, CPU)
    if capacity:
        client.cache.read(component, CPU, b % capacity)
