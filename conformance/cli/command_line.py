"""A command line: commands by name, of which only the one that runs is imported, and exit codes.

The product has one (`kvcanon`), and the lab has one (`kvcanon lab`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer
from attrs import frozen
from typer.main import get_command

from kvcanon import __version__
from kvcanon.conformance.cli.exit_codes import INTERRUPTED, USAGE_ERROR
from kvcanon.conformance.cli.lasting_stdout import lasting_stdout
from kvcanon.conformance.cli.once import OnceCommand
from kvcanon.conformance.cli.supervised import supervised
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.mooncake import TraceError

Loaded = Callable[..., object] | typer.Typer

# Depending on its version, Typer brings its own Click or uses the installed one. Both export
# BadParameter; its base class is the base of all errors in a command line.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


@frozen
class CommandLine:
    """The commands of a program."""

    prog_name: str
    about: str
    """What the help says of the program."""
    commands: Mapping[str, str]
    """The commands in the order of the help, each with its function or group as `module:name`.

    Only the module of the command that runs is imported: all of them take most of a second.
    """
    supervised: tuple[str, ...] = ()
    """Commands that call a cache in their own process; each runs in a copy of this one."""

    def load(self, arguments: Sequence[str]) -> dict[str, Loaded]:
        """Import the command that the arguments name, or all if they name none."""
        names = [name for name in arguments[:1] if name in self.commands] or self.commands
        places = {name: self.commands[name].partition(":") for name in names}
        return {
            name: getattr(import_module(module), attribute)
            for name, (module, _, attribute) in places.items()
        }

    def app(self, arguments: Sequence[str] = ()) -> typer.Typer:
        """The command line with the command that the arguments name, or with all."""
        app = typer.Typer(
            help=self.about,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
        )
        app.callback()(_options)
        for name, command in self.load(arguments).items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name, cls=OnceCommand)(command)
        return app

    def run(self, arguments: Sequence[str], *, copied: bool) -> int:
        """Run a command and return the exit code; `copied` allows a copy of this process for it."""
        if copied and arguments[:1] and arguments[0] in self.supervised:
            try:
                return supervised(lambda: self._run(arguments))
            except UsageError as error:
                return usage_error(str(error))
        return self._run(arguments)

    def _run(self, arguments: Sequence[str]) -> int:
        """Run a command in this process, and return the exit code."""
        try:
            with lasting_stdout():
                command = get_command(self.app(arguments))
                code = command.main(
                    args=list(arguments), prog_name=self.prog_name, standalone_mode=False
                )
        except _ClickError as error:
            return usage_error(getattr(error, "format_message", error.__str__)())
        except SystemExit as ended:
            return usage_error(f"something called sys.exit({ended.code!r}); a cache must not")
        except (UsageError, TraceError, OSError) as error:
            return usage_error(str(error))
        except (typer.Abort, KeyboardInterrupt):
            return INTERRUPTED
        return int(code or 0)


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
    # The help of the program is that of the app.
    pass


def usage_error(problem: str) -> int:
    """Print the problem in one line; none if Typer printed the help, as without a command."""
    if problem:
        typer.echo(f"kvcanon: {' '.join(problem.split())}", err=True)
    return USAGE_ERROR
