"""Finds what is wrong with an answer of a store, and which law it breaks.

Wrong bytes and a page that is not found each have many causes. Every wrong answer breaks one law,
that of its likeliest cause, so that a report names the cause and not only the symptom.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, fields, frozen

from kvcanon.spec.stores.calls import (
    Ability,
    Answered,
    ExistsCall,
    GetCall,
    Interruption,
    PageRead,
    PutCall,
    RunCall,
    StoreStep,
)
from kvcanon.spec.stores.known import Doubt, PageKnown
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

LEAST_LIKE = 8
"""Bytes that two contents must share from the beginning for one to be a part of the other."""


@frozen
class WrongPage:
    """A page that is wrong in an answer."""

    key: PageKey
    known: PageKnown
    law_id: str
    words: str


def reads_of(step: StoreStep) -> Iterator[tuple[PageKey, int, PageRead]]:
    """The pages of an answered get, with the sizes of their buffers."""
    if isinstance(step.call, GetCall) and isinstance(step.answer, Answered):
        value = step.answer.value
        if isinstance(value, tuple) and len(value) == len(step.call.keys):
            for key, size, read in zip(step.call.keys, step.call.sizes, value, strict=True):
                if isinstance(read, PageRead):
                    yield key, size, read


def said_of(step: StoreStep) -> Iterator[tuple[PageKey, bool]]:
    """The pages of an answered exists."""
    if isinstance(step.call, ExistsCall) and isinstance(step.answer, Answered):
        value = step.answer.value
        if isinstance(value, tuple) and len(value) == len(step.call.keys):
            yield from zip(step.call.keys, value, strict=True)


def counted_of(step: StoreStep) -> int | None:
    """The answer of a leading run; None if it has a wrong type."""
    if isinstance(step.call, RunCall) and isinstance(step.answer, Answered):
        value = step.answer.value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def puts_of(step: StoreStep) -> Iterator[tuple[PageKey, bytes, bool]]:
    """The pages of an answered put, with their contents and answers."""
    if isinstance(step.call, PutCall) and isinstance(step.answer, Answered):
        value = step.answer.value
        if isinstance(value, tuple) and len(value) == len(step.call.pages):
            for (key, content), done in zip(step.call.pages, value, strict=True):
                yield key, content, done


def serves(step: StoreStep) -> bool:
    """Whether nothing stands against serving the call: no stall, and nothing done to a put."""
    now = step.situation
    call = step.call
    whole = not isinstance(call, PutCall) or call.interruption is Interruption.NONE
    return whole and not (now.stalled or now.recovering)


def put_as_another(step: StoreStep, key: PageKey) -> StoreIdentity | None:
    """Another identity under which a page was put; None if there is none."""
    for identity, other in step.before.pages:
        if other == key and identity != step.handle.identity:
            return identity
    return None


def in_every_pool(step: StoreStep, key: PageKey) -> list[PageKey]:
    """The names of a page in all pools of the identity."""
    return [evolve(key, pool=pool) for pool in step.handle.identity.pools]


# Bytes that nobody put there.


def wrong_bytes(step: StoreStep) -> Iterator[WrongPage]:
    """The pages of a get whose bytes are none of those that were put under their names."""
    for key, size, read in reads_of(step):
        known = step.before.of(step.handle.identity, key)
        if read.length is None:
            continue
        if read.length == len(read.data) and read.data in known.contents:
            continue
        law_id, cause = _cause_of_bytes(step, key, known, read.data, size)
        words = f"get gave {_described(known, read, size)} for {name_in_words(key)}"
        yield WrongPage(key, known, law_id, f"{words}: {cause}")


def _cause_of_bytes(  # noqa: C901, PLR0911  # One for each cause.
    step: StoreStep, key: PageKey, known: PageKnown, data: bytes, size: int
) -> tuple[str, str]:
    """The law that wrong bytes are a matter of, and the cause in words."""
    origin = _origin(step, key, data)
    if origin is not None and origin[0] != step.handle.identity:
        return "STORE-5", f"they were put with {different_fields(step.handle.identity, origin[0])}"
    if any(size < len(each) and each.startswith(data) for each in known.contents):
        return "STORE-1", f"its buffer has {size} bytes"
    if known.mended:
        return "STORE-4", "a put over the damaged page had been acknowledged"
    if known.doubt is Doubt.DAMAGED:
        return "STORE-2", known.detail or known.doubt.value
    if known.doubt is Doubt.REMOVED:
        return "STORE-26", known.doubt.value
    if origin is not None and _named_alike(origin[1], key):
        return "STORE-6", f"they are those of {name_in_words(origin[1])}"
    if known.overtaken:
        return "STORE-25", known.doubt.value
    if known.doubt is Doubt.KILLED or known.crashed:
        since = "a process was killed, or other files were damaged, since its put"
        return "STORE-24", Doubt.KILLED.value if known.doubt is Doubt.KILLED else since
    if known.doubt is Doubt.REFUSED or known.refused_over:
        return "STORE-3", Doubt.REFUSED.value
    if origin is not None and origin[1] != key:
        return "STORE-1", f"they are those of {name_in_words(origin[1])}"
    return "STORE-1", "its put was acknowledged" if known.sure else known.doubt.value


def _origin(step: StoreStep, key: PageKey, data: bytes) -> tuple[StoreIdentity, PageKey] | None:
    """Under which other name bytes were put that these begin with, or that begin with these."""
    for (identity, other), known in step.before.pages.items():
        if (identity, other) == (step.handle.identity, key):
            continue
        for content in known.contents:
            alike = min(len(content), len(data))
            if alike >= LEAST_LIKE and content[:alike] == data[:alike]:
                return identity, other
    return None


def _named_alike(one: PageKey, other: PageKey) -> bool:
    """Whether two pages differ in namespace or pool, or in tokens at equal length."""
    return (one.namespace, one.pool) != (other.namespace, other.pool)


def _described(known: PageKnown, read: PageRead, size: int) -> str:
    """What was given, beside what was put."""
    data = read.data
    if read.length != len(data):
        return f"{read.length} bytes, more than the buffer of {size}"
    if not known.contents:
        return f"{len(data)} bytes"
    content = known.contents[0]
    if len(data) < len(content) and content.startswith(data):
        return f"the first {len(data)} of {len(content)} bytes"
    same = next(
        (at for at, (one, two) in enumerate(zip(data, content, strict=False)) if one != two),
        min(len(data), len(content)),
    )
    if len(data) != len(content):
        return f"{len(data)} bytes instead of {len(content)}, equal up to byte {same}"
    zeros = len(data) - len(data.rstrip(b"\0"))
    if zeros > LEAST_LIKE:
        return f"{len(data)} bytes, the last {zeros} of them zero"
    return f"{len(data)} bytes that differ from byte {same} on"


# A page that must be there and is not.


def missing_pages(step: StoreStep) -> Iterator[WrongPage]:
    """The sure pages that an answer does not give, or says are not there."""
    if step.situation.stalled or step.situation.recovering:
        return
    for key, words in _denied(step):
        known = step.before.of(step.handle.identity, key)
        if known.sure:
            law_id, cause = _cause_of_loss(step, key, known)
            yield WrongPage(key, known, law_id, f"{words}: {cause}")


def _denied(step: StoreStep) -> Iterator[tuple[PageKey, str]]:
    """The pages that an answer denies."""
    for key, size, read in reads_of(step):
        known = step.before.of(step.handle.identity, key)
        if read.length is None and known.contents and size >= len(known.contents[0]):
            yield key, f"get gave nothing for {name_in_words(key)}"
    for key, there in said_of(step):
        if not there:
            yield key, f"exists says that {name_in_words(key)} is not there"
    counted = counted_of(step)
    if counted is not None and isinstance(step.call, RunCall):
        for at, key in enumerate(step.call.keys):
            pools = in_every_pool(step, key)
            knowns = [step.before.of(step.handle.identity, each) for each in pools]
            if not all(known.sure for known in knowns):
                return
            if at == counted:
                yield key, f"leading_run ends after {counted} pages, before {name_in_words(key)}"
                return


def _cause_of_loss(  # noqa: PLR0911  # One for each cause.
    step: StoreStep, key: PageKey, known: PageKnown
) -> tuple[str, str]:
    """The law that the loss of a sure page is a matter of, and the cause in words."""
    if step.situation.resumed:
        return "STORE-19", "the store was stopped before, and has been running again"
    if known.mended:
        return "STORE-4", "it was damaged, and a put of it has been acknowledged since"
    if known.overtaken:
        return "STORE-25", f"{Doubt.OVERTAKEN.value}, and one put was acknowledged"
    if known.crashed:
        return "STORE-23", "its put was acknowledged before a process was killed or files damaged"
    if known.refused_over:
        return "STORE-3", "its put was acknowledged, and a second put answered with no"
    if Ability.DURABLE in step.terms.abilities and step.handle.life not in known.lives:
        return "STORE-7", "its put was acknowledged, in another process or before a restart"
    if _has_doubtful_neighbour(step, key):
        return "STORE-13", "another page of the batch cannot be given"
    return "STORE-10", "its put was acknowledged"


def _has_doubtful_neighbour(step: StoreStep, key: PageKey) -> bool:
    """Whether the same get has a page that it may or must not give."""
    for other, size, _ in reads_of(step):
        known = step.before.of(step.handle.identity, other)
        if other != key and (not known.sure or size < len(known.contents[0])):
            return True
    return False


# Room.


OVERHEAD_BYTES = 4096
"""What a store may need beside the bytes of a page before it has to evict or refuse."""


def room_left(step: StoreStep) -> int | None:
    """Bytes that are certainly free after a put; None without a capacity."""
    if step.terms.capacity_bytes is None or not isinstance(step.call, PutCall):
        return None
    new = {(step.handle.identity, key) for key, _ in step.call.pages}
    coming = sum(len(content) + OVERHEAD_BYTES for _, content in step.call.pages)
    there = step.before.stored_bytes(OVERHEAD_BYTES, without=new)
    return step.terms.capacity_bytes - step.terms.slack_bytes - there - coming


def has_room(step: StoreStep) -> bool:
    """Whether the pages of a put certainly fit, beside all others or beside those they follow."""
    left = room_left(step)
    if left is None or left >= 0:
        return True
    if Ability.EVICTS not in step.terms.abilities or not isinstance(step.call, PutCall):
        return False
    coming = sum(len(content) + OVERHEAD_BYTES for _, content in step.call.pages)
    room = (step.terms.capacity_bytes or 0) - step.terms.slack_bytes
    return coming + _bytes_above(step, step.call) <= room


def _bytes_above(step: StoreStep, put: PutCall) -> int:
    """What the pages take that those of a put follow: to evict them would part a prompt."""
    page_size = step.handle.identity.page_size
    above = {
        (key.tokens[:end], key.namespace)
        for key, _ in put.pages
        for end in range(page_size, len(key.tokens), page_size)
    }
    new = {key for key, _ in put.pages}
    return sum(
        max(map(len, known.contents)) + OVERHEAD_BYTES
        for key, known in step.before.put_under(step.handle.identity)
        if known.contents and key not in new and (key.tokens, key.namespace) in above
    )


# Words.


def name_in_words(key: PageKey) -> str:
    """A page as a reader counts it: by its last tokens, its namespace and its pool."""
    tokens = ",".join(map(str, key.tokens[-3:]))
    parts = [f"page ..{tokens}" if len(key.tokens) > 3 else f"page {tokens}"]
    fields_of = (key.namespace.extra_key, key.namespace.cache_salt, key.namespace.lora)
    for name, value in zip(("extra_key", "salt", "lora"), fields_of, strict=True):
        if value is not None:
            parts.append(f"{name}={value!r}")
    if key.pool != "kv":
        parts.append(f"pool {key.pool}")
    return " ".join(parts)


def different_fields(one: StoreIdentity, other: StoreIdentity) -> str:
    """The fields in which another identity differs, with its values."""
    return ", ".join(
        f"{each.name}={getattr(other, each.name)!r}"
        for each in fields(StoreIdentity)
        if getattr(one, each.name) != getattr(other, each.name)
    )
