"""Laws about the bytes that a get gives: what was put under the name, whole, or nothing.

One wrong page breaks one of these laws, that of its cause (`findings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.calls import Ability, GetCall, StoreStep
from kvcanon.spec.stores.findings import (
    different_fields,
    has_room,
    missing_pages,
    name_in_words,
    put_as_another,
    puts_of,
    reads_of,
    said_of,
    serves,
    wrong_bytes,
)
from kvcanon.spec.stores.known import Doubt, PageKnown
from kvcanon.spec.stores.store_law import store_law

SOUND, SERVING = LawClass.SOUND, LawClass.SERVING


def asks_for(is_it: Callable[[PageKnown], bool]) -> Callable[[StoreStep], bool]:
    """The premise that a get reads a page of which this is known."""

    def is_met(step: StoreStep) -> bool:
        return isinstance(step.call, GetCall) and any(
            is_it(step.before.of(step.handle.identity, key)) for key in step.call.keys
        )

    return is_met


def _wrong(step: StoreStep, law_id: str) -> Iterator[str]:
    yield from (each.words for each in wrong_bytes(step) if each.law_id == law_id)


def _missing(step: StoreStep, law_id: str) -> Iterator[str]:
    yield from (each.words for each in missing_pages(step) if each.law_id == law_id)


@store_law("STORE-1", SOUND, "a get of a page that was put", asks_for(lambda known: known.sure))
def page_is_whole(step: StoreStep) -> Iterator[str]:
    """A get gives the bytes that were put under the name, all of them, or nothing.

    A page that is larger than its buffer is a miss: who asks for fewer bytes wants another page.

    Why: the engine reads what it is given as keys and values, and answers fluently from another
    prompt's memory. Nothing crashes.

    Seen broken: SGLang's `file` store reads as many bytes as are asked for and never looks at the
    length of the file (0.5.23); a transfer of Mooncake outlived its lease
    (https://github.com/kvcache-ai/Mooncake/issues/850).
    """
    yield from _wrong(step, "STORE-1")


@store_law(
    "STORE-2",
    SOUND,
    "a get of a page whose file was damaged",
    asks_for(lambda known: known.doubt is Doubt.DAMAGED),
    needs=(Ability.FILES,),
)
def damaged_page_is_a_miss(step: StoreStep) -> Iterator[str]:
    """A page whose stored bytes were cut, flipped, zeroed or lengthened is a miss.

    Why: a power cut can leave zeros under a good name, and a disk flips bits. A file name proves
    nothing about what is in the file.

    Seen broken: https://github.com/vllm-project/vllm/issues/54363 asks for it; SGLang's `file`
    store serves a half zeroed page (0.5.23).
    """
    yield from _wrong(step, "STORE-2")


def _refused_put(step: StoreStep) -> bool:
    doubtful = asks_for(lambda known: known.doubt is Doubt.REFUSED or known.refused_over)
    return doubtful(step)


@store_law("STORE-3", SOUND, "a get of a page whose put was answered with no", _refused_put)
def failed_put_leaves_no_trace(step: StoreStep) -> Iterator[str]:
    """After a put that was answered with no, the page is what it was before, or whole.

    Why: half a page under a good name is served to whoever asks next; and a page that was there
    before must not be the price of a failed try.

    Seen broken: a failed store stays visible, and is read as gibberish
    (https://github.com/LMCache/LMCache/issues/4991).
    """
    yield from _wrong(step, "STORE-3")
    yield from _missing(step, "STORE-3")


def _mended(step: StoreStep) -> bool:
    puts_over = any(
        step.before.of(step.handle.identity, key).spoiled for key, _, _ in puts_of(step)
    )
    return puts_over or asks_for(lambda known: known.mended)(step)


@store_law("STORE-4", SERVING, "a put over a page that was damaged or half written", _mended)
def put_repairs(step: StoreStep) -> Iterator[str]:
    """A put over a page that is damaged or cannot be read makes it whole again.

    Why: otherwise the name is poisoned: the engine computes the page again and again, puts it, is
    told that it is stored, and never gets it.

    Seen broken: SGLang's `file` store answers a put of a file that is there with yes and writes
    nothing (0.5.23), whatever is in the file.
    """
    yield from _wrong(step, "STORE-4")
    yield from _missing(step, "STORE-4")
    if not (serves(step) and has_room(step)):
        return
    for key, _, done in puts_of(step):
        if step.before.of(step.handle.identity, key).spoiled and not done:
            yield f"put answered no for {name_in_words(key)}, which was spoiled before"


def _others(step: StoreStep) -> bool:
    asked = {key for key, _, _ in reads_of(step)} | {key for key, _ in said_of(step)}
    return any(
        identity != step.handle.identity and key in asked for identity, key in step.before.pages
    )


@store_law("STORE-5", SOUND, "a question for a page that was put with another identity", _others)
def identity_is_in_the_name(step: StoreStep) -> Iterator[str]:
    """A store that is opened with one identity never gives a page that was put with another.

    The identity is all that the bytes depend on besides tokens and namespace: weights,
    configuration, KV dtype, layout, page size, rank and number of ranks.

    Why: a new checkpoint under the same path, a server restarted with another dtype, or with four
    ranks in place of two, reads keys and values of the old one as its own.

    Seen broken: dtype (https://github.com/sgl-project/sglang/issues/33268), layout
    (https://github.com/vllm-project/vllm/issues/55904), RoPE
    (https://github.com/vllm-project/vllm/issues/56311); SGLang's `file` store has neither weights
    nor dtype nor layout in its names (0.5.23).
    """
    yield from _wrong(step, "STORE-5")
    for key, there in said_of(step):
        identity = put_as_another(step, key)
        if there and identity and step.before.of(step.handle.identity, key).absent:
            fields = different_fields(step.handle.identity, identity)
            yield f"exists says that {name_in_words(key)} is there: it is, with {fields}"


def _like_named(step: StoreStep) -> bool:
    asked = {key for key, _, _ in reads_of(step)} | {key for key, _ in said_of(step)}
    return any(
        identity == step.handle.identity
        and any(each.tokens == key.tokens and each != key for each in asked)
        for identity, key in step.before.pages
    )


@store_law(
    "STORE-6",
    SOUND,
    "a question for a page that was put in another namespace or pool",
    _like_named,
    needs=(Ability.NAMESPACES,),
)
def names_are_injective(step: StoreStep) -> Iterator[str]:
    """Pages with other tokens, in another namespace or in another pool have other names.

    Why: a tenant is served from another's prompt, or a LoRA from the base model's keys and values.

    Seen broken: https://github.com/sgl-project/sglang/issues/36376 (LoRA),
    https://github.com/vllm-project/vllm/issues/53495
    """
    yield from _wrong(step, "STORE-6")
    for key, there in said_of(step):
        if there and step.before.of(step.handle.identity, key).absent:
            for identity, other in step.before.pages:
                if (identity, other.tokens) == (step.handle.identity, key.tokens) and other != key:
                    words = f"{name_in_words(key)} is there; put was {name_in_words(other)}"
                    yield f"exists says that {words}"
                    break


def _after_a_kill(step: StoreStep) -> bool:
    return asks_for(lambda known: known.doubt is Doubt.KILLED or known.crashed)(step)


@store_law(
    "STORE-24",
    SOUND,
    "a get of a page whose process was killed in its put",
    _after_a_kill,
    needs=(Ability.DURABLE,),
)
def crash_leaves_no_wrong_page(step: StoreStep) -> Iterator[str]:
    """Whenever a process was killed, what a get gives afterwards is a whole page, or nothing.

    Why: servers are killed while they write, by an out-of-memory killer or an impatient
    orchestrator, and start again over the same folder.

    Seen broken: pages that are written in place, 5 of 228 torn after 15 kills
    (https://github.com/LMCache/LMCache/issues/562 is about such restarts).
    """
    yield from _wrong(step, "STORE-24")


@store_law(
    "STORE-25",
    SOUND,
    "a get of a page that two writers put at once",
    asks_for(lambda known: known.overtaken),
    needs=(Ability.SHARED,),
)
def writers_leave_one_page(step: StoreStep) -> Iterator[str]:
    """Two writers of one page leave one of the two pages, whole.

    Why: ranks of one model, and servers over one folder, store the same prompt at the same moment.

    Seen broken: two writers share the name of the file that they write before they rename it
    (https://github.com/LMCache/LMCache/issues/4991); ranks race on one file
    (https://github.com/sgl-project/sglang/issues/26670).
    """
    yield from _wrong(step, "STORE-25")
    yield from _missing(step, "STORE-25")


@store_law(
    "STORE-26",
    SOUND,
    "a question for a page that was removed",
    lambda step: any(
        step.before.of(step.handle.identity, key).doubt is Doubt.REMOVED
        for key in [
            *(key for key, _, _ in reads_of(step)),
            *(key for key, _ in said_of(step)),
        ]
    ),
    needs=(Ability.REMOVES,),
)
def removed_page_is_gone(step: StoreStep) -> Iterator[str]:
    """A page that was removed is not there, also after a restart, until it is put again.

    Why: pages are removed because they are wrong, or because a tenant is gone.

    Seen broken: not seen
    """
    yield from _wrong(step, "STORE-26")
    for key, there in said_of(step):
        if there and step.before.of(step.handle.identity, key).doubt is Doubt.REMOVED:
            yield f"exists says that {name_in_words(key)} is there, which was removed"
