"""Faults of a fake engine, each of which a probe must find, and what it must find them as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from fakes.model import EventSender, FakeEngine, FakeRun, config_of, has_ended
from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.reference.engine import InlineEngine
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.operations import Matched
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import Key, Namespace, Page, Slots

Plant = Callable[[FakeEngine], None]

PLAIN: Mapping[str, int] = {}
HOST = {"host": 400}
WINDOW = {"window": 16, "window_pages": 64, "pool_pages": 128}


@frozen
class EngineFault:
    """A fault: how it is planted, what engine it needs, and what it is found as."""

    plant: Plant
    found_as: frozenset[ProbeFault]
    engine: Mapping[str, int] = PLAIN
    round: str = "forks"
    """The round that shows it."""
    needs_events: bool = False
    dialects: tuple[str, ...] = ("sglang", "vllm", "chat")
    replaced: tuple[str | None, ...] = ()
    """Whose weights are replaced while it is probed: an adapter's, or the model's (None)."""
    copies: Direction | None = None
    """The direction whose copies are one page off."""


class CopiesOff(InlineEngine):
    """Copies of one direction take each page from the place of the page before it."""

    def __init__(self, direction: Direction) -> None:
        super().__init__()
        self.direction = direction
        self.pools: Any = None

    def poll(self) -> tuple[Completion, ...]:
        for order in self._open:
            order.perform()
            if order.direction is not self.direction:
                continue
            for copy in order.copies:
                sources = self.pools[copy.component, order.direction.source].payloads
                targets = self.pools[copy.component, order.direction.target].payloads
                rolled = (*copy.sources[-1:], *copy.sources[:-1])
                for source, target in zip(rolled, copy.targets, strict=True):
                    targets[target] = sources[source]
        orders, self._open = self._open, []
        return tuple(Completion(order.transfer_id, ok=True) for order in orders)


def faulty_engine(fault: EngineFault, events: EventSender | None = None) -> FakeEngine:
    """An engine with a fault."""
    copies = None if fault.copies is None else CopiesOff(fault.copies)
    engine = FakeEngine(config_of(**fault.engine), copies, events)
    if copies is not None:
        copies.pools = engine.cache._state.pools
    fault.plant(engine)
    return engine


def nothing_else(_engine: FakeEngine) -> None:
    """The fault is in the copies."""


def wrong_slot_after_split(engine: FakeEngine) -> None:
    """A hit that ends where no prompt ended has the slot of its first page as its last."""
    ends, insert = set[Key](), engine.insert

    def noted(key: Key, start_pages: int, slots: Slots) -> None:
        ends.add(key)
        insert(key, start_pages, slots)

    def table(key: Key, slots: Slots) -> Slots:
        if len(key) < 2 or key in ends:
            return slots
        return evolve(slots, full=(*slots.full[:-1], slots.full[0]))

    _replace(engine, insert=noted, table=table)


def insert_swaps_pages(engine: FakeEngine) -> None:
    """The last two pages of an insert change places."""
    insert = engine.insert

    def swapped(key: Key, start_pages: int, slots: Slots) -> None:
        full = slots.full
        insert(key, start_pages, evolve(slots, full=(*full[:-2], *full[-1:], *full[-2:-1])))

    _replace(engine, insert=swapped)


def salt_ignored(engine: FakeEngine) -> None:
    """Prompts of all salts share."""
    key = engine.key
    _replace(
        engine,
        key=lambda run, tokens: evolve(
            key(run, tokens), namespace=evolve(run.namespace, cache_salt=None)
        ),
    )


def lora_ignored(engine: FakeEngine) -> None:
    """Prompts of all adapters share."""
    key = engine.key
    _replace(
        engine,
        key=lambda run, tokens: evolve(
            key(run, tokens), namespace=evolve(run.namespace, lora=None)
        ),
    )


def pages_by_first_token(engine: FakeEngine) -> None:
    """Two pages with the same first token are taken for one."""
    key = engine.key

    def shortened(run: FakeRun, tokens: Sequence[int]) -> Key:
        made = key(run, tokens)
        return evolve(made, pages=tuple((page[0],) * len(page) for page in made.pages))

    _replace(engine, key=shortened)


def parent_ignored(engine: FakeEngine) -> None:
    """A page is found by its own tokens, whatever the pages before it."""
    key = engine.key
    paths: dict[tuple[Namespace, int, Page], tuple[Page, ...]] = {}

    def by_last_page(run: FakeRun, tokens: Sequence[int]) -> Key:
        made = key(run, tokens)
        pages = made.pages
        for at in range(len(pages) - 1, 0, -1):
            path = paths.get((made.namespace, at, pages[at]))
            if path is not None:
                pages = path + pages[at + 1 :]
                break
        for at in range(len(pages)):
            paths.setdefault((made.namespace, at, pages[at]), pages[: at + 1])
        return evolve(made, pages=pages)

    _replace(engine, key=by_last_page)


def hit_one_page_short(engine: FakeEngine) -> None:
    """The last page of a hit is not found."""
    match = engine.cache.match

    def shorter(key: Key) -> Matched:
        found = match(key)
        return match(key.prefix(found.prefix_pages - 1)) if found.prefix_pages else found

    _replace(engine.cache, match=shorter)


def counts_one_page_more(engine: FakeEngine) -> None:
    """A hit is reported with one page more than it has."""
    admit = engine.admit

    def admitted(run: FakeRun) -> None:
        admit(run)
        if run.device_tokens:
            run.device_tokens += engine.config.page_size

    _replace(engine, admit=admitted)


def match_refreshes_nothing(engine: FakeEngine) -> None:
    """A match leaves recency as it is: the oldest prompt leaves first, however often it is used."""
    match = engine.cache.match

    def unused(key: Key) -> Matched:
        nodes = engine.cache._state.root
        before = {id(node): node.last_access for node in _below(nodes)}
        found = match(key)
        for node in _below(nodes):
            node.last_access = before.get(id(node), node.last_access)
        return found

    _replace(engine.cache, match=unused)


def window_refreshed_too_far(engine: FakeEngine) -> None:
    """A match makes recent the windows of all prompts that ended on its path."""
    ends, insert, match = set[Key](), engine.insert, engine.cache.match

    def noted(key: Key, start_pages: int, slots: Slots) -> None:
        ends.add(key)
        insert(key, start_pages, slots)

    def too_far(key: Key) -> Matched:
        found = match(key)
        for pages in range(1, found.device_pages):
            if key.prefix(pages) in ends:
                match(key.prefix(pages))
        return match(key)

    _replace(engine, insert=noted)
    _replace(engine.cache, match=too_far)


def abort_leaves_lock(engine: FakeEngine) -> None:
    """A request that was aborted keeps its lock."""
    release = engine.release
    _replace(engine, release=lambda run: None if run.aborted else release(run))


def lock_forgotten(engine: FakeEngine) -> None:
    """What a request reads is not locked."""
    admit = engine.admit

    def admitted(run: FakeRun) -> None:
        admit(run)
        engine.release(run)

    _replace(engine, admit=admitted, insert=_dropped_if_cut_off(engine))


def _dropped_if_cut_off(engine: FakeEngine) -> Callable[..., None]:
    """An insert that keeps nothing where the pages before it have left."""
    insert = engine.insert

    def inserted(key: Key, start_pages: int, slots: Slots) -> None:
        try:
            insert(key, start_pages, slots)
        except PrefixNotCached:
            engine.cache.free(slots)

    return inserted


def lock_is_a_flag(engine: FakeEngine) -> None:
    """The first request that ends unlocks what others share with it."""
    admit, release = engine.admit, engine.release
    running: list[FakeRun] = []

    def admitted(run: FakeRun) -> None:
        running.append(run)
        admit(run)

    def released(run: FakeRun) -> None:
        for each in running:
            if each.tokens[:1] == run.tokens[:1]:
                release(each)
        running.remove(run)

    insert = _dropped_if_cut_off(engine)
    _replace(engine, admit=admitted, release=released, insert=insert)


def reply_not_kept(engine: FakeEngine) -> None:
    """Only the pages of prompts stay, not those of replies."""
    admit, insert = engine.admit, engine.insert
    prompts = dict[int, int]()
    ending = [0]
    finish = engine.finish

    def admitted(run: FakeRun) -> None:
        prompts.setdefault(id(run), len(run.tokens))
        admit(run)

    def finished(run: FakeRun) -> None:
        # Not every request inserts, and one that comes later may have its id.
        ending[0] = prompts.pop(id(run))
        finish(run)

    def shortened(key: Key, start_pages: int, slots: Slots) -> None:
        pages = max(start_pages, ending[0] // engine.config.page_size)
        kept = pages - start_pages
        if kept:
            insert(key.prefix(pages), start_pages, Slots(slots.full[:kept], slots.swa[:kept]))
        engine.cache.free(Slots(slots.full[kept:], slots.swa[kept:]))

    _replace(engine, admit=admitted, finish=finished, insert=shortened)


def end_spoils_the_tail(engine: FakeEngine) -> None:
    """Where a reply ends early, its last page is another's."""
    finish, insert = engine.finish, engine.insert
    early = [False]

    def finished(run: FakeRun) -> None:
        early[0] = has_ended(run)
        finish(run)

    def spoiled(key: Key, start_pages: int, slots: Slots) -> None:
        full = slots.full
        swapped = (*full[:-2], *full[-1:], *full[-2:-1]) if early[0] else full
        insert(key, start_pages, evolve(slots, full=swapped))

    _replace(engine, finish=finished, insert=spoiled)


