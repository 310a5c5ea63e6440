"""What can be known of each page in a store after some calls, without looking into the store.

For every name there is the list of contents that were ever handed over under it: no get may give
anything else. A page is *sure* if its put was acknowledged and nothing has happened since that may
have taken it. What may have taken or spoiled it is kept as a *doubt*, in words for the report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

from attrs import evolve, field, frozen

from kvcanon.spec.stores.pages import PageKey, StoreIdentity


class Doubt(StrEnum):
    """Why it is uncertain whether a page is stored, by what happened to it last."""

    NONE = "none"
    NEVER_PUT = "never put"
    REFUSED = "its put was answered with no"
    KILLED = "its process was killed in its put"
    OVERTAKEN = "two writers put it at once"
    DAMAGED = "its file was damaged"
    EVICTED = "the store may have evicted it"
    REMOVED = "it was removed"
    LOST = "the store was closed, and is not durable"


@frozen
class PageKnown:
    """What is known of one page."""

    contents: tuple[bytes, ...] = ()
    """All contents that a get may give, the newest first."""
    sure: bool = False
    """Whether the page must be given."""
    doubt: Doubt = Doubt.NEVER_PUT
    detail: str = ""
    """The doubt in words, where there is more to say, as "its file was cut to half"."""
    lives: frozenset[int] = frozenset()
    """The opens of the store in which it was put."""
    said: bool | None = None
    """Whether the store said that it is there, and nothing happened since that could change it."""
    mended: bool = False
    """Whether a put of it was acknowledged after it was damaged or could not be read."""
    crashed: bool = False
    """Whether a process was killed, or files were damaged, after its put was acknowledged."""
    refused_over: bool = False
    """Whether another put of it failed after one was acknowledged."""
    overtaken: bool = False
    """Whether its last put was one of two at once."""
    parted: bool = False
    """Whether the page before it may not have been there when it was put."""

    @property
    def spoiled(self) -> bool:
        """Whether bytes of it may be damaged or half written."""
        return self.doubt in {Doubt.REFUSED, Doubt.KILLED, Doubt.OVERTAKEN, Doubt.DAMAGED}

    @property
    def absent(self) -> bool:
        """Whether it is certainly not there."""
        return self.doubt in {Doubt.NEVER_PUT, Doubt.REMOVED} and not self.contents


StoredName: TypeAlias = tuple[StoreIdentity, PageKey]
NEVER = PageKnown()


@frozen
class KnownPages:
    """What is known of all pages of a store, under all identities."""

    pages: Mapping[StoredName, PageKnown] = field(factory=dict)

    def of(self, identity: StoreIdentity, key: PageKey) -> PageKnown:
        """What is known of a page."""
        return self.pages.get((identity, key), NEVER)

    def changed(self, changes: Iterable[tuple[StoredName, PageKnown]]) -> KnownPages:
        """The same with other knowledge of some pages."""
        return KnownPages({**self.pages, **dict(changes)})

    def put_under(self, identity: StoreIdentity) -> Iterator[tuple[PageKey, PageKnown]]:
        """The pages that were ever put under an identity."""
        for (under, key), known in self.pages.items():
            if under == identity:
                yield key, known

    def stored_bytes(self, overhead_bytes: int, without: Collection[StoredName] = ()) -> int:
        """The most that all pages which may be there take, with some bytes more for each."""
        return sum(
            max(map(len, known.contents)) + overhead_bytes
            for name, known in self.pages.items()
            if known.contents and name not in without
        )


def after_put(
    known: PageKnown,
    content: bytes,
    life: int,
    *,
    done: bool,
    doubt: Doubt = Doubt.REFUSED,
    parted: bool = False,
) -> PageKnown:
    """What is known of a page after a put of it; `doubt` says why, if it was not acknowledged."""
    contents = (content, *(each for each in known.contents if each != content))
    if done:
        lost = known.said is False and known.doubt is Doubt.NONE
        bad = known.spoiled or known.mended or (lost and bool(known.contents))
        return PageKnown(
            contents,
            sure=True,
            doubt=Doubt.NONE,
            lives=frozenset({life}),
            mended=bad,
            parted=parted,
        )
    return evolve(
        known,
        contents=contents,
        doubt=doubt if not known.sure else known.doubt,
        lives=known.lives | {life},
        said=None,
        refused_over=known.sure,
        crashed=known.crashed or (known.sure and doubt is Doubt.KILLED),
        parted=parted,
    )


def after_race(known: PageKnown, contents: Iterable[bytes], life: int, *, done: bool) -> PageKnown:
    """What is known of a page after two puts of it at once; `done` if one was acknowledged."""
    new = tuple(contents)
    old = tuple(each for each in known.contents if each not in new)
    return PageKnown(
        (*new, *old),
        sure=done or known.sure,
        doubt=Doubt.OVERTAKEN,
        lives=known.lives | {life},
        overtaken=True,
    )


def after_damage(known: PageKnown, detail: str) -> PageKnown:
    """What is known of a page after its file was damaged."""
    return evolve(known, sure=False, doubt=Doubt.DAMAGED, detail=detail, said=None, mended=False)


def after_doubt(known: PageKnown, doubt: Doubt) -> PageKnown:
    """What is known of a page that something may have taken."""
    if not known.contents:
        return known
    keeps = known.spoiled or known.absent
    return evolve(known, sure=False, doubt=known.doubt if keeps else doubt, said=None)


def after_removal(known: PageKnown) -> PageKnown:
    """What is known of a page after it was removed."""
    if not known.contents and known.doubt is Doubt.NEVER_PUT:
        return known
    return PageKnown(doubt=Doubt.REMOVED)


def after_crash(known: PageKnown) -> PageKnown:
    """What is known of a page after a process was killed, or files of other pages were damaged."""
    return evolve(known, crashed=known.crashed or known.sure, said=None)


def after_said(known: PageKnown, *, there: bool | None) -> PageKnown:
    """What is known of a page after the store answered whether it is there."""
    return known if known.said is there else evolve(known, said=there)
