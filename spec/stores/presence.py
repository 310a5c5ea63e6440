"""Laws about what is there: acknowledged pages are found, and no other is said to be there.

One page that is not found breaks one of these laws, or one of `contents`, that of its cause.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.calls import (
    Ability,
    Answered,
    ExistsCall,
    GetCall,
    OpenCall,
    PutCall,
    RunCall,
    StoreStep,
)
from kvcanon.spec.stores.findings import (
    counted_of,
    has_room,
    in_every_pool,
    missing_pages,
    name_in_words,
    put_as_another,
    puts_of,
    reads_of,
    said_of,
    serves,
)
from kvcanon.spec.stores.known import Doubt, PageKnown
from kvcanon.spec.stores.pages import PageKey, parent_of
from kvcanon.spec.stores.store_law import store_law

SOUND, SERVING, POLICY = LawClass.SOUND, LawClass.SERVING, LawClass.POLICY


def _known(step: StoreStep, key: PageKey) -> PageKnown:
    return step.before.of(step.handle.identity, key)


def _missing(step: StoreStep, law_id: str) -> Iterator[str]:
    yield from (each.words for each in missing_pages(step) if each.law_id == law_id)


def _asked(step: StoreStep) -> Iterator[PageKnown]:
    if isinstance(step.call, GetCall | ExistsCall):
        yield from (_known(step, key) for key in step.call.keys)


@store_law(
    "STORE-7",
    SERVING,
    "a question for a page that was put before a restart, or by another process",
    lambda step: any(known.sure and step.handle.life not in known.lives for known in _asked(step)),
    needs=(Ability.DURABLE,),
)
def names_outlive_processes(step: StoreStep) -> Iterator[str]:
    """A page is found after a restart, and by every other process with the same identity.

    Why: a store is there to be found again. Names that depend on the process that made them fill a
    disk with pages that nobody finds.

    Seen broken: vLLM seeds its hashes at random unless PYTHONHASHSEED is set
    (https://github.com/vllm-project/vllm/issues/47636), and so do others
    (https://github.com/LMCache/LMCache/issues/2136).
    """
    yield from _missing(step, "STORE-7")


def _was_answered(step: StoreStep) -> bool:
    return any(known.said is not None for known in _asked(step))


@store_law(
    "STORE-8", SOUND, "a second question for a page with nothing between them", _was_answered
)
def presence_is_true(step: StoreStep) -> Iterator[str]:
    """What exists says is there can be read; what could not be read is not said to be there.

    Why: an engine plans with what exists says: it takes host memory and lets a request wait. Pages
    that are there for exists and not for get make it wait for nothing, each time again.

    Seen broken: exists looks for another name than get
    (https://github.com/sgl-project/sglang/issues/17265); a load times out after every lookup
    (https://github.com/sgl-project/sglang/issues/31315).
    """
    if not serves(step):
        return
    for key, size, read in reads_of(step):
        known = _known(step, key)
        fits = bool(known.contents) and size >= len(known.contents[0])
        if read.length is None and known.said and fits and known.doubt is not Doubt.DAMAGED:
            yield f"get gave nothing for {name_in_words(key)}, which exists said is there"
    for key, there in said_of(step):
        known = _known(step, key)
        if there and known.said is False and known.doubt is not Doubt.REMOVED:
            yield f"exists says that {name_in_words(key)} is there, for which get gave nothing"
        elif there and known.doubt is Doubt.NEVER_PUT and not _put_elsewhere(step, key):
            yield f"exists says that {name_in_words(key)} is there, which was never put"


def _put_elsewhere(step: StoreStep, key: PageKey) -> bool:
    """Whether the tokens of a page were put under another name: the matter of other laws."""
    return any(other.tokens == key.tokens for _, other in step.before.pages)


def _has_a_hole(step: StoreStep) -> bool:
    """Whether a run has a page that is not there before one that is."""
    if not isinstance(step.call, RunCall):
        return False
    there = [_known(step, key).sure for key in step.call.keys]
    gone = [
        known.absent or known.said is False
        for known in (_known(step, key) for key in step.call.keys)
    ]
    return any(hole and any(there[at + 1 :]) for at, hole in enumerate(gone))


@store_law(
    "STORE-9",
    SOUND,
    "a leading run with a page that is not there",
    _has_a_hole,
    needs=(Ability.RUNS,),
)
def run_ends_at_the_first_hole(step: StoreStep) -> Iterator[str]:
    """A leading run counts the pages before the first that is not there, and none behind it.

    Why: keys and values are of use only from the beginning on. A sum over all pages promises what
    cannot be used (a prompt with 126 of 128 pages and not the first two hits nothing).

    Seen broken: https://github.com/sgl-project/sglang/issues/26886; Redis under `allkeys-lru` left
    59 holes in one chain of 500.
    """
    counted = counted_of(step)
    if counted is None or not isinstance(step.call, RunCall):
        return
    if not 0 <= counted <= len(step.call.keys):
        yield f"leading_run answered {counted} for {len(step.call.keys)} pages"
        return
    for key in step.call.keys[:counted]:
        known = _known(step, key)
        if known.absent and put_as_another(step, key) is not None:
            return
        if known.absent or (known.said is False and known.doubt is not Doubt.REFUSED):
            yield f"leading_run counts {counted} pages, but {name_in_words(key)} is not there"
            return


@store_law(
    "STORE-10",
    SERVING,
    "a question for a page whose put was acknowledged",
    lambda step: any(known.sure for known in _asked(step)),
)
def acknowledged_page_is_found(step: StoreStep) -> Iterator[str]:
    """A page whose put was acknowledged is found until it is removed, damaged, or evicted for room.

    Why: otherwise the engine pays for the write, and computes the page again all the same.

    Seen broken: https://github.com/sgl-project/sglang/issues/39444 (the rest of a node is never
    stored); 502 GB were stored and nothing was read
    (https://github.com/eugr/spark-vllm-docker/issues/373).
    """
    yield from _missing(step, "STORE-10")


@store_law(
    "STORE-13",
    SERVING,
    "a get of several pages of which one is not there or does not fit",
    lambda step: (
        isinstance(step.call, GetCall) and len({known.sure for known in _asked(step)}) == 2
    ),  # Both kinds.
)
def one_page_spoils_no_other(step: StoreStep) -> Iterator[str]:
    """A page that cannot be given is a miss by itself: the others of the batch are given.

    Why: SGLang reads 128 pages at once. One bad page that voids its batch costs 128, and does so
    each time until somebody deletes it.

    Seen broken: one truncated file voids its batch for good in SGLang's `file` store (0.5.23); one
    bad block livelocks a request (https://github.com/vllm-project/vllm/issues/49176).
    """
    yield from _missing(step, "STORE-13")


def _lacks_a_pool(step: StoreStep) -> bool:
    """Whether a run has a page of which some pools are there and some are not."""
    if not isinstance(step.call, RunCall):
        return False
    for key in step.call.keys:
        there = {_known(step, each).sure for each in in_every_pool(step, key)}
        if len(there) > 1:
            return True
    return False


@store_law(
    "STORE-14",
    SOUND,
    "a leading run with a page of which one pool is there and another is not",
    _lacks_a_pool,
    needs=(Ability.RUNS, Ability.POOLS),
)
def pools_go_together(step: StoreStep) -> Iterator[str]:
    """A page is counted only if every pool of it is there.

    Why: keys and values without the index of sparse attention are read, and the answer is garbled.

    Seen broken: the index page was evicted between exists and get
    (https://github.com/sgl-project/sglang/issues/31108).
    """
    counted = counted_of(step)
    if counted is None or not isinstance(step.call, RunCall):
        return
    for key in step.call.keys[: max(0, counted)]:
        first, *others = in_every_pool(step, key)
        if _known(step, first).absent:
            return
        for other in others:
            known = _known(step, other)
            if known.absent or (known.said is False and known.doubt is not Doubt.REFUSED):
                yield f"leading_run counts {counted} pages, without {name_in_words(other)}"
                return


def _found_chain(step: StoreStep) -> bool:
    return isinstance(step.call, ExistsCall) and step.call.census and len(step.call.keys) > 1


@store_law(
    "STORE-21",
    POLICY,
    "a look at all pages after evictions",
    _found_chain,
    needs=(Ability.EVICTS,),
)
def chains_end_at_leaves(step: StoreStep) -> Iterator[str]:
    """An eviction takes pages from the ends of prompts: a page that is left has its parent.

    Why: a page without its parent takes room, and nobody can use it.

    Seen broken: Redis under `allkeys-lru`; https://github.com/vllm-project/vllm/issues/54327
    """
    said = dict(said_of(step))
    for key, there in said.items():
        parent = parent_of(key, step.handle.identity.page_size)
        if not there or parent is None or said.get(parent) is not False:
            continue
        if _known(step, key).parted:
            continue  # It was put without its parent, which had been evicted before.
        if _known(step, parent).doubt is Doubt.EVICTED:
            yield f"{name_in_words(key)} is left, and its parent was evicted"


def _after_trouble(step: StoreStep) -> bool:
    return isinstance(step.call, OpenCall) and bool(step.call.after)


@store_law(
    "STORE-22",
    SERVING,
    "an open after a crash or after damage",
    _after_trouble,
    needs=(Ability.DURABLE,),
)
def store_opens_after_a_crash(step: StoreStep) -> Iterator[str]:
    """A store opens whatever a crash, damage or a foreign file left in its place.

    Why: a server that does not start is worse than one that starts without its pages.

    Seen broken: https://github.com/LMCache/LMCache/issues/562
    """
    if (
        isinstance(step.call, OpenCall)
        and step.call.after
        and not isinstance(step.answer, Answered)
    ):
        yield f"open {step.answer.words}, after {step.call.after}"


@store_law(
    "STORE-23",
    SERVING,
    "a question for an acknowledged page after a crash, or after other pages were damaged",
    lambda step: any(known.sure and known.crashed for known in _asked(step)),
    needs=(Ability.DURABLE,),
)
def acknowledged_page_survives(step: StoreStep) -> Iterator[str]:
    """A page that was acknowledged is found after a crash, and when other pages were damaged.

    Why: acknowledged means durable. A crash is when a disk tier is worth most: every prompt comes
    back at once.

    Seen broken: not seen
    """
    yield from _missing(step, "STORE-23")


@store_law(
    "STORE-11",
    SERVING,
    "a put for which there is room",
    lambda step: isinstance(step.call, PutCall) and serves(step),
)
def put_is_served(step: StoreStep) -> Iterator[str]:
    """A put is acknowledged if there is room, or pages to evict that no page of the put follows.

    Why: a store that refuses for no reason keeps all other laws, and is of no use.

    Seen broken: until rank 0 has made its folder, each put of another rank fails in SGLang's `file`
    store (0.5.23).
    """
    if not serves(step) or not has_room(step):
        return
    for key, _, done in puts_of(step):
        if not done and not _known(step, key).spoiled:
            yield f"put answered no for {name_in_words(key)}"
