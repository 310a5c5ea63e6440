"""Laws about calls: every one is answered, in time, for each page, and touches nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import LawClass
from kvcanon.spec.stores.calls import (
    Ability,
    Answered,
    ExistsCall,
    Failed,
    GetCall,
    LookCall,
    Looked,
    OpenCall,
    PageRead,
    PutCall,
    RunCall,
    StoreStep,
)
from kvcanon.spec.stores.findings import counted_of, missing_pages
from kvcanon.spec.stores.store_law import store_law

SOUND, SERVING, POLICY = LawClass.SOUND, LawClass.SERVING, LawClass.POLICY

GRACE_SECONDS = 1.0
"""How much longer than its deadline a call may take on a machine that has other work."""
AT_ONCE = 0.5
"""The share of its deadline in which a call returns that did not wait for it."""
TRIES = 2
"""How many calls may wait for their whole deadline before the store is left alone."""


@store_law(
    "STORE-12",
    SOUND,
    "a call for several pages",
    lambda step: isinstance(step.call, GetCall | ExistsCall) and len(step.call.keys) > 1,
)
def each_page_has_its_answer(step: StoreStep) -> Iterator[str]:
    """A batch is answered page by page: one answer for each, in order, of its type.

    Why: one answer for a whole batch does not say which pages are stored, and all are lost or all
    are trusted.

    Seen broken: LMCache's server mode reports a store only as a whole task (0.5.6);
    https://github.com/sgl-project/sglang/issues/39444
    """
    if not isinstance(step.answer, Answered):
        return
    value = step.answer.value
    if isinstance(step.call, RunCall) and counted_of(step) is None:
        yield f"leading_run answered {value!r}, not a number"
    if isinstance(step.call, PutCall | GetCall | ExistsCall):
        name = {PutCall: "put", GetCall: "get", ExistsCall: "exists"}[type(step.call)]
        pages = step.call.pages if isinstance(step.call, PutCall) else step.call.keys
        kind = PageRead if isinstance(step.call, GetCall) else bool
        if not isinstance(value, tuple) or len(value) != len(pages):
            shown = f"{len(value)} answers" if isinstance(value, tuple) else repr(value)
            yield f"{name} of {len(pages)} pages gave {shown}"
        elif not all(isinstance(each, kind) for each in value):
            yield f"{name} gave an answer that is no {'length' if kind is PageRead else 'bool'}"


@store_law(
    "STORE-15",
    SOUND,
    "a get, with memory around its buffers that is checked",
    lambda step: isinstance(step.call, GetCall) and isinstance(step.answer, Answered),
)
def get_keeps_to_its_buffers(step: StoreStep) -> Iterator[str]:
    """A get writes into the buffers that it was given, and into no other memory.

    Why: the bytes beside a buffer are another request's page.

    Seen broken: https://github.com/sgl-project/sglang/issues/31668
    """
    if isinstance(step.answer, Answered) and step.answer.strayed:
        yield f"get wrote {step.answer.strayed}"


@store_law(
    "STORE-16",
    SOUND,
    "a look at the buffers of a get that was given up, after the store went on",
    lambda step: (
        isinstance(step.call, LookCall) and (step.situation.resumed or step.situation.recovering)
    ),
    needs=(Ability.STALLS,),
)
def abandoned_read_writes_nothing(step: StoreStep) -> Iterator[str]:
    """After a get has returned, its buffers are not written to, also if it was given up.

    Why: the memory has a new owner by then, whose keys and values are overwritten.

    Seen broken: https://github.com/sgl-project/sglang/issues/31296 (use after free),
    https://github.com/vllm-project/vllm/issues/47282
    """
    if isinstance(step.answer, Answered) and isinstance(step.answer.value, Looked):
        yield from step.answer.value.late_writes


@store_law(
    "STORE-17",
    SERVING,
    "a call while the store is stopped",
    lambda step: step.situation.stalled and step.judges_time,
    needs=(Ability.STALLS,),
)
def calls_end_by_their_deadline(step: StoreStep) -> Iterator[str]:
    """No call outlasts the deadline that the store promises, whatever its server or disk does.

    A store that can stall and promises no deadline breaks this law: it holds its caller for ever.

    Why: a stopped store must cost a request no more than a miss.

    Seen broken: a get of Mooncake waits 30 s for a stopped peer; redis-py waits 10.5 s with
    `socket_timeout=0.5`, since it tries again; https://github.com/sgl-project/sglang/issues/35181
    """
    deadline = step.terms.deadline_seconds
    if step.situation.stalled and step.judges_time:
        if deadline is None:
            if isinstance(step.answer, Failed):
                yield f"the call {step.answer.words}, and the store promises no deadline"
        elif step.seconds > deadline + GRACE_SECONDS:
            yield f"the call took {step.seconds:.1f} s, and the deadline is {deadline:g} s"


def _tried_enough(step: StoreStep) -> bool:
    return (
        step.situation.stalled
        and step.judges_time
        and step.terms.deadline_seconds is not None
        and len(step.situation.timeouts) >= TRIES
    )


@store_law(
    "STORE-18",
    POLICY,
    "a third call while the store is stopped",
    _tried_enough,
    needs=(Ability.STALLS,),
)
def failing_store_is_left_alone(step: StoreStep) -> Iterator[str]:
    """After two calls that waited for their whole deadline, the next return at once for a while.

    Why: a request asks a store several times. Each waits in vain for the whole deadline, and with
    them every request of the server.

    Seen broken: lookup, load, time out, abort, in a loop
    (https://github.com/sgl-project/sglang/issues/31315).
    """
    deadline = step.terms.deadline_seconds
    if not _tried_enough(step) or deadline is None:
        return
    all_waited = min(*step.situation.timeouts, step.seconds) > deadline * AT_ONCE
    if all_waited:
        count = len(step.situation.timeouts) + 1
        yield f"call {count} to the stopped store waited {step.seconds:.2f} s again"


@store_law(
    "STORE-19",
    SERVING,
    "a call after the store was stopped and has come back",
    lambda step: step.situation.resumed,
    needs=(Ability.STALLS,),
)
def store_is_used_again(step: StoreStep) -> Iterator[str]:
    """When a stopped store has come back, its pages are found again, and puts are served.

    Why: a store that is left alone for ever after one stop is lost until somebody restarts the
    server.

    Seen broken: https://github.com/sgl-project/sglang/issues/30760
    """
    yield from (each.words for each in missing_pages(step) if each.law_id == "STORE-19")


@store_law(
    "STORE-20",
    SERVING,
    "a look at the size of a store with a capacity",
    lambda step: isinstance(step.call, LookCall) and step.terms.capacity_bytes is not None,
    needs=(Ability.EVICTS,),
)
def size_is_bounded(step: StoreStep) -> Iterator[str]:
    """A store with a capacity never takes more room than that.

    Why: a disk that is full stops more than the cache.

    Seen broken: https://github.com/LMCache/LMCache/issues/649,
    https://github.com/vllm-project/vllm/issues/54779
    """
    most = step.terms.capacity_bytes
    if isinstance(step.answer, Answered) and isinstance(step.answer.value, Looked):
        used = step.answer.value.used_bytes
        if most is not None and used is not None and used > most:
            yield f"the store takes {used} bytes, and its capacity is {most}"


@store_law("STORE-27", SERVING, "a call", lambda step: not isinstance(step.call, LookCall))
def calls_are_answered(step: StoreStep) -> Iterator[str]:
    """Every call answers: what goes wrong inside is a no or a miss, not an exception.

    Why: engines call a store from one thread, without a net. An exception there ends the thread,
    and with it every load that comes after.

    Seen broken: a truncated page killed the only I/O thread of SGLang's HiCache
    (https://github.com/sgl-project/sglang/issues/39269).
    """
    if not isinstance(step.answer, Failed) or step.answer.killed:
        return
    opens_after_trouble = isinstance(step.call, OpenCall) and bool(step.call.after)
    waits_in_a_stall = step.answer.silent and step.situation.stalled
    if not (opens_after_trouble or waits_in_a_stall):
        name = type(step.call).__name__.removesuffix("Call").lower()
        yield f"{'leading_run' if name == 'run' else name} {step.answer.words}"
