"""HTTP to one server: a request, an answer, and a clear line for each way in which that fails.

What servers say of themselves, whatever their dialect, is read here, too: metrics, and the fields
of requests.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from ssl import SSLCertVerificationError, SSLError
from typing import Any, TypeVar
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError

JsonObject = Mapping[str, Any]
Answer = TypeVar("Answer")

_ENDPOINTS = ("/generate", "/completions", "/chat", "/models", "/server_info", "/health")
"""Ends of addresses that name an endpoint of the server."""
_PATH = re.compile(r"[!-~]*\Z")
_STREAM_LINE = b"data: "
_STREAM_END = b"[DONE]"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SHOWN_BYTES = 160
BUSY = frozenset({429, 503})
"""Statuses of a server that may answer later."""
BUSY_TRIES = 4
BUSY_SECONDS = 0.5
"""The pause after the first of them; it doubles each time."""
MOST_BUSY_SECONDS = 10.0
"""The longest pause, whatever the server asks for."""


@frozen
class EngineAddress:
    """Where a server is, and how it is spoken to."""

    host: str
    port: int
    path: str = ""
    """What stands before every path."""
    secure: bool = False
    api_key: str = field(default="", repr=False)
    timeout: float = 60.0

    @property
    def url(self) -> str:
        """The address as it is printed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"

    def patient(self, seconds: float) -> EngineAddress:
        """The same address, given at least so many seconds for one answer."""
        return evolve(self, timeout=max(self.timeout, seconds))


class ServerProblem(OSError):
    """A server that did not answer as it should; the message says what to do."""

    def __init__(self, words: str, *, status: int = 0) -> None:
        super().__init__(words)
        self.status = status
        """The status that it answered; 0 if it did not."""

    @property
    def is_end(self) -> bool:
        """Whether the server ended, hung or failed, and did not refuse the request."""
        return self.status == 0 or (self.status >= 500 and self.status not in BUSY)


def address_of(url: str, api_key: str = "", timeout: float = 60.0) -> EngineAddress:
    """Read a URL. Raises: UsageError."""
    no_address = f"{url!r} is no address of a server; give one as http://127.0.0.1:30000"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
        # What a name may have is seen only when it is looked up.
        host.encode("idna")
    except ValueError as error:
        raise UsageError(no_address) from error
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or port == 0
        or not _PATH.match(parts.path)
    ):
        raise UsageError(no_address)
    if not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("the API key has characters that no HTTP header can have; check it")
    secure = parts.scheme == "https"
    path = parts.path.rstrip("/")
    for end in _ENDPOINTS:
        path = path.removesuffix(end)
    path = path.removesuffix("/v1")
    usual = 443 if secure else 80
    return EngineAddress(host, port or usual, path, secure, api_key, timeout)


def ask(address: EngineAddress, method: str, path: str, body: object = None) -> bytes:
    """Send one request, and return the body of the answer. Raises: ServerProblem.

    An answer that trickles for longer than an answer may take is one that hangs.
    """
    with _answered(address, method, path, body) as response:
        ends, parts = time.monotonic() + address.timeout, list[bytes]()
        while part := response.read1(1 << 20):
            parts.append(part)
            if time.monotonic() > ends:
                raise _hangs(address, path)
        if response.length:
            raise IncompleteRead(b"".join(parts), response.length)
        return b"".join(parts)


def ask_json(address: EngineAddress, method: str, path: str, body: object = None) -> JsonObject:
    """Send one request, and return the JSON object that comes. Raises: ServerProblem."""
    answer = ask(address, method, path, body)
    try:
        value = json.loads(answer)
    except ValueError as error:
        raise ServerProblem(
            f"{address.url}{path} answered what is no JSON: {_shown(answer)}; is this the address "
            "of the engine itself?",
            status=200,
        ) from error
    if not isinstance(value, Mapping):
        raise ServerProblem(
            f"{address.url}{path} answered JSON that is no object: {_shown(answer)}", status=200
        )
    return value


def stream(address: EngineAddress, path: str, body: object) -> Generator[JsonObject, None, None]:
    """Send one request, and give the parts of its answer; closing it ends the connection.

    Raises: ServerProblem.
    """
    with _answered(address, "POST", path, body) as response:
        came = time.monotonic()
        while line := response.readline():
            data = line.removeprefix(_STREAM_LINE).strip()
            if not line.startswith(_STREAM_LINE):
                # A comment keeps a connection open, and says nothing about the engine behind it.
                if time.monotonic() - came > address.timeout:
                    raise _hangs(address, path)
                continue
            came = time.monotonic()
            if data == _STREAM_END:
                return
            try:
                part = json.loads(data)
            except ValueError as error:
                raise ServerProblem(
                    f"{address.url}{path} streamed what is no JSON: {_shown(data)}", status=200
                ) from error
            if not isinstance(part, Mapping) or "error" in part:
                raise _streamed_error(address, path, part)
            yield part
    raise ServerProblem(f"{address.url}{path} ended its answer before its end; has it died?")


def _streamed_error(address: EngineAddress, path: str, part: object) -> ServerProblem:
    """What a server says in the middle of an answer, whose status was sent before."""
    error = part.get("error") if isinstance(part, Mapping) else part
    code = error.get("code") if isinstance(error, Mapping) else None
    words = f"{address.url}{path} streamed an error: {_shown(str(error).encode())}"
    return ServerProblem(words, status=code if isinstance(code, int) else 500)


