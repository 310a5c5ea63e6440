"""The calls of a case in words, as a report and a page of a law show them.

A call is written as the user would make it. A page is the letter of its prompt and its number, as
`A3`, and `A3/index` in the second pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kvcanon.conformance.stores.case import StoreCase
from kvcanon.conformance.stores.played import PlayedStep
from kvcanon.conformance.stores.prompts import PAGES, PROMPTS, identity_of, page_key
from kvcanon.spec.stores.calls import (
    ExistsCall,
    Failed,
    GetCall,
    Interruption,
    LookCall,
    Looked,
    OpenCall,
    PageRead,
    PutCall,
    RemoveCall,
    RunCall,
)
from kvcanon.spec.stores.findings import different_fields
from kvcanon.spec.stores.pages import PageKey

PROMPT_NAMES = "ABCDEFGHIJKLMNOP"
MOST_SHOWN = 16
"""Pages of a call that are written out; of more, the first ones and the last."""


def steps_in_words(case: StoreCase, steps: Sequence[PlayedStep]) -> Iterator[str]:
    """Each call with its answer, a line each."""
    names = _PageNames(case)
    for step in steps:
        writer = f"w{step.writer}." if case.writers > 1 else ""
        note = f"   # {step.note}" if step.note else ""
        yield f"{writer}{names.call(step)} -> {_answer(step)}{note}"


def terms_in_words(case: StoreCase) -> str:
    """The terms of a case: sizes, pools, and who opens the store with which identity."""
    parts = [f"pages of {case.page_bytes} bytes"]
    if case.pools > 1:
        parts.append(f"{case.pools} pools")
    if case.capacity_pages:
        parts.append(f"room for {case.capacity_pages} pages")
    if case.writers > 1:
        parts.append(f"{case.writers} writers")
        last = identity_of(case, case.writers - 1)
        if case.other:
            fields = different_fields(identity_of(case, 0), last)
            parts.append(f"w{case.writers - 1} opens the store with {fields}")
    return ", ".join(parts)


class _PageNames:
    """Short names of the pages of a case."""

    def __init__(self, case: StoreCase) -> None:
        self.names: dict[PageKey, str] = {}
        sizes = {identity_of(case, writer).page_size for writer in range(case.writers)}
        for prompt in range(PROMPTS):
            for page in range(PAGES * case.stretch):
                for size in sizes:
                    for pool in ("kv", "index"):
                        key = page_key(prompt, page, size, pool)
                        end = "" if pool == "kv" else f"/{pool}"
                        self.names.setdefault(key, f"{PROMPT_NAMES[prompt]}{page}{end}")

    def of(self, key: PageKey) -> str:
        """The name of a page."""
        space = key.namespace
        given = (("extra_key", space.extra_key), ("salt", space.cache_salt), ("lora", space.lora))
        words = ",".join(f"{name}={value!r}" for name, value in given if value is not None)
        return self.names[key] + (f"({words})" if words else "")

    def several(self, keys: Sequence[PageKey]) -> str:
        """The names of pages."""
        names = [*map(self.of, keys)]
        if len(names) > MOST_SHOWN:
            return f"{names[0]} {names[1]} ... {names[-1]}: {len(names)} pages"
        return " ".join(names)

    def call(self, step: PlayedStep) -> str:
        """A call."""
        call = step.call
        if isinstance(call, OpenCall):
            return f"open(){f' after {call.after}' if call.after else ''}"
        if isinstance(call, LookCall):
            return "look at the buffers of earlier gets, and at the size"
        if isinstance(call, PutCall):
            how = f" ({_HOW[call.interruption]})" if call.interruption.value != "none" else ""
            return f"put({self.several([key for key, _ in call.pages])}){how}"
        name = _NAMES[type(call)]
        sizes = ""
        if isinstance(call, GetCall) and len({*call.sizes}) > 1:
            sizes = f", buffers of {' '.join(map(str, call.sizes))} bytes"
        return f"{name}({self.several(call.keys)}{sizes})"


_NAMES = {
    GetCall: "get",
    ExistsCall: "exists",
    RunCall: "leading_run",
    RemoveCall: "remove",
}
_HOW = {
    Interruption.KILLED: "the process may be killed in it",
    Interruption.WRITES_FAIL: "files cannot grow beyond a size",
    Interruption.OVERTAKEN: "two writers at once",
}


def _answer(step: PlayedStep) -> str:
    answer = step.answer
    if isinstance(answer, Failed):
        return answer.words
    value = answer.value
    if isinstance(value, Looked):
        used = "" if value.used_bytes is None else f"{value.used_bytes} bytes"
        return "; ".join([*value.late_writes, *([used] if used else [])]) or "nothing"
    if isinstance(value, tuple):
        return _all_of([*map(_one, value)]) or "nothing"
    return "done" if value is None else repr(value)


def _all_of(words: list[str]) -> str:
    """The answers for each page; of many, those that are alike one after the other are counted."""
    if len(words) <= MOST_SHOWN:
        return " ".join(words)
    runs = [(word, len([*alike])) for word, alike in groupby(words)]
    return ", ".join(f"{count} times {word}" for word, count in runs)


def _one(value: object) -> str:
    if isinstance(value, PageRead):
        return "miss" if value.length is None else f"{value.length} bytes"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value)
