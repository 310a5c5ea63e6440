"""The command line: one module for each command, and `main`.

Exit code 0: the command ran, and no law is broken. 1: a law is broken, or too little was exercised
to say that none is. 2: the command line or the named cache is wrong; stderr says why in one line.

Results go to stdout, everything else to stderr. Progress bars appear on terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from typer.main import get_command

from kvcanon.conformance.bench.workloads.mooncake import TraceError
from kvcanon.conformance.cli.audit import audit_command
from kvcanon.conformance.cli.bench import bench
from kvcanon.conformance.cli.check import check_command
from kvcanon.conformance.cli.exit_codes import INTERRUPTED, USAGE_ERROR
from kvcanon.conformance.cli.explore import explore_command
from kvcanon.conformance.cli.lasting_stdout import lasting_stdout
from kvcanon.conformance.cli.laws import laws
from kvcanon.conformance.cli.mutants import mutants_command
from kvcanon.conformance.cli.once import OnceCommand
from kvcanon.conformance.cli.peers import peers
from kvcanon.conformance.cli.probe import probe_command
from kvcanon.conformance.cli.prove import prove_command
from kvcanon.conformance.cli.replay import replay_command
from kvcanon.conformance.cli.show import show_command
from kvcanon.conformance.cli.supervised import supervised
from kvcanon.conformance.cli.watch import watch_command
from kvcanon.conformance.errors import UsageError

app = typer.Typer(
    help="The laws of prefix KV caches, and a judge that checks caches against them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("laws", cls=OnceCommand)(laws)
app.command("check", cls=OnceCommand)(check_command)
app.command("explore", cls=OnceCommand)(explore_command)
app.command("mutants", cls=OnceCommand)(mutants_command)
app.command("prove", cls=OnceCommand)(prove_command)
app.command("replay", cls=OnceCommand)(replay_command)
app.command("probe", cls=OnceCommand)(probe_command)
app.command("show", cls=OnceCommand)(show_command)
app.command("watch", cls=OnceCommand)(watch_command)
app.command("audit", cls=OnceCommand)(audit_command)
app.add_typer(bench, name="bench")
app.add_typer(peers, name="peers")


SUPERVISED = ("bench", "explore", "replay", "show")
"""Commands that call a cache in their own process."""

# Depending on its version, Typer brings its own Click or uses the installed one. Both export
# BadParameter; its base class is the base of all errors in a command line.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, on `sys.argv` by default, and return the exit code."""
    if arguments is None and sys.argv[1:2] and sys.argv[1] in SUPERVISED:
        try:
            return supervised(lambda: _run(None))
        except UsageError as error:
            return _usage_error(str(error))
    return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command line in this process, and return the exit code."""
    try:
        with lasting_stdout():
            command = get_command(app)
            code = command.main(args=arguments, prog_name="kvcanon", standalone_mode=False)
    except _ClickError as error:
        return _usage_error(getattr(error, "format_message", error.__str__)())
    except SystemExit as ended:
        return _usage_error(f"something called sys.exit({ended.code!r}); a cache must not")
    except (UsageError, TraceError, OSError) as error:
        return _usage_error(str(error))
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return int(code or 0)


def _usage_error(problem: str) -> int:
    """Print the problem in one line; none if Typer printed the help, as without a command."""
    if problem:
        typer.echo(f"kvcanon: {' '.join(problem.split())}", err=True)
    return USAGE_ERROR
