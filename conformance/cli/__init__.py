"""The command line: `laws`, `check`, `explore`, `prove`, `mutants`, `replay`, `bench`, `peers`.

Exit 0: what was asked was done, and no law was seen broken. 1: a law is broken, or too little came
up to say that none is. 2: the call is at fault, or the cache that was named; one line on stderr
says how.

What readers get wrong: results go to stdout, everything else to stderr. A progress bar is shown on
a terminal only, so that a pipe gets the report and nothing besides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

from kvcanon.conformance.bench.workloads.mooncake import TraceError
from kvcanon.conformance.cli.bench import bench
from kvcanon.conformance.cli.check import check_command
from kvcanon.conformance.cli.explore import explore_command
from kvcanon.conformance.cli.laws import laws
from kvcanon.conformance.cli.mutants import mutants_command
from kvcanon.conformance.cli.peers import peers
from kvcanon.conformance.cli.prove import prove_command
from kvcanon.conformance.cli.replay import replay_command
from kvcanon.conformance.errors import UsageError

app = typer.Typer(
    help="The laws of prefix KV caches, and a judge that holds a cache to them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("laws")(laws)
app.command("check")(check_command)
app.command("explore")(explore_command)
app.command("mutants")(mutants_command)
app.command("prove")(prove_command)
app.command("replay")(replay_command)
app.add_typer(bench, name="bench")
app.add_typer(peers, name="peers")

USAGE_ERROR = 2
INTERRUPTED = 130

# Typer brings its own Click or uses the one that is installed, depending on its version; the base
# of all errors in a call is found from one that both export.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, on `sys.argv` by default, and return the exit code."""
    try:
        code = get_command(app).main(args=arguments, prog_name="kvcanon", standalone_mode=False)
        sys.stdout.flush()
    except _ClickError as error:
        return _usage_error(getattr(error, "format_message", error.__str__)())
    except (SystemExit, BrokenPipeError):
        # The reader has seen enough: Rich and Typer exit with 1 then, which says here that a law is
        # broken. Python would complain when it flushes at its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UsageError, TraceError, OSError) as error:
        return _usage_error(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return int(code or 0)


def _usage_error(problem: str) -> int:
    """Print the problem in one line; without a command, Typer has printed the help instead."""
    if problem:
        typer.echo(f"kvcanon: {' '.join(problem.split())}", err=True)
    return USAGE_ERROR
