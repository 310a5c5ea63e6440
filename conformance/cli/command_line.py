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
from inspect import getdoc
from typing import Annotated, Any, TextIO

import typer
from attrs import frozen
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from kvcanon.commit import version_line
from kvcanon.conformance.errors import UsageError
from kvcanon.printable import printable

BROKEN = 1
"""A law is broken, or too little was exercised to say that the cache holds."""
USAGE_ERROR = 2
"""The call is wrong, or the cache that it names cannot be judged."""
INCOMPLETE = 3
"""No law is broken in what was played, and too little was: for want of time, or of an Offer."""
INTERRUPTED = 130
"""The user pressed Ctrl-C."""

NO_COLOR = "--no-color"
"""An option that every command takes, before its name and after it."""
COMPLETIONS = (["--install-completion"], ["--show-completion"])
"""Arguments that begin with one of Typer's options, which end the process."""

Loaded = Callable[..., object] | typer.Typer

# Depending on its version, Typer brings its own Click or uses the installed one. Both export
# BadParameter; its base class is the base of all errors in a command line.
_ClickError: type[Exception] = typer.BadParameter.__bases__[0]


class OnceCommand(TyperCommand):
    """A command whose options with one value are given once at most.

    A parser would keep the last, and drop the first without a word.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse as Typer does, and obey --no-color. Raises: UsageError, if one is given twice."""
        options = args[: args.index("--")] if "--" in args else args
        if NO_COLOR in options:
            without_color()
            args = [each for each in options if each != NO_COLOR] + args[len(options) :]
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
    examples: Mapping[str, Sequence[str]] = {}
    """Calls that the help of a command shows below its text."""

    def load(self, arguments: Sequence[str]) -> dict[str, Loaded]:
        """Import the command that the arguments name, or all if they name none.

        A shell that completes the name of a command needs none of them.
        """
        words = words_to_complete(self.prog_name)
        arguments = arguments if words is None else words
        names = [name for name in arguments[:1] if name in self.commands] or self.commands
        if words is not None and names is self.commands:
            return dict.fromkeys(names, _nothing)
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
            context_settings={"help_option_names": ["-h", "--help"]},
            pretty_exceptions_enable=False,
        )
        app.callback()(_options)
        arguments = [each for each in arguments if each != NO_COLOR]
        for name, command in self.load(arguments).items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name, cls=OnceCommand, help=self._help_of(name, command))(command)
        return app

    def _help_of(self, name: str, command: Callable[..., object]) -> str | None:
        """The help of a command: its docstring, and examples."""
        text, examples = getdoc(command), self.examples.get(name)
        if text is None or examples is None:
            return text
        lines = "\n".join(f"  {each}" for each in examples)
        # Typer keeps the lines of a paragraph that begins so.
        return f"{text}\n\n\b\nExamples:\n{lines}"

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
                _hide_types_of_flags(command)
                code = command.main(
                    args=list(arguments), prog_name=self.prog_name, standalone_mode=False
                )
        except _ClickError as error:
            return usage_error(getattr(error, "format_message", error.__str__)())
        except SystemExit as ended:
            if words_to_complete(self.prog_name) is not None or list(arguments[:1]) in COMPLETIONS:
                return int(ended.code or 0)
            return usage_error(f"something called sys.exit({ended.code!r}); a cache must not")
        except (UsageError, OSError) as error:
            return usage_error(str(error))
        except (typer.Abort, KeyboardInterrupt):
            return INTERRUPTED
        return int(code or 0)


def _print_version(asked: bool) -> None:  # Typer passes the option so.
    if asked:
        typer.echo(version_line())
        raise typer.Exit


def _hide_types_of_flags(command: Any) -> None:  # noqa: ANN401  # Typer exports no class for it.
    """Let the help say nothing of the type of a flag, which takes no value."""
    for each in command.params:
        if getattr(each, "is_flag", False):
            each.display_type_rich = lambda ctx: None  # noqa: ARG005  # As Typer calls it.
    for each in getattr(command, "commands", {}).values():
        _hide_types_of_flags(each)


def without_color() -> None:
    """Let nothing that follows print colours, as https://no-color.org asks."""
    os.environ["NO_COLOR"] = "1"


def _set_no_color(asked: bool) -> None:  # Typer passes the option so.
    if asked:
        without_color()


def _nothing() -> None:
    # It stands in for a command of which only the name is needed.
    pass


def words_to_complete(prog_name: str) -> list[str] | None:
    """The words after the program's name that a shell completes; None if it does not."""
    if f"_{prog_name.upper()}_COMPLETE" not in os.environ:
        return None
    # Bash gives its words in COMP_WORDS; Typer's scripts for zsh and fish in the other.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _options(
    *,
    _no_color: Annotated[
        bool,
        typer.Option(
            NO_COLOR,
            callback=_set_no_color,
            is_eager=True,
            help="Print no colours, as with NO_COLOR=1. Each command takes it, too.",
        ),
    ] = False,
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
        typer.echo(f"kvcanon: {printable(' '.join(problem.split()))}", err=True)
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
    """Let writes to stdout go on in the block, also if its reader has gone."""
    out = sys.stdout
    lasting = _LastingStdout(out)
    sys.stdout = lasting
    try:
        yield
        lasting.flush()
    finally:
        sys.stdout = out