def _lose(engine: FakeEngine, pages: int) -> None:
    """Take pages for nobody."""
    engine.room(pages)
    engine.lost_pages += pages


def abort_loses_pages(engine: FakeEngine) -> None:
    """A request that is aborted loses two pages."""
    finish = engine.finish

    def finished(run: FakeRun) -> None:
        finish(run)
        if run.aborted:
            _lose(engine, 2)

    _replace(engine, finish=finished)


def speculation_reserves_twice(engine: FakeEngine) -> None:
    """A page for the tokens of the draft model is taken twice, and given back once."""
    engine.speculates = True
    finish, served = engine.finish, [0]

    def finished(run: FakeRun) -> None:
        finish(run)
        served[0] += 1
        # Some of them only, since the pool is small.
        if served[0] % 8 == 0:
            _lose(engine, 1)

    _replace(engine, finish=finished)


def refused_admission_keeps_its_lock(engine: FakeEngine) -> None:
    """A request that has to wait for room leaves what it had found locked, the first time."""
    take_back, finish, waiting = engine.take_back, engine.finish, set[int]()

    def kept(run: FakeRun) -> None:
        if id(run) not in waiting:
            waiting.add(id(run))
            run.receipt = None
        take_back(run)

    def finished(run: FakeRun) -> None:
        waiting.discard(id(run))
        finish(run)

    _replace(engine, take_back=kept, finish=finished)


