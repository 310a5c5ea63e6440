"""Packs the steps of a run: a table of all steps, and parts that the page unpacks as it needs them.

Each part is JSON, deflated, in base64. `steps` has a line for each step. `changes-N` has what a
number of steps changed, in both directions, so that the page can step back. `state-N` is the whole
state before the first step of `changes-N`, to jump into the middle of a run. It is written where
the changes since the last one take more than it, so that a page is about twice as large at most.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import StrEnum

from attrs import asdict

from kvcanon.conformance.show.event_rows import EventRows, hash_text
from kvcanon.conformance.show.rows import Delta, SnapshotRows, StateRows, pages_text
from kvcanon.conformance.show.shown_run import Breach, Chart, ShownRun, ShownStep
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.law import LAWS, SITE
from kvcanon.spec.snapshot import Snapshot

FORMAT = "kvcanon-show/1"

MOST_EVENTS = 200
"""Events of a step that are listed; of more, the number."""
LONGEST = 600
"""Characters of a call or an answer that are shown."""
PART_SIZE = 1 << 18
"""Characters of a part with changes before it is deflated: it is unpacked in milliseconds."""


class DrawnFrom(StrEnum):
    """What the tree is drawn from; the page leaves out the panels for which it knows nothing."""

    STATE = "state"
    EVENTS = "events"
    """Each block that an event stored is a node, with the media that it is on."""
    NOTHING = "nothing"
    """There is no tree: the page has calls and answers."""


_LACKS = {
    DrawnFrom.EVENTS: (
        "{} does not show its state: the tree has what its events say, each page as a node, "
        "without slots, locks and windows. A method snapshot in its adapter shows the rest; see "
        "{}adapters.html."
    ),
    DrawnFrom.NOTHING: (
        "{} shows neither its state nor events, so that there is no tree: this page has calls and "
        "answers. To draw one, give its adapter take_events, which shows its blocks, or snapshot, "
        "which shows everything; see {}adapters.html."
    ),
}
"""What a page lacks for its cache, and the mend, in words."""


def packed(value: object) -> str:
    """A value as JSON, deflated, in base64."""
    return _deflated(json.dumps(value, separators=(",", ":")))


def _deflated(text: str) -> str:
    return b64encode(zlib.compress(text.encode(), 6)).decode()


def all_parts(run: ShownRun) -> Mapping[str, str]:
    """The packed parts from which the script draws a run, by name."""
    about = {
        "title": run.title,
        "components": [component.value for component in run.config.components],
        "page_size": run.config.page_size,
        "group_word": run.group_word,
        "groups": list(run.groups),
        "charts": [asdict(chart) for chart in run.charts],
        "opens_at": run.opens_at,
        "step_title": run.step_title,
        "start": run.start_words,
        "names_nodes": run.names_nodes,
    }
    return {"run": packed(about), **run.parts}


class StepPacker:
    """Takes the steps of a run one after another; keeps no state but the last."""

    def __init__(
        self,
        start: Snapshot | None,
        folded: EventRows | None = None,
        first: Callable[[StateRows], None] | None = None,
    ) -> None:
        """Begin with a state, or where there is none, with the events that were folded up to then.

        `first` makes the first state of a run that no cache plays.
        """
        self._rows: SnapshotRows | EventRows = SnapshotRows()
        """Those of the states, or where the cache shows none, of the events."""
        if start is None and first is None:
            self._rows = EventRows() if folded is None else folded
        self.notes: dict[str, None] = {}
        """What could not be shown, in words, each once."""
        self._table: list[list[object]] = []
        self._breaches: list[list[object]] = []
        self.breaks_at: int | None = None
        """The first step with a breach; None if there is none."""
        self._parts: dict[str, str] = {}
        self._starts: list[int] = []
        """The step before each part of changes."""
        self._sizes: list[int] = []
        """The size of each part of changes, as JSON."""
        self._states: dict[int, int] = {}
        """The size of the state before each part that has one, as JSON."""
        self._waiting: list[dict[str, object]] = []
        self._waiting_size = 0
        self._used: dict[str, list[int]] = {}
        self._counts: dict[str, list[int]] = {"nodes": [], "copies in flight": [], "locks": []}
        if first is not None:
            first(self.now)
        elif start is not None:
            self._delta(ShownStep(0, None, "", "", state=start))
        self._begin_part()
        self._note_counts()

    @property
    def steps(self) -> int:
        """How many steps were added."""
        return len(self._table)

    @property
    def now(self) -> StateRows:
        """The last state."""
        return self._rows.now

    @property
    def drawn(self) -> DrawnFrom:
        """What the tree is drawn from, by the steps up to now."""
        if isinstance(self._rows, SnapshotRows):
            return DrawnFrom.STATE
        return DrawnFrom.EVENTS if self._rows.heard else DrawnFrom.NOTHING

    def lacks(self, cache: str) -> tuple[str, ...]:
        """What the page lacks for a cache, in words; nothing if its state is known."""
        return (_LACKS[self.drawn].format(cache, SITE),) if self.drawn in _LACKS else ()

    def add(self, step: ShownStep) -> None:
        """Add the next step."""
        self.add_delta(step, self._delta(step))

    def add_delta(self, step: ShownStep, delta: Delta | None) -> None:
        """Add a step whose changes are known; None if the state after it is not."""
        detail: dict[str, object] = {}
        if delta is None:
            detail["u"] = 1
        elif delta:
            detail["d"] = delta
        if step.events:
            detail["e"] = [_event(each) for each in step.events[:MOST_EVENTS]]
            if len(step.events) > MOST_EVENTS:
                detail["m"] = len(step.events)
        if step.definitions:
            detail["w"] = [shortened(each) for each in step.definitions]
        if step.breaches:
            self.breaks_at = self.breaks_at or self.steps + 1
            self._breaches.append([self.steps + 1, [_breach(each) for each in step.breaches]])
        self._table.append(
            [
                step.group,
                step.number or 0,
                shortened(step.code),
                shortened(step.answer),
                int(step.refused),
            ]
        )
        self._waiting.append(detail)
        self._waiting_size += len(json.dumps(detail))
        self._note_counts()
        if self._waiting_size > PART_SIZE:
            self._end_part()
            self._begin_part()

    def parts(self) -> Mapping[str, str]:
        """The packed parts of all steps, by name."""
        self._end_part()
        table = {
            "format": FORMAT,
            "steps": self._table,
            "breaches": self._breaches,
            "starts": self._starts,
            "sizes": self._sizes,
            "states": list(self._states.items()),
            "namespaces": self._rows.namespaces.words(),
            "drawn": self.drawn.value,
        }
        return {"steps": packed(table), **self._parts}

    def charts(self) -> tuple[Chart, ...]:
        """Charts over the steps: used slots of each pool in percent, and counts."""
        used = {pool: line for pool, line in self._used.items() if len(line) == self.steps + 1}
        counts = {name: line for name, line in self._counts.items() if any(line)}
        charts = [Chart("Used slots", "%", used)] if used else []
        charts += [Chart(name.capitalize(), "", {name: line}) for name, line in counts.items()]
        return tuple(charts)

    def _delta(self, step: ShownStep) -> Delta | None:
        """What a step changed; None if there is no state after it that can be walked."""
        if isinstance(self._rows, EventRows):
            return self._rows.move_to(step.events)
        try:
            return None if step.state is None else self._rows.move_to(step.state)
        except Exception as error:  # noqa: BLE001  # A faulty snapshot may hold anything.
            self.notes[f"a state could not be read: {type(error).__name__}: {error}"] = None
            return None

    def _begin_part(self) -> None:
        number = len(self._starts)
        self._starts.append(self.steps)
        last = max(self._states, default=None)
        if last is not None and sum(self._sizes[last:]) < self._states[last]:
            return
        text = json.dumps(self.now.to_json(), separators=(",", ":"))
        self._states[number] = len(text)
        self._parts[f"state-{number}"] = _deflated(text)

    def _end_part(self) -> None:
        number = len(self._starts) - 1
        self._sizes.append(self._waiting_size)
        self._parts[f"changes-{number}"] = packed(self._waiting)
        self._waiting, self._waiting_size = [], 0

    def _note_counts(self) -> None:
        now = self.now
        for pool, values in now.pools.items():
            capacity, free = values[0], values[1]
            if isinstance(capacity, int) and isinstance(free, int) and capacity:
                line = self._used.setdefault(pool, [])
                line.append(round(100 * (capacity - free) / capacity))
        self._counts["nodes"].append(max(0, len(now.rows) - 1))
        self._counts["copies in flight"].append(len(now.transfers))
        self._counts["locks"].append(len(now.holds))


def shortened(text: str) -> str:
    """A text with its middle left out if it is very long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 80]} ... {text[-60:]}"


def _breach(breach: Breach) -> dict[str, str]:
    return {
        "title": breach.title,
        "text": breach.text,
        "statement": breach.statement,
        "law": breach.law_id,
        "address": LAWS[breach.law_id].address if breach.law_id else "",
    }


def _event(event: Event) -> list[str]:
    if isinstance(event, AllBlocksCleared):
        return ["cleared"]
    short = hash_text(event.block_hash)
    if not isinstance(event, BlockStored):
        return ["removed", str(event.medium), short]
    parent = "" if event.parent_hash is None else hash_text(event.parent_hash)
    return ["stored", str(event.medium), short, shortened(pages_text([event.page])), parent]
