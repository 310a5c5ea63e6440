"""Probes of fake engines, and what tests read of their reports."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from fakes.engine_faults import HOST, WINDOW, EngineFault, faulty_engine
from fakes.engine_server import ServedAs, engine_at
from fakes.model import EventSender, FakeEngine, config_of
from kvcanon.conformance.cli import main
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.talk import (
    EngineApi,
    EngineFacts,
    PageRange,
    ProbeReply,
    PromptSpace,
    Tokens,
    TokenScore,
)

WHOLE = ("--fill", "--rate", "1000")
"""Options for all rounds, fast: nobody else uses the server of a test."""
ANY = "tcp://127.0.0.1:*"


FACTS = EngineFacts("sglang", pool_tokens=400, window=0, has_host=False, policy="lru")
PAGE = PageRange(4, 4)
SPACE = PromptSpace("s")


class QuietApi:
    """A server that says nothing of itself; tests say how it generates."""

    def patient(self, _seconds: float) -> Any:  # noqa: ANN401  # Itself.
        """The same."""
        return self

    def prompt(self, tokens: Tokens) -> list[int]:
        """The token ids themselves."""
        return list(tokens)

    def facts(self) -> EngineFacts:
        """What is known."""
        return FACTS

    def flush(self) -> None:
        """Nothing is cached."""

    def prompt_tokens(self) -> float | None:
        """Not said."""

    def held_share(self) -> float | None:
        """Not said."""


def player_of(api: EngineApi, seconds: float = 60.0) -> ProbePlayer:
    """A player with time for some requests."""
    return ProbePlayer(api, FACTS, "run", time.monotonic() + seconds, 10_000)


def scored(*rows: tuple[int, float, int, float], cached: int = 0) -> ProbeReply:
    """A reply: each token, its log-probability, the next likeliest, and its own."""
    scores = tuple(TokenScore(a, b, {a: b, c: d}) for a, b, c, d in rows)
    return ProbeReply(tuple(row[0] for row in rows), cached, None, scores)


def options_for(dialect: str, engine: object) -> list[str]:
    """What a user knows of an engine and its server does not say."""
    known = [] if dialect == "sglang" or "host" in engine else ["--no-host-tier"]  # type: ignore[operator]
    if "window" in engine:  # type: ignore[operator]
        return [*known, "--window", str(WINDOW["window"])]
    return [*known, *([] if dialect == "sglang" else ["--window", "0"])]


def replacing(url: str, *loras: str | None) -> str:
    """A command that replaces the weights of the model (None) or of adapters of a fake server."""
    bodies = [json.dumps({"lora": lora}).encode() for lora in loras]
    code = (
        "import urllib.request; "
        f"[urllib.request.urlopen({url + '/replace_weights'!r}, body) for body in {bodies!r}]"
    )
    return shlex.join([sys.executable, "-I", "-c", code])


@contextmanager
def fault_at(
    fault: EngineFault, dialect: str, events: EventSender | None = None
) -> Iterator[tuple[str, list[str]]]:
    """An engine with a fault: its address, and the options of a probe."""
    with engine_at(faulty_engine(fault, events), ServedAs(dialect)) as url:
        changed = ["--changed", replacing(url, *fault.replaced)] if fault.replaced else []
        yield url, [*options_for(dialect, fault.engine), "--only", fault.round, *changed]


@contextmanager
def sound_at(dialect: str, shown: ServedAs | None = None, **engine: int) -> Iterator[str]:
    """A sound engine: its address."""
    with engine_at(FakeEngine(config_of(**engine)), shown or ServedAs(dialect)) as url:
        yield url


def probe_json(
    capsys: pytest.CaptureFixture[str], url: str, *options: str
) -> tuple[int, dict[str, Any]]:
    """Probe a server: the exit code, and the report."""
    capsys.readouterr()
    code = main(["probe", url, "--json", *WHOLE, *options])
    return code, json.loads(capsys.readouterr().out)


def kinds(report: dict[str, Any]) -> set[str]:
    """The kinds of what was found."""
    return {each["kind"] for each in report["findings"]}


ENGINES: Sequence[dict[str, int]] = (
    {},
    dict(HOST),
    dict(WINDOW),
    {**WINDOW, **HOST},
    {"page_size": 16, "pool_pages": 64},
)
"""Sound engines of all sorts."""