def preemption_loses_a_token(engine: FakeEngine) -> None:
    """A request that was taken back goes on without its last token."""
    engine.grows = True
    preempt = engine.preempt

    def preempted(run: FakeRun) -> None:
        preempt(run)
        run.tokens.pop()

    _replace(engine, preempt=preempted)


def replaced_weights_keep_their_data(engine: FakeEngine) -> None:
    """What old weights computed stays in the cache."""
    _replace(engine, drop_old=lambda: None)


def removal_lost(engine: FakeEngine) -> None:
    """Of the removals of a step, the last is not sent: that of the page nearest to the root."""
    _replace_events(engine, lambda events: _without_first(events[::-1], BlockRemoved)[::-1])


def store_lost(engine: FakeEngine) -> None:
    """Of the stores of a step, the last is not sent."""
    _replace_events(engine, lambda events: _without_first(events[::-1], BlockStored)[::-1])


def _replace_events(engine: FakeEngine, change: Callable[[list[Event]], list[Event]]) -> None:
    take = engine.cache.take_events
    _replace(engine.cache, take_events=lambda: tuple(change(list(take()))))


def _without_first(events: list[Event], kind: type[Event]) -> list[Event]:
    at = next((at for at, event in enumerate(events) if isinstance(event, kind)), None)
    return events if at is None else events[:at] + events[at + 1 :]


def _below(node: Any) -> list[Any]:  # noqa: ANN401
    return [node, *(each for child in node.children.values() for each in _below(child))]


