"""The command line: one module for each command, and `main`.

Exit code 0: the command ran, and no law is broken. 1: a law is broken, or too little was exercised
to say that none is. 2: the command line or the named cache is wrong; stderr says why in one line.

Results go to stdout, everything else to stderr. Progress bars appear on terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kvcanon.conformance.cli.command_line import CommandLine, usage_error
from kvcanon.conformance.cli.lab import IN_THE_LAB, run_lab
from kvcanon.conformance.errors import UsageError

COMMANDS = CommandLine(
    "kvcanon",
    "The laws of prefix KV caches, and a judge that checks caches against them.",
    {
        "laws": f"{__name__}.laws:laws",
        "check": f"{__name__}.check:check_command",
        "explore": f"{__name__}.explore:explore_command",
        "replay": f"{__name__}.replay:replay_command",
        "probe": f"{__name__}.probe:probe_command",
        "show": f"{__name__}.show:show_command",
        "watch": f"{__name__}.watch:watch_command",
        "audit": f"{__name__}.audit:audit_command",
        "lab": f"{__name__}.lab:lab_help",
    },
    supervised=("explore", "replay", "show"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, on `sys.argv` by default, and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    copied = arguments is None
    if given[:1] == ["lab"]:
        try:
            return run_lab(given[1:], copied=copied)
        except UsageError as error:
            return usage_error(str(error))
    if given[:1] and given[0] in IN_THE_LAB:
        return usage_error(f"{given[0]} is in the lab; run `kvcanon lab {given[0]}` in a checkout")
    return COMMANDS.run(given, copied=copied)
