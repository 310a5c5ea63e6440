"""A run that is shown: its calls, what each changed, and where a law breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge import sentence
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.law import LAWS
from kvcanon.spec.snapshot import Snapshot


@frozen
class Breach:
    """A law that breaks at a step, or what else is wrong there."""

    title: str
    """The id and name of the law, or as "crash: SIGSEGV"."""
    text: str
    """What is wrong, in a sentence that names nodes as "node 7"."""
    statement: str = ""
    """The law in a sentence; empty if it is no law."""
    law_id: str = ""


def breach_of_law(law_id: str, text: str) -> Breach:
    """The breach of a law."""
    law = LAWS[law_id]
    return Breach(f"{law_id} {law.name}", text, sentence(law), law_id)


def breaches_of(error: ViolationError) -> tuple[Breach, ...]:
    """The breaches of the laws that a call broke."""
    return tuple(breach_of_law(each.law.law_id, each.text) for each in error.violations)


@frozen
class ShownStep:
    """One call, its answer, and the state after it."""

    group: int
    """Index of the action of a case, or of the request of a replay."""
    number: int | None
    """The number of the cache's operation, from 1; None if the call is no operation."""
    code: str
    answer: str
    refused: bool = False
    state: Snapshot | None = None
    """None if the cache did not show it."""
    events: tuple[Event, ...] = ()
    """The events that it emitted, as far as they are known."""
    breaches: tuple[Breach, ...] = ()
    definitions: tuple[str, ...] = ()
    """Lines that define names in the code."""


@frozen
class Chart:
    """A chart with lines over the groups or the steps of a run."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[float]]
    """One value for each group, or for the start and each step."""
    over_groups: bool = False


@frozen
class ShownRun:
    """What a page shows; the steps are packed by `StepPacker`."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """What the run is of, as ("cache", "reference")."""
    config: CacheConfig
    group_word: str
    """"action" or "request"."""
    groups: tuple[str, ...] = ()
    """The name of each group; empty if they have numbers alone."""
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    """What the page cannot show, each with the reason."""
    opens_at: int | None = None
    """The step that is shown first; None for the first breach, or else the start."""
    steps: int = 0
    breaks_at: int | None = None
    """The first step that breaks a law; None if none does."""
    parts: Mapping[str, str] = field(factory=dict)
    """The packed steps, by the name of the part."""
    step_title: str = "Calls"
    """What the steps are, as the title of their list."""
    start_words: str = "the new cache"
    """What is there before the first step."""
    names_nodes: bool = False
    """Whether breaches name nodes of a tree that is drawn from events."""

    @property
    def in_short(self) -> str:
        """The number of steps, and the step at which a law breaks."""
        steps = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        where = "" if self.breaks_at is None else f", breaks at step {self.breaks_at}"
        return f"{steps}{where}"

    def with_facts(self, *facts: tuple[str, str]) -> ShownRun:
        """The same run, with more facts at the end."""
        return evolve(self, facts=(*self.facts, *facts))


def config_facts(config: CacheConfig) -> tuple[tuple[str, str], ...]:
    """A configuration in words."""
    window = f", window {config.window_tokens} tokens" if config.window_tokens else ""
    states = ", mamba states" if config.mamba else ""
    bigrams = ", bigrams" if config.bigram else ""
    host = f", {config.write_policy.value}" if config.host_tier else ", no host tier"
    policy = f", evicts by {config.eviction_policy.value}"
    pages = f"page of {config.page_size} token{'s' * (config.page_size > 1)}"
    return (("configuration", f"{pages}{window}{states}{bigrams}{host}{policy}"),)