def _replace(thing: object, **methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        setattr(thing, name, method)


_TOKENS = frozenset({ProbeFault.TOKENS})
_IN_USE = frozenset({ProbeFault.TOKENS, ProbeFault.IN_USE})
_SHARED = frozenset({ProbeFault.SHARED})
_HELD = frozenset({ProbeFault.HELD})
_STALE = frozenset({ProbeFault.STALE})

COMPLETIONS = ("sglang", "vllm")
"""Prompts as token ids. A copy that is off shows in few requests of a chat only with what else is
cached, so that a script of them may not show it."""

FAULTS: Mapping[str, EngineFault] = {
    "wrong slot after a split": EngineFault(wrong_slot_after_split, _TOKENS),
    "insert swaps pages": EngineFault(insert_swaps_pages, _TOKENS),
    "load-back one page off": EngineFault(
        nothing_else, _TOKENS, HOST, "pressure", copies=Direction.LOAD_BACK, dialects=COMPLETIONS
    ),
    "backup one page off": EngineFault(
        nothing_else, _TOKENS, HOST, "pressure", copies=Direction.BACKUP, dialects=COMPLETIONS
    ),
    "salt ignored": EngineFault(salt_ignored, _SHARED, round="namespaces"),
    "LoRA ignored": EngineFault(lora_ignored, _SHARED, round="namespaces"),
    "pages by their first token": EngineFault(
        # What the template of a chat adds hides a page too many, and its tokens are wrong.
        pages_by_first_token,
        frozenset({ProbeFault.TOO_MANY, ProbeFault.TOKENS}),
    ),
    "parent ignored": EngineFault(parent_ignored, frozenset({ProbeFault.TOO_MANY}), round="mixed"),
    "hit one page short": EngineFault(hit_one_page_short, frozenset({ProbeFault.TOO_FEW})),
    "count one page more": EngineFault(counts_one_page_more, frozenset({ProbeFault.TOO_MANY})),
    "match refreshes nothing": EngineFault(
        # In a chat prompts share a beginning, and the insert of the second makes the first recent.
        match_refreshes_nothing,
        frozenset({ProbeFault.ORDER}),
        round="order",
        dialects=("sglang", "vllm"),
    ),
    "window refreshed too far": EngineFault(
        window_refreshed_too_far,
        frozenset({ProbeFault.WINDOW_ORDER}),
        WINDOW,
        "window order",
        dialects=("sglang",),
    ),
    "abort leaves a lock": EngineFault(
        abort_leaves_lock, frozenset({ProbeFault.HELD}), round="pressure"
    ),
    "lock forgotten": EngineFault(lock_forgotten, _IN_USE, round="together", dialects=("sglang",)),
    "lock is a flag": EngineFault(lock_is_a_flag, _IN_USE, round="together", dialects=("vllm",)),
    "reply not kept": EngineFault(
        reply_not_kept,
        frozenset({ProbeFault.TOO_FEW}),
        round="chats",
        dialects=("sglang", "vllm"),
    ),
    "end spoils the tail": EngineFault(end_spoils_the_tail, _TOKENS, round="endings"),
    "abort loses pages": EngineFault(abort_loses_pages, _HELD, round="aborts"),
    "speculation reserves twice": EngineFault(speculation_reserves_twice, _HELD),
    "refused admission keeps its lock": EngineFault(
        refused_admission_keeps_its_lock, _HELD, round="crowded"
    ),
    "preemption loses a token": EngineFault(preemption_loses_a_token, _TOKENS, round="crowded"),
    "replaced model keeps its data": EngineFault(
        replaced_weights_keep_their_data, _STALE, round="changed", replaced=(None,)
    ),
    "replaced adapter keeps its data": EngineFault(
        replaced_weights_keep_their_data, _STALE, round="changed", replaced=("tuned",)
    ),
    "removal lost": EngineFault(
        removal_lost, frozenset({ProbeFault.PROMISED}), round="pressure", needs_events=True
    ),
    "store lost": EngineFault(
        store_lost, frozenset({ProbeFault.UNPROMISED, ProbeFault.STREAM}), needs_events=True
    ),
}
"""The faults, by name."""
