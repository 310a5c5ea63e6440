"""What a cache that is used by requests tells routers, beside what its block tables say.

The laws of streams are asked as they stand. What else is judged compares the sum of the events with
what is reused: a prefix that was announced is found, and one that is found was announced.

What readers get wrong: no state is seen here. That a page which nobody asks for again was announced
rightly is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from kvcanon.conformance.blackbox.request.state import ObservedRequests, Prompt
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Residency,
    Resident,
)
from kvcanon.spec.law import LAWS, Stream
from kvcanon.spec.laws.page_hashes import short
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, DEFAULT_NAMESPACE, FULL, GPU

STREAM_LAWS = ("EVENT-1", "EVENT-2", "EVENT-6", "EVENT-9")
"""Laws of streams that look at no state, only at the configuration."""


@define(eq=False)
class EventChecker:
    """What the events have said so far."""

    seen: ObservedRequests
    profile: Profile = CANON
    told: set[Resident] = Factory(set)
    parents: dict[bytes, bytes | None] = Factory(dict)
    """The page before each page that was ever announced."""

    def hear(self, asked: str, events: Sequence[Event], *, refused: bool) -> None:
        """Take the events of an operation, and say what is wrong with them."""
        config = self.seen.config
        if not config.events:
            text = "events are off, and some were sent" if events else None
            self.seen.check("EVENT-5", text, met=False)
            return
        blank = _nothing_but(self.seen, self.profile)
        stream = Stream(Residency(self.told), tuple(events), blank)
        for law_id in STREAM_LAWS:
            law = LAWS[law_id]
            met = law.premise.is_met(stream)
            self.seen.check(law_id, next(law.check(stream), None), met=met)
        self._check_sender(asked, events, refused=refused)
        for event in events:
            self._hear_one(asked, event)
        if not self.profile.removes_end_first:
            # What nodes there are is not seen: all that leaves at once may be of one.
            for event in events:
                if isinstance(event, BlockRemoved):
                    self._check_orphans(event)
        on_device = sum(medium is GPU for medium, _ in self.told)
        self.seen.check(
            "EVENT-4",
            f"the events say that {on_device} pages are on {GPU}, which has fewer slots"
            if on_device > self.seen.capacity(FULL)
            else None,
            met=bool(self.told),
        )

    def prefix_pages(self, prompt: Prompt, *, with_host: bool) -> int:
        """How many leading pages of a prompt are there, as far as events tell."""
        for page, name in enumerate(prompt.names):
            if (GPU, name) not in self.told and not (with_host and (CPU, name) in self.told):
                return page
        return len(prompt.names)

    def check_reuse(self, prompt: Prompt, reused: int) -> None:
        """What is reused is what was announced; asked before the events of the call are heard."""
        if not self.seen.config.events:
            return
        at_most = self.prefix_pages(prompt, with_host=True)
        self.seen.check(
            "EVENT-4",
            f"{reused} pages are reused, of which the events have told {at_most}"
            if reused > at_most
            else None,
            met=reused > 0,
        )
        at_least = min(self.prefix_pages(prompt, with_host=False), len(prompt.key) - 1)
        if self.seen.full_only:
            self.seen.check(
                "EVENT-4",
                f"the events say that {at_least} pages of the prompt are on {GPU}, and {reused} "
                "are reused"
                if reused < at_least
                else None,
                met=at_least > 0,
            )

    def check_freed(self, freed: int) -> None:
        """An eviction found a victim, or nothing is there, while no request runs."""
        left = [name for medium, name in self.told if medium is GPU]
        self.seen.check(
            "EVICT-1",
            f"nothing was freed, and the events say that {len(left)} pages are on {GPU}"
            if left and not freed
            else None,
            met=freed > 0,
        )

    def _check_sender(self, asked: str, events: Sequence[Event], *, refused: bool) -> None:
        """What an operation may send at all."""
        on_device = any(isinstance(event, BlockStored) and event.medium is GPU for event in events)
        self.seen.check(
            "EVENT-5",
            f"{asked} was refused, and announced a page on {GPU}"
            if refused and on_device
            else None,
            met=refused and bool(self.told),
        )
        self.seen.check(
            "EVENT-10",
            f"{asked} announced a page on {GPU}" if on_device and asked == "evict" else None,
            met=asked == "evict" and bool(events),
        )
        cleared = sum(isinstance(event, AllBlocksCleared) for event in events)
        due = int(asked == "reset" and not refused)
        self.seen.check(
            "EVENT-8",
            f"{asked} said {cleared} times that all is cleared" if cleared != due else None,
            met=due > 0,
        )

    def _hear_one(self, asked: str, event: Event) -> None:
        if isinstance(event, AllBlocksCleared):
            self.told.clear()
        elif isinstance(event, BlockStored):
            self.seen.check(
                "EVENT-10",
                f"{asked} announced page {short(event.block_hash)}, which no request has computed"
                if event.block_hash not in self.seen.computed_names
                else None,
            )
            self.parents[event.block_hash] = event.parent_hash
            self.told.add((event.medium, event.block_hash))
        else:
            self.told.discard((event.medium, event.block_hash))
            self._check_removed(event)

    def _check_removed(self, event: BlockRemoved) -> None:
        """Pages leave after those that build on them, and not while a request reuses them."""
        name, medium = event.block_hash, event.medium
        if self.profile.removes_end_first:
            self._check_orphans(event)
        if medium is GPU:
            users = [id_ for id_, each in self.seen.running.items() if name in each.reused]
            self.seen.check(
                "LOCK-4",
                f"page {short(name)} was removed from {GPU}, and request {users[0]} reuses it"
                if users
                else None,
                met=any(each.reused for each in self.seen.running.values()),
            )

    def _check_orphans(self, event: BlockRemoved) -> None:
        """No page is there that builds on one that was removed."""
        name, medium = event.block_hash, event.medium
        if medium is not GPU and not self.seen.config.backed_parents:
            return
        orphans = [
            child
            for told_on, child in self.told
            if told_on is medium and self.parents.get(child) == name
        ]
        gone = (medium, name) not in self.told
        self.seen.check(
            "EVENT-12",
            f"page {short(name)} was removed from {medium} before page {short(orphans[0])}, "
            "which builds on it"
            if orphans and gone
            else None,
            met=name in self.parents.values(),
        )


def _nothing_but(seen: ObservedRequests, profile: Profile) -> Snapshot:
    """A state in which only the configuration can be seen."""
    root = NodeState(0, None, (), DEFAULT_NAMESPACE, (), {})
    return Snapshot(seen.config, 0, {0: root}, {}, {}, {}, {}, profile=profile)
