"""Chapter 3. Words: the vocabulary of a prefix KV cache.

A *page* is the unit of reuse: `page_size` consecutive units of a prompt. A *unit* is one token, or,
where a draft model reads bigrams, a pair of neighbouring tokens. A *slot* is a place in a pool. It
holds the KV of exactly one page (full and sliding-window attention) or one mamba state.

A page is part of a *prompt*, a slot is a place in *memory*. A page may have no slot, a slot on the
device, a slot on the host, or both; a slot never holds more than one page. Every count is of pages,
of slots or of tokens, and its name says which.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

from attrs import field, frozen

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.oracle.eviction import EvictionPolicy as EvictionPolicy  # noqa: PLC0414  A word, too.
from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.oracle.pages import whole_pages

Unit: TypeAlias = int | tuple[int, int]
"""A token id, or a pair of neighbouring token ids where the key is made of bigrams."""

Page: TypeAlias = tuple[Unit, ...]
"""`page_size` units that are hashed, compared, stored and evicted as one."""

NodeId: TypeAlias = int
TransferId: TypeAlias = int
ReceiptId: TypeAlias = int
Slot: TypeAlias = int


class Component(StrEnum):
    """One kind of data that is kept of a prompt, in pools of its own."""

    FULL = "full"
    """KV of full attention: one slot a page. The other components need it at the same node."""
    SWA = "swa"
    """KV of sliding-window attention: one slot a page, used only near the end of a prefix."""
    MAMBA = "mamba"
    """A mamba state: one slot a node, exact at the node's end and nowhere else."""


class Medium(StrEnum):
    """Where a slot is; the values are those that events carry."""

    GPU = "GPU"
    CPU = "CPU_PINNED"
    DISK = "DISK"
    """A store below the host, which has pages by name and no pool of a cache."""
    EXTERNAL = "EXTERNAL"
    """The same on another machine."""


FULL, SWA, MAMBA = Component.FULL, Component.SWA, Component.MAMBA
GPU, CPU, DISK, EXTERNAL = Medium.GPU, Medium.CPU, Medium.DISK, Medium.EXTERNAL


class WritePolicy(StrEnum):
    """When device data is copied to the host."""

    NONE = "none"
    """There is no host tier."""
    WRITE_THROUGH = "write_through"
    """As soon as a node is inserted: the insert counts as its first hit."""
    WRITE_THROUGH_SELECTIVE = "write_through_selective"
    """After a node's second hit."""
    WRITE_BACK = "write_back"
    """When the device needs the slots; the only policy under which a parent may lack a backup."""


@frozen(cache_hash=True)
class Namespace:
    """Prompts in different namespaces never share a page, whatever their tokens.

    `None` and the empty string are different values in every field.
    """

    extra_key: str | None = None
    """Set by the application, for instance to separate two tenants."""
    cache_salt: str | None = None
    """Set by the client, so that other clients cannot measure what is cached for it."""
    lora: str | None = None
    """The LoRA adapter: the same tokens have other KV under another adapter."""


DEFAULT_NAMESPACE = Namespace()


@frozen(cache_hash=True)
class Key:
    """A prompt, cut into whole pages, in its namespace; most operations take one.

    Operations take keys, never nodes: a cache may cut its nodes anywhere, and a key cannot dangle.
    """

    pages: tuple[Page, ...]
    namespace: Namespace = DEFAULT_NAMESPACE
    checked: bool = field(default=False, kw_only=True, eq=False, repr=False)
    """Whether every token was validated, as by `make_key`; a cache then does not check them."""

    def __len__(self) -> int:
        """The number of pages."""
        return len(self.pages)

    def prefix(self, page_count: int) -> Key:
        """The key of the first `page_count` pages."""
        if page_count == len(self.pages):
            return self
        return Key(self.pages[:page_count], self.namespace, checked=self.checked)


def make_key(
    tokens: Sequence[int],
    page_size: int,
    namespace: Namespace = DEFAULT_NAMESPACE,
    *,
    bigram: bool = False,
) -> Key:
    """Cut a prompt into whole pages; a rest that fills no page is not part of the key.

    A prompt of n tokens has n units, or n - 1 bigrams: neighbouring bigrams share a token.

    Raises:
        BadArgument: a token is not an integer in 0 .. 2**32 - 1, or the page size is below one.
    """
    if page_size < 1:
        raise BadArgument("page_size", f"is {page_size}; a page holds at least one unit")
    try:
        checked: Sequence[int] = array("I", list(tokens)).tolist()
    except (OverflowError, TypeError) as error:
        raise BadArgument("tokens", "must be integers in 0 .. 4294967295") from error
    units: Sequence[Unit] = list(pairwise(checked)) if bigram else checked
    whole = whole_pages(len(units), page_size) * page_size
    starts = range(0, whole, page_size)
    pages = tuple([tuple(units[at : at + page_size]) for at in starts])
    return Key(pages, namespace, checked=True)


@frozen
class Counts:
    """Numbers of slots, one for each component: a capacity, a request, or slots freed."""

    full: int = 0
    swa: int = 0
    mamba: int = 0

    @classmethod
    def of(cls, by_component: Mapping[Component, int]) -> Counts:
        """Counts from a number for each component; 0 where `by_component` has none."""
        count = by_component.get
        return cls(count(FULL, 0), count(SWA, 0), count(MAMBA, 0))

    def __getitem__(self, component: Component) -> int:
        count: int = getattr(self, component)  # A component is the name of its field.
        return count

    def __iter__(self) -> Iterator[tuple[Component, int]]:
        return iter(((FULL, self.full), (SWA, self.swa), (MAMBA, self.mamba)))

    def __bool__(self) -> bool:
        return bool(self.full or self.swa or self.mamba)

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.full - other.full, self.swa - other.swa, self.mamba - other.mamba)


def shortage(needed: Counts, free: Counts) -> Counts:
    """Slots that each pool lacks of those needed from it, whatever the other pools have free."""
    return Counts(
        pre_evict_need(needed.full, free.full),
        pre_evict_need(needed.swa, free.swa),
        pre_evict_need(needed.mamba, free.mamba),
    )


@frozen
class Slots:
    """Slots of consecutive pages.

    `full` has one slot a page. `swa` has one for each of the *last* `len(swa)` pages: pages at the
    front, before the window, have none. `mamba` has at most one slot, the state at the end of the
    pages (an allocation may have several).
    """

    full: tuple[Slot, ...] = ()
    swa: tuple[Slot, ...] = ()
    mamba: tuple[Slot, ...] = ()

    def __getitem__(self, component: Component) -> tuple[Slot, ...]:
        slots: tuple[Slot, ...] = getattr(self, component)
        return slots

    def __iter__(self) -> Iterator[tuple[Component, tuple[Slot, ...]]]:
        return iter(((FULL, self.full), (SWA, self.swa), (MAMBA, self.mamba)))

    def counts(self) -> Counts:
        """The number of slots of each component."""
        return Counts(len(self.full), len(self.swa), len(self.mamba))
