"""The native cache behind the tree core: how it is made, and its namespaces.

SGLang tells a tree core of its host tier after it was made, while the tree is empty. So the native
cache is made when it is first used, and made anew if a setting changes that it depends on.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import Factory, define, evolve, frozen

from kvcanon.optimized import _core
from kvcanon.optimized.codes import COMPONENTS, EVICTION_POLICIES, WRITE_POLICIES
from kvcanon.optimized.native_types import Three
from kvcanon.optimized.sglang.start_checks import refuse
from kvcanon.spec.hashing import encode_namespace
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, EvictionPolicy, Namespace, WritePolicy

SALT_TAG = b"sglang-cache-salt-v1\0"
"""What SGLang puts before a salt that it hashes into the first page of a chain."""

NAMESPACE_TAG = b"sglang-cache-namespace-v1"
"""What SGLang puts before the namespace of a chain of storage hashes."""

Scope = tuple[str | None, str | None]
"""SGLang's namespace of a key: `extra_key` and `cache_salt`."""


@frozen
class TreeSettings:
    """What the native cache depends on."""

    page_size: int
    bigram: bool
    window_tokens: int
    mamba: bool
    device_slots: Three
    eviction_policy: EvictionPolicy
    events: bool
    host_slots: Three = (0, 0, 0)
    write_back: bool = False

    @property
    def host_tier(self) -> bool:
        """Whether there is a host tier."""
        return any(self.host_slots)

    @property
    def components(self) -> tuple[Component, ...]:
        """The components that the cache has."""
        has = {FULL: True, SWA: bool(self.window_tokens), MAMBA: self.mamba}
        return tuple(component for component in COMPONENTS if has[component])

    @property
    def write_policy(self) -> WritePolicy:
        """When data is copied to the host."""
        if not self.host_tier:
            return WritePolicy.NONE
        return WritePolicy.WRITE_BACK if self.write_back else WritePolicy.WRITE_THROUGH


@define(eq=False)
class TreeOfNodes:
    """A native cache, its nodes, and the numbers of its namespaces."""

    settings: TreeSettings
    core: _core.CacheCore
    nodes: _core.Nodes
    view: _core.Tree
    numbers: dict[Scope, int] = Factory(dict)
    scopes: dict[int, Scope] = Factory(dict)

    def namespace(self, scope: Scope) -> int:
        """The number of a namespace; a new one where it is unknown or was forgotten."""
        number = self.numbers.get(scope)
        if number == 0 or (number is not None and self.nodes.use_namespace(number)):
            return number
        number, forgotten = self.nodes.add_namespace(*_named(scope))
        for each in forgotten:
            gone = self.scopes.pop(each, None)
            if gone is not None and self.numbers.get(gone) == each:
                del self.numbers[gone]
        self.numbers[scope], self.scopes[number] = number, scope
        return number

    def forget(self) -> None:
        """Empty the tree, drop its locks, and forget every namespace without pages or events."""
        self.nodes.forget()
        # Those of events that wait are in use.
        kept = {
            number: scope
            for number, scope in self.scopes.items()
            if number == 0 or self.nodes.use_namespace(number)
        }
        self.scopes = kept
        self.numbers = {scope: number for number, scope in kept.items()}

    def scope(self, number: int) -> Scope:
        """The namespace with the number that an event has."""
        return self.scopes.get(number, (None, None))

    def is_empty(self) -> bool:
        """Whether the tree has no node but the root."""
        return not self.nodes.children(self.nodes.root())


def make_native(settings: TreeSettings) -> TreeOfNodes:
    """Make an empty cache whose caller copies."""
    core = _core.CacheCore(
        page_size=settings.page_size,
        unit_words=2 if settings.bigram else 1,
        window_tokens=settings.window_tokens,
        mamba=settings.mamba,
        device_slots=settings.device_slots,
        host_slots=settings.host_slots,
        write_policy=WRITE_POLICIES.index(settings.write_policy),
        eviction_policy=EVICTION_POLICIES.index(settings.eviction_policy),
        load_back_threshold_pages=0,
        events=settings.events,
        caller_copies=True,
    )
    native = TreeOfNodes(settings, core, _core.Nodes(core), _core.Tree(core))
    native.namespace((None, None))
    return native


def remake(native: TreeOfNodes, settings: TreeSettings) -> TreeOfNodes:
    """The same cache, or an empty one if the settings differ. Raises: ValueError."""
    if settings == native.settings:
        return native
    if settings == evolve(native.settings, write_back=settings.write_back) and settings.host_tier:
        native.nodes.set_write_back(settings.write_back)
        native.settings = settings
        return native
    if not native.is_empty():
        refuse("a host tier that is attached to a running cache", "the tree has pages already")
    return make_native(settings)


def _named(scope: Scope) -> tuple[bytes, bytes, bytes]:
    """A name that no other namespace has, and the seeds of SGLang's hashes: events', storage's."""
    extra_key, salt = scope
    seed = b"" if salt is None else sha256(SALT_TAG + _encoded(salt)).digest()
    return encode_namespace(Namespace(extra_key, salt)), seed, _storage_seed(scope)


def _storage_seed(scope: Scope) -> bytes:
    """What the hashes begin with by which storage names pages; nothing without a namespace."""
    if scope == (None, None):
        return b""
    digest = sha256(NAMESPACE_TAG)
    for part in scope:
        if part is None:
            digest.update(b"\0")
            continue
        encoded = _encoded(part)
        digest.update(b"\1" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()


def _encoded(part: str) -> bytes:
    """UTF-8, also of half a surrogate pair, which JSON can carry."""
    return part.encode(errors="surrogatepass")
