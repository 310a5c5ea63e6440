"""A cache in a child process, in any language, that speaks JSON lines: `pipe:COMMAND`.

The child's first line is its hello. After that each line that it reads is a call, and each line
that it writes is an answer: `{"ok": ...}`, `{"refused": {"kind": ...}}`, or `{"error": "words"}`
for an error that is not a refusal. `make` makes a new cache, which replaces the previous one.

The child lives as long as the judge, not as long as a case. A child that dies or does not answer is
killed, and the next case starts a new one. Its limits count the time of the child and of what it
started (`workers/allowance.py`), so that a wrapper may start the cache.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from functools import partial
from select import POLLIN, POLLOUT, poll
from typing import IO, cast

from attrs import field, frozen

from kvcanon.conformance.errors import ChildSilent, UsageError, shown
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, CopyControl, Offer
from kvcanon.conformance.protocol.cache_names import PIPE
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.conformance.protocol.wire import (
    CALLS,
    OF_COPIES,
    PROTOCOL,
    NotOnTheWire,
    decoder,
    from_json,
    refusal_from_json,
    to_json,
)
from kvcanon.conformance.workers.allowance import (
    WAITING_TIMES,
    Allowance,
    TimeTaken,
    read_family,
    usual_seconds,
)
from kvcanon.conformance.workers.ending import tied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import CacheError
from kvcanon.spec.law import Need
from kvcanon.spec.types import TransferId

HELLO_SHARE = 1.0
"""The share of the limit of an action for the hello: the child may import a library, and load no
model."""
ANSWER_SHARE = 0.5
"""The share of it for an answer."""
LOOKS_EVERY_SECONDS = 0.25
MOST_LINE_BYTES = 1 << 26
"""The longest line that is read: 64 MiB, far more than the largest snapshot."""
CHUNK_BYTES = 1 << 16


class ChildDied(UsageError):
    """The child ended."""


class ChildUnclear(UsageError):
    """The child wrote a malformed answer."""


class ChildFailed(UsageError):
    """The child reported an error."""


@frozen
class Hello:
    """The first line of a child."""

    protocol: str
    name: str
    operations: tuple[str, ...]
    kind: CacheKind = CacheKind.TREE
    offer: Offer = field(default=Offer())
    profile: Profile = CANON
    hides: tuple[Need, ...] = ()


class Child:
    """A child process, and the lines to and from it."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.owner = os.getpid()
        self.made = 0
        """How many caches the child made; it keeps only the last."""
        words = _split(command)
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # The child writes there.
        try:
            self._process = subprocess.Popen(  # noqa: S603  # The command is the user's own.
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                preexec_fn=tied(),  # noqa: PLW1509  # It makes two calls of the system.
            )
        except (OSError, ValueError) as error:
            self._words.close()
            raise UsageError(f"{PIPE}{command} cannot be started: {error}") from error
        self._end = weakref.finalize(self, _end, self._process, self._words, self.owner)
        self._to, self._from = (
            cast("IO[bytes]", each).fileno() for each in (self._process.stdin, self._process.stdout)
        )
        os.set_blocking(self._to, False)
        self._unread = bytearray()
        self.hello = self._hello()

    def ask(self, line: Mapping[str, object], answers: object) -> object:
        """Make a call. Raises: CacheError: it was refused. UsageError: the answer is malformed."""
        asked = str(line["op"])
        self._require_silence(asked)
        self._send(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        try:
            return self._answered(asked, answers, self._receive(ANSWER_SHARE, asked))
        except NotOnTheWire as error:
            raise ChildUnclear(
                f"{self.command} answered {asked} with what is no answer: {error}"
            ) from None

    def _answered(self, asked: str, answers: object, answer: Mapping[str, object]) -> object:
        """Decode an answer. Raises: CacheError, ChildFailed, NotOnTheWire."""
        match answer:
            case {"ok": value}:
                try:
                    return decoder(answers)(value)
                except CacheError as error:
                    raise NotOnTheWire(str(error)) from None
            case {"refused": refusal}:
                raise refusal_from_json(refusal)
            case {"error": words}:
                raise ChildFailed(f"{self.command}: {asked}: {words}")
        raise NotOnTheWire(f"{shown(answer)} has no ok, refused or error")

    @property
    def alive(self) -> bool:
        """Whether it runs and is a child of this process: a forked process must start its own."""
        return self._end.alive and self.owner == os.getpid()

    def _hello(self) -> Hello:
        """Read the first line. Raises: UsageError; the child is ended then."""
        try:
            said = self._receive(HELLO_SHARE, "hello")
        except NotOnTheWire as error:
            self._end()
            raise UsageError(
                f"{self.command} said no hello: {error}; the first line on standard output must be "
                "the hello, and all other text goes to standard error"
            ) from None
        if said.get("protocol") != PROTOCOL:
            self._end()
            raise UsageError(f"{self.command} speaks {said.get('protocol')!r}; this is {PROTOCOL}")
        try:
            hello = from_json(Hello, said)
        except (NotOnTheWire, CacheError, UsageError) as error:
            self._end()
            raise UsageError(f"{self.command} said no proper hello: {error}") from None
        unknown = [name for name in hello.operations if name not in CALLS]
        if unknown:
            self._end()
            raise UsageError(
                f"{self.command} has operations that there are not: {', '.join(unknown)}"
            )
        return hello

    def _send(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._to, line) :]
            except BlockingIOError:
                self._wait(self._to, POLLOUT, ANSWER_SHARE, "its input")
            except OSError:
                raise self._died("its input") from None

    def _require_silence(self, asked: str) -> None:
        """Refuse a child that wrote more than its answers. Raises: ChildUnclear."""
        if not self._unread and _is_ready(self._from, POLLIN, 0.0):
            self._unread += os.read(self._from, CHUNK_BYTES)
        if self._unread:
            line = bytes(self._unread[:100].partition(b"\n")[0])
            self._end()
            raise ChildUnclear(
                f"{self.command} wrote a line that nobody asked for, before {asked}: {line!r}; "
                "write one line for each call, and all other text to standard error"
            )

    def _receive(self, share: float, asked: str) -> Mapping[str, object]:
        """Read the next line. Raises: UsageError, NotOnTheWire."""
        line = self._line(share, asked)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise NotOnTheWire(f"{line[:100]!r} is no object in JSON")
        return answer

    def _line(self, share: float, asked: str) -> bytes:
        """Read the next line, without its end. Raises: UsageError."""
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            if searched > MOST_LINE_BYTES:
                self._end()
                raise ChildUnclear(
                    f"{self.command} wrote a line of more than {MOST_LINE_BYTES >> 20} MiB at "
                    f"{asked}, and was ended"
                )
            self._wait(self._from, POLLIN, share, asked)
            read = os.read(self._from, CHUNK_BYTES)
            if not read:
                raise self._died(asked)
            self._unread += read
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _wait(self, descriptor: int, event: int, share: float, asked: str) -> None:
        """Wait until a pipe is ready; kills the child if it passes a limit. Raises: UsageError."""
        if _is_ready(descriptor, event, LOOKS_EVERY_SECONDS):
            return
        allowed = Allowance(usual_seconds(), share, share * WAITING_TIMES)
        taken = TimeTaken(read_family(self._process.pid))
        while not _is_ready(descriptor, event, LOOKS_EVERY_SECONDS):
            taken.look(read_family(self._process.pid))
            if (passed := taken.passed(allowed)) is not None:
                words = self._last_words()
                self._end()
                raise ChildSilent(
                    f"{self.command} was silent at {asked}, {allowed.text(passed)}, "
                    f"and was ended{words}"
                )

    def _died(self, asked: str) -> ChildDied:
        try:
            code = self._process.wait(1.0)
            how = f"died at {asked}, exit code {code}"
        except subprocess.TimeoutExpired:
            how = f"closed its standard output at {asked}, and was ended"
        words = self._last_words()
        self._end()
        return ChildDied(f"{self.command} {how}{words}")

    def _last_words(self) -> str:
        """Return the last line that the child wrote to standard error, in brackets."""
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f" ({said[-1][:200]})" if said else ""


