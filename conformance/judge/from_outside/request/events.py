"""Checks of the events of a request cache, and of events against block tables.

The laws of streams are checked unchanged. Besides, the sum of the events is compared with the pages
that requests reuse: a prefix in the events must be found, and a prefix that is found must be in the
events.

Without snapshots, events of a page that no request uses again are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from kvcanon.conformance.judge.from_outside.checks import may_give_up_events
from kvcanon.conformance.judge.from_outside.request.state import ObservedRequests, Prompt
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, Residency
from kvcanon.spec.law import LAWS, Stream
from kvcanon.spec.laws.page_hashes import short
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, DEFAULT_NAMESPACE, FULL, GPU

STREAM_LAWS = ("EVENT-1", "EVENT-2", "EVENT-6", "EVENT-9")
"""Laws of streams that need no state, only the configuration."""


@define(eq=False)
class EventChecker:
    """Checks events, and tracks which pages are on which medium."""

    seen: ObservedRequests
    profile: Profile = CANON
    residency: Residency = Factory(Residency)
    parents: dict[bytes, bytes | None] = Factory(dict)
    """The hash of the page before each page that was ever stored."""

    def check_events(self, call: str, events: Sequence[Event], *, refused: bool) -> None:
        """Check the events of an operation, and fold them into the residency."""
        config = self.seen.config
        if not config.events:
            text = "events are off, and some were sent" if events else None
            self.seen.check("EVENT-5", text, met=False)
            return
        blank = _blank_state(self.seen, self.profile)
        stream = Stream(self.residency, tuple(events), blank)
        for law_id in STREAM_LAWS:
            law = LAWS[law_id]
            met = law.premise.is_met(stream)
            self.seen.check(law_id, next(law.check(stream), None), met=met)
        begins_anew = bool(events) and isinstance(events[0], AllBlocksCleared) and call != "reset"
        if not (begins_anew and may_give_up_events(config)):
            # Else they describe all pages, whichever call stored them.
            self._check_sender(call, events, refused=refused)
        for event in events:
            self._fold_event(call, event)
        if not self.profile.removes_end_first:
            # Nodes are not visible: all pages that are removed at once may be of one node.
            for event in events:
                if isinstance(event, BlockRemoved):
                    self._check_orphans(event)
        on_device = len(self.residency.on(GPU))
        self.seen.check(
            "EVENT-4",
            f"the events say that {on_device} pages are on {GPU}, which has fewer slots"
            if on_device > self.seen.capacity(FULL)
            else None,
            met=bool(self.residency),
        )

    def prefix_pages(self, prompt: Prompt, *, with_host: bool) -> int:
        """Return how many leading pages of a prompt are cached, by the events."""
        for page, name in enumerate(prompt.hashes):
            if (GPU, name) not in self.residency and not (
                with_host and (CPU, name) in self.residency
            ):
                return page
        return len(prompt.hashes)

    def check_reuse(self, prompt: Prompt, reused: int) -> None:
        """Check that exactly the pages that earlier events show are reused."""
        if not self.seen.config.events:
            return
        at_most = self.prefix_pages(prompt, with_host=True)
        self.seen.check(
            "EVENT-4",
            f"{reused} pages are reused, of which events show {at_most}"
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
        """Check that an eviction freed slots unless nothing is cached, while no request runs."""
        left = self.residency.on(GPU)
        self.seen.check(
            "EVICT-1",
            f"nothing was freed, and the events say that {len(left)} pages are on {GPU}"
            if left and not freed
            else None,
            met=freed > 0,
        )

    def _check_sender(self, call: str, events: Sequence[Event], *, refused: bool) -> None:
        """Check that the operation may emit such events."""
        on_device = any(isinstance(event, BlockStored) and event.medium is GPU for event in events)
        self.seen.check(
            "EVENT-5",
            f"{call} was refused, and stored a page on {GPU}" if refused and on_device else None,
            met=refused and bool(self.residency),
        )
        self.seen.check(
            "EVENT-10",
            f"{call} stored a page on {GPU}" if on_device and call == "evict" else None,
            met=call == "evict" and bool(events),
        )
        cleared = sum(isinstance(event, AllBlocksCleared) for event in events)
        due = int(call == "reset" and not refused)
        self.seen.check(
            "EVENT-8",
            f"{call} emitted AllBlocksCleared {cleared} times" if cleared != due else None,
            met=due > 0,
        )

    def _fold_event(self, call: str, event: Event) -> None:
        self.residency.fold(event)
        if isinstance(event, BlockStored):
            self.seen.check(
                "EVENT-10",
                f"{call} stored page {short(event.block_hash)}, which no request has computed"
                if event.block_hash not in self.seen.computed_hashes
                else None,
            )
            self.parents[event.block_hash] = event.parent_hash
        elif isinstance(event, BlockRemoved):
            self._check_removed(event)

    def _check_removed(self, event: BlockRemoved) -> None:
        """Check that a removed page has no child in the cache, and no running request reuses it."""
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
        """Check that no page is cached that comes after a removed page."""
        name, medium = event.block_hash, event.medium
        if medium is not GPU and not self.seen.config.backed_parents:
            return
        orphans = [child for child in self.residency.on(medium) if self.parents.get(child) == name]
        gone = (medium, name) not in self.residency
        self.seen.check(
            "EVENT-12",
            f"page {short(name)} was removed from {medium} before page {short(orphans[0])}, "
            "which builds on it"
            if orphans and gone
            else None,
            met=name in self.parents.values(),
        )


def _blank_state(seen: ObservedRequests, profile: Profile) -> Snapshot:
    """Return an empty state with this configuration, for laws that need only that."""
    root = NodeState(0, None, (), DEFAULT_NAMESPACE, (), {})
    return Snapshot(seen.config, 0, {0: root}, {}, {}, {}, {}, profile=profile)