def understood(path: str, read: Callable[[], Answer]) -> Answer:
    """What is read of an answer. Raises: ServerProblem, if it has another form."""
    try:
        return read()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ServerProblem(
            f"{path} answered in a form that is not known ({type(error).__name__}: {error}); is "
            "the dialect right? --api names another",
            status=200,
        ) from error


@contextmanager
def _answered(
    address: EngineAddress, method: str, path: str, body: object
) -> Iterator[HTTPResponse]:
    """The response to one request, with status 200."""
    kind = HTTPSConnection if address.secure else HTTPConnection
    connection = kind(address.host, address.port, timeout=address.timeout)
    headers = {"Content-Type": "application/json"}
    if address.api_key:
        headers["Authorization"] = f"Bearer {address.api_key}"
    text = None if body is None else json.dumps(body)
    try:
        for tries in range(1, BUSY_TRIES + 1):
            connection.request(method, f"{address.path}{path}", text, headers)
            response = connection.getresponse()
            if response.status not in BUSY or tries == BUSY_TRIES:
                break
            time.sleep(_pause(response, tries))
            connection.close()
        if response.status != 200:
            raise _refusal(address, path, response)
        yield response
    except ServerProblem:
        raise
    except TimeoutError as error:
        raise _hangs(address, path) from error
    except SSLCertVerificationError as error:
        raise ServerProblem(
            f"the certificate of {address.url} is not trusted: {error.verify_message}; name the "
            "file of its authority in the variable SSL_CERT_FILE"
        ) from error
    except SSLError as error:
        raise ServerProblem(
            f"{address.url} speaks no https: {error.reason or error}; is it http://?"
        ) from error
    except (OSError, HTTPException) as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ServerProblem(
            f"{address.url} does not answer {path}: {words}; is the server running there?"
        ) from error
    finally:
        connection.close()


def _pause(response: HTTPResponse, tries: int) -> float:
    """How long to wait for a busy server."""
    wanted = response.getheader("Retry-After") or ""
    usual = BUSY_SECONDS * 2 ** (tries - 1)
    return min(MOST_BUSY_SECONDS, float(wanted) if wanted.isdigit() else usual)


def _hangs(address: EngineAddress, path: str) -> ServerProblem:
    return ServerProblem(
        f"{address.url} did not answer {path} within {address.timeout:g} s; it hangs, or give it "
        "longer by --timeout"
    )


def _refusal(address: EngineAddress, path: str, response: HTTPResponse) -> ServerProblem:
    status, where = response.status, f"{address.url}{path}"
    if status in {401, 403}:
        needs = "does not take this API key" if address.api_key else "needs an API key"
        words = f"{where} answered {status}: the server {needs}; give it by --api-key, "
        words += "or in the variable KVCANON_API_KEY"
    elif status in BUSY:
        said = _shown(response.read(_SHOWN_BYTES + 1))
        words = f"{where} answered {status} {BUSY_TRIES} times: {said}; the server is too busy, or "
        words += "starts: probe it later"
    elif 300 <= status < 400:
        target = response.getheader("Location") or "another address"
        words = f"{where} redirects to {target}; give the address that it leads to"
    else:
        words = f"{where} answered {status}: {_shown(response.read(_SHOWN_BYTES + 1))}"
    return ServerProblem(words, status=status)


def _shown(data: bytes) -> str:
    text = " ".join(data[:_SHOWN_BYTES].decode(errors="replace").split())
    return (text or "nothing") + ("..." if len(data) > _SHOWN_BYTES else "")


def said(ask_for: Callable[[], Answer], otherwise: Answer) -> Answer:
    """What a server says, or something else where it does not. Raises: ServerProblem: it ended."""
    try:
        return ask_for()
    except ServerProblem as problem:
        if problem.is_end:
            raise
        return otherwise


def object_at(address: EngineAddress, path: str) -> JsonObject:
    """The JSON object at a path; empty if the server has none. Raises: ServerProblem: it ended."""
    return said(lambda: ask_json(address, "GET", path), {})


def request_fields(address: EngineAddress, schema: str) -> frozenset[str] | None:
    """The fields that a request may have; None if the schema cannot be read."""

    def read() -> frozenset[str] | None:
        try:
            schemas = ask_json(address, "GET", "/openapi.json")["components"]["schemas"]
            return frozenset(schemas[schema]["properties"])
        except (KeyError, TypeError):
            return None

    return said(read, None)


def metrics_of(address: EngineAddress) -> str:
    """The metrics of a server, in the text format of Prometheus; empty if it has none."""
    return said(lambda: ask(address, "GET", "/metrics").decode(errors="replace"), "")


def metric_value(text: str, name: str) -> float | None:
    """The sum of a metric over its labels; None if it is not there."""
    found = [line.rpartition(" ")[2] for line in _lines(text, name)]
    try:
        return sum(float(value) for value in found) if found else None
    except ValueError:
        return None


def metric_labels(text: str, name: str) -> dict[str, str]:
    """The labels of the first line of a metric; empty if it is not there."""
    return {
        label: value for line in _lines(text, name)[:1] for label, value in _LABEL.findall(line)
    }


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(rf"{re.escape(name)}[{{ ]", line)]