class PipeCopies:
    """The control of a child's copies."""

    def __init__(self, cache: PipeCache) -> None:
        self.perform = cache.call("perform")
        self.acknowledge = cache.call("acknowledge")
        self.fail = cache.call("fail")
        self._open = cache.call("open_transfer_ids")

    @property
    def open_transfer_ids(self) -> tuple[TransferId, ...]:
        """Copies that neither completed nor failed."""
        return cast("tuple[TransferId, ...]", self._open())


class PipeCache:
    """A cache in a child. It has a method for each operation that the child has, and no others."""

    def __init__(self, child: Child, config: CacheConfig) -> None:
        child.ask({"op": "make", "config": to_json(config)}, None)
        child.made += 1
        self.config = config
        self.copies: CopyControl | None = None
        self._child, self._number = child, child.made
        operations = set(child.hello.operations)
        for name in operations.difference(OF_COPIES):
            setattr(self, name, self.call(name))
        if operations.issuperset(OF_COPIES):
            self.copies = cast("CopyControl", PipeCopies(self))

    def call(self, name: str) -> partial[object]:
        """Return a function that makes one call of the child."""
        return partial(self._ask, name, tuple(CALLS[name].takes), CALLS[name].answers)

    def _ask(
        self, name: str, takes: tuple[str, ...], answers: object, *args: object, **more: object
    ) -> object:
        if self._number != self._child.made:
            raise UsageError(f"{self._child.command} has made another cache since this one")
        line = {"op": name}
        for parameter, argument in (*zip(takes, args, strict=False), *more.items()):
            line[parameter] = to_json(argument)  # type: ignore[assignment]
        # This process only waits, and the child has a limit for each answer.
        NOTE.renew()
        return self._child.ask(line, answers)


