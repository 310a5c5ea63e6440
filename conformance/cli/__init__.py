"""The command line: one module for each command, and `main`.

Exit code 0: the command ran, and no law is broken. 1: a law is broken, or too little was exercised
to say that none is. 2: the command line or the named cache is wrong; stderr says why in one line.

Results go to stdout, everything else to stderr. Progress bars appear on terminals only.

The wheel has no lab, and no module of the product imports it. `kvcanon lab` finds it by name, as a
cache is found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from kvcanon.conformance.cli.command_line import CommandLine, usage_error
from kvcanon.conformance.errors import UsageError

EXAMPLES = {
    "demo": ("kvcanon demo",),
    "laws": (
        "kvcanon laws RES-4",
        "kvcanon laws LOCK",
        'kvcanon laws --about "window split"',
    ),
    "check": (
        "kvcanon check my_cache:ADAPTER",
        "kvcanon check my_cache:ADAPTER --only LOCK,RES-4 --html report.html",
        "kvcanon check my_cache:ADAPTER --effort standard --seed 7 --junit report.xml",
    ),
    "check-store": (
        "kvcanon check-store my_store:ADAPTER",
        "kvcanon check-store files --effort standard --seed 7 --json report.json",
    ),
    "explore": (
        "kvcanon explore my_cache:ADAPTER --scope small",
        "kvcanon explore my_cache:ADAPTER --scope wide --minutes 10",
    ),
    "replay": (
        "kvcanon replay reference --conversations 200 --pool-tokens 65536",
        "kvcanon replay my_cache:ADAPTER --trace trace.jsonl --html replay.html",
    ),
    "probe": (
        "kvcanon probe http://localhost:30000",
        "kvcanon probe http://localhost:8000 --events tcp://localhost:5557",
    ),
    "show": (
        "kvcanon show report.json --open",
        "kvcanon show LOAD-1-a --output page.html",
    ),
    "watch": (
        "kvcanon watch tcp://localhost:5557",
        "kvcanon watch tcp://localhost:5557 --record stream.kvstream",
        "kvcanon watch --discover dns://vllm-headless:5557/5558 --metrics-port 9090",
    ),
    "audit": (
        "kvcanon audit stream.kvstream",
        "kvcanon audit stream.kvstream --served requests.jsonl",
    ),
}
"""Calls that the help of a command shows."""

COMMANDS = CommandLine(
    "kvcanon",
    "The laws of prefix KV caches, and a judge that checks caches against them.",
    {
        "demo": f"{__name__}.demo:demo_command",
        "laws": f"{__name__}.laws:laws",
        "check": f"{__name__}.check:check_command",
        "check-store": f"{__name__}.check_store:check_store_command",
        "explore": f"{__name__}.explore:explore_command",
        "replay": f"{__name__}.replay:replay_command",
        "probe": f"{__name__}.probe:probe_command",
        "show": f"{__name__}.show:show_command",
        "watch": f"{__name__}.watch:watch_command",
        "audit": f"{__name__}.audit:audit_command",
        "lab": f"{__name__}:lab_help",
    },
    supervised=("explore", "replay", "show"),
    examples=EXAMPLES,
)
IN_THE_LAB = ("bench", "mutants", "peers", "prove")
"""Commands that are reached through `kvcanon lab` alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, on `sys.argv` by default, and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    copied = arguments is None
    if given[:1] == ["lab"]:
        try:
            require_lab()
            return int(import_module("kvcanon.lab.cli").run(given[1:], copied=copied))
        except UsageError as error:
            return usage_error(str(error))
    if given[:1] and given[0] in IN_THE_LAB:
        return usage_error(f"{given[0]} is in the lab; run `kvcanon lab {given[0]}` in a checkout")
    return COMMANDS.run(given, copied=copied)


def require_lab() -> None:
    """Require a checkout. Raises: UsageError."""
    if find_spec("kvcanon.lab") is None:
        raise UsageError(
            "the lab is in the repository, not in the wheel; clone it, and run `make venv` there"
        )


def lab_help() -> None:
    """Judge the judge: mutants, proofs, past releases and benchmarks, in a checkout."""
    # `main` hands the words after `lab` to the lab; this is its line in the help.
    require_lab()
