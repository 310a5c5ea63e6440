"""Addresses of servers: names that nobody knows, and parts that are secret or lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from command_line import usage_error
from kvcanon.conformance.probe import cut_answers
from probing import kinds, options_for, probe_json, sound_at

Found = list[tuple[object, ...]]
SECRET = "hunter2"  # noqa: S105  # Nobody's.


class NameServer:
    """Where names are looked up, and how often they were; `silent` while it does not answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = threading.Event()
        self.over = threading.Event()
        self._look_up = socket.getaddrinfo

    def look_up(self, host: str, *given: object, **named: object) -> Found:
        """An address of this machine for the name `engine`."""
        if host != "engine":
            return self._look_up(host, *given, **named)  # type: ignore[arg-type, return-value]
        self.asked += 1
        if self.silent.is_set():
            self.over.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [
            # Nobody listens at the first of its addresses.
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", given[0])),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", given[0])),
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """The name server that a probe asks."""
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.look_up)
    monkeypatch.setattr(cut_answers, "PAUSE_SECONDS", 0.01)
    yield server
    server.over.set()


def test_name_without_an_answer_is_given_up_after_the_time_out(
    names: NameServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system itself would wait for its name servers as long as it is told to."""
    names.silent.set()
    began = time.monotonic()
    words = usage_error(capsys, "probe", "http://engine:30000", "--timeout", "0.3")
    assert time.monotonic() - began < 5
    assert "no name server says within 0.3 s where engine is; give its address as a n" in words


def test_name_that_there_is_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The name servers say so themselves."""
    words = usage_error(capsys, "probe", "http://no.such.name.invalid:30000")
    assert "http://no.such.name.invalid:30000 does not answer /server_info: " in words


def test_server_is_looked_up_once(names: NameServer, capsys: pytest.CaptureFixture[str]) -> None:
    """All prompts go to one machine, whatever becomes of the name, and nobody is accused for it."""
    with sound_at("vllm") as url:
        named = url.replace("127.0.0.1", "engine")
        code, report = probe_json(capsys, named, "--only", "repeats", *options_for("vllm", {}))
    assert (code, kinds(report), names.asked) == (0, set(), 1)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"http://me:{SECRET}@127.0.0.1:1", "the address has a user or a password"),
        (f"me:{SECRET}@127.0.0.1:1", "the address has a user or a password"),
        (f"https://{SECRET}@127.0.0.1/v1", "--header 'Authorization: Basic ...'"),
        (f"http://me:{SECRET}/x@127.0.0.1:1", "the address has a user or a password"),
        (f"http://me:a@{SECRET}@127.0.0.1:1", "the address has a user or a password"),
        (f"http://127.0.0.1:1/v1?key={SECRET}", "goes on after ? or #, which is not sent"),
        (f"127.0.0.1:1?{SECRET}", "give a key by --api-key or --header 'NAME: VALUE'"),
        (f"http://127.0.0.1:1/#{SECRET}", "the address of 127.0.0.1 goes on after ? or #"),
        (f"tcp://127.0.0.1:1/?key={SECRET}", "what was given is no address of a server"),
        (f"http://127.0.0.1:99999/?key={SECRET}", "what was given is no address of a server"),
    ],
)
def test_parts_that_would_be_lost_are_refused_and_not_printed(
    url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says how to give them."""
    said = usage_error(capsys, "probe", url)
    assert words in said
    assert SECRET not in said