class Pipe:
    """A command, and the child process that runs it now."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._child = Child(command)

    @property
    def hello(self) -> Hello:
        """The hello line of the child."""
        return self._child.hello

    def make(self, config: CacheConfig) -> TreeCache:
        """Make an empty cache, in a new child if the last died. Raises: CacheError, UsageError."""
        if not self._child.alive:
            self._child = Child(self._command)
        return cast("TreeCache", PipeCache(self._child, config))


def pipe_adapter(command: str) -> Adapter:
    """Return an adapter of a child process. Raises: UsageError: no start, or a malformed hello."""
    pipe = Pipe(command)
    said = pipe.hello
    hides = frozenset(said.hides)
    try:
        return Adapter(said.name, pipe.make, said.offer, said.profile, hides, said.kind)
    except UsageError as error:
        raise UsageError(f"{command} said no proper hello: {error}") from None


def _split(command: str) -> list[str]:
    """Split a command into words, as a shell does. Raises: UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{PIPE}{command} cannot be started: {error}") from None
    if not words:
        raise UsageError(f"{PIPE} names no command; give the one to start, as {PIPE}COMMAND")
    return words


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Wait until a pipe can be read or written, or is closed; False after `seconds`."""
    waiting = poll()
    waiting.register(descriptor, event)
    ready = waiting.poll(max(0.0, seconds) * 1000)
    # At no wait a closed pipe is left to the next read, which says how the child died.
    return any(seconds or occurred & event for _, occurred in ready)


def _end(process: subprocess.Popen[bytes], words: IO[bytes], owner: int) -> None:
    """Kill a child and close its files, unless another process started it."""
    if os.getpid() != owner:
        return
    process.kill()
    process.wait()
    for each in (process.stdin, process.stdout, words):
        if each is not None:
            each.close()
