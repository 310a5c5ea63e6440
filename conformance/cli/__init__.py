"""The command line: one module for each command, and `main`.

Exit code 0: the command ran, and no law is broken. 1: a law is broken, or too little was exercised
to say that none is. 2: the command line or the named cache is wrong; stderr says why in one line.

Results go to stdout, everything else to stderr. Progress bars appear on terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from kvcanon import __version__
from kvcanon.conformance.bench.workloads.mooncake import TraceError
from kvcanon.conformance.cli.exit_codes import INTERRUPTED, USAGE_ERROR
from kvcanon.conformance.cli.lasting_stdout import lasting_stdout
from kvcanon.conformance.cli.once import OnceCommand
from kvcanon.conformance.cli.supervised import supervised
from kvcanon.conformance.errors import UsageError

COMMANDS: Mapping[str, str] = {
    "laws": "laws",
    "check": "check_command",
    "explore": "explore_command",
    "mutants": "mutants_command",
    "prove": "prove_command",
    "replay": "replay_command",
    "probe": "probe_command",
    "show": "show_command",
    "watch": "watch_command",
    "audit": "audit_command",
    "bench": "bench",
    "peers": "peers",
}
"""The commands in the order of the help, each with what its module, which has its name, calls it.

Only the module of the command that runs is imported: all of them take most of a second.
"""

Loaded = Callable[..., object] | typer.Typer

SUPERVISED = ("bench", "explore", "replay", "show")
"""Commands that call a cache in their own process."""

# Depending on its version, Typer brings its own Click or uses the installed one. Both export
# BadParameter; its base class is the base of all errors in a command line.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


def load_commands(arguments: Sequence[str]) -> dict[str, Loaded]:
    """Import the command that the arguments name, or all if they name none."""
    names = [name for name in arguments[:1] if name in COMMANDS] or COMMANDS
    return {name: getattr(import_module(f"{__name__}.{name}"), COMMANDS[name]) for name in names}


def _print_version(asked: bool) -> None:  # Typer passes the option so.
    if asked:
        typer.echo(f"kvcanon {__version__}")
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The laws of prefix KV caches, and a judge that checks caches against them."""


def app_for(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line with the command that the arguments name, or with all."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, command in load_commands(arguments).items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=OnceCommand)(command)
    return app


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
            given = sys.argv[1:] if arguments is None else arguments
            command = get_command(app_for(given))
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
