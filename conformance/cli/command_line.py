"""A command line: commands by name, of which only the one that runs is imported, and exit codes.

The product has one (`kvcanon`), and the lab has one (`kvcanon lab`).

Stdout outlives its reader, as in `kvcanon check ... | head -1`, and takes any text. The command
goes on to its end, and its exit code is that of its verdict. What it prints after the reader is
gone goes nowhere. Letters that the encoding of stdout lacks are escaped.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, TextIO

import typer
from attrs import frozen
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from kvcanon import __version__
from kvcanon.conformance.errors import UsageError

BROKEN = 1
"""A law is broken, or too little was exercised to say that the cache holds."""
USAGE_ERROR = 2
"""The call is wrong, or the cache that it names cannot be judged."""
INCOMPLETE = 3
"""No law is broken in what was played, and too little was: for want of time, or of an Offer."""
INTERRUPTED = 130
"""The user pressed Ctrl-C."""

Loaded = Callable[..., object] | typer.Typer

# Depending on its version, Typer brings its own Click or uses the installed one. Both export
# BadParameter; its base class is the base of all errors in a command line.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


class OnceCommand(TyperCommand):
    """A command whose options with one value are given once at most.

    A parser would keep the last, and drop the first without a word.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse as Typer does. Raises: UsageError, if an option is given twice."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if not isinstance(option, TyperOption) or option.multiple or option.is_flag:
                continue
            if times > 1:
                raise UsageError(
                    f"{option.opts[0]} is given {times} times; give it once"
                    + (", with commas" if (option.metavar or "").endswith(",...") else "")
                )
        return super().parse_args(ctx, args)


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
            # Most commands end by themselves, and do not wait for this import.
            from kvcanon.conformance.cli.supervised import supervised  # noqa: PLC0415

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
        except (UsageError, OSError) as error:
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


class _LastingStdout:
    """Writes to another stream until its reader is gone; then to nowhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        """Write text; all of it, if there is no reader."""
        try:
            self._out.write(self._encodable(text))
        except BrokenPipeError:
            self._to_nowhere()
        return len(text)

    def flush(self) -> None:
        """Write what is kept back."""
        try:
            self._out.flush()
        except BrokenPipeError:
            self._to_nowhere()

    def _encodable(self, text: str) -> str:
        """Text with what the encoding lacks in other letters."""
        encoding = self._out.encoding or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _to_nowhere(self) -> None:
        """Send all that follows to nowhere, also what Python flushes at its exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)


@contextmanager
def lasting_stdout() -> Iterator[None]:
    """Let stdout outlive its reader inside."""
    out = sys.stdout
    lasting = _LastingStdout(out)
    sys.stdout = lasting
    try:
        yield
        lasting.flush()
    finally:
        sys.stdout = out
