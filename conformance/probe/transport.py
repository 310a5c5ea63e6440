"""HTTP to one server: a request, an answer, and a clear line for each way in which that fails.

What servers say of themselves, whatever their dialect, is read here, too: metrics, and the fields
of requests.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from ssl import SSLCertVerificationError, SSLEOFError, SSLError
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from attrs import Factory, evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.bounded_http import (
    BUFFER_BYTES,
    AnswerBounds,
    ClientCertificate,
    NoAddress,
    ServerPlace,
    TooLarge,
    connect,
    security_of,
)

JsonObject = Mapping[str, Any]
Answer = TypeVar("Answer")

_ENDPOINTS = ("/generate", "/completions", "/chat", "/models", "/server_info", "/health")
"""Ends of addresses that name an endpoint of the server."""
_PATH = re.compile(r"[!-~]*\Z")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"[ -~]*\Z")
_OWN_HEADERS = frozenset({"content-type", "content-length", "host", "transfer-encoding"})
NO_USER = (
    "the address has a user or a password (what is before @), which are not sent; give them as "
    "--header 'Authorization: Basic ...', with user:password in base64"
)
_STREAM_LINE = b"data: "
_STREAM_END = b"[DONE]"
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
_SHOWN = 160
"""Characters of a server's own text in an error."""
_SECONDS = re.compile(r"[0-9]{1,9}\Z")
NOT_JSON = (ValueError, RecursionError)
"""What reading JSON raises: lists that are too deep are none."""
MOST_ANSWER_BYTES = 16 << 20
"""Of one answer, a stream in all. A reply of 256 tokens with its log-probabilities, all of them
again with each token, takes some 6 MiB."""
MOST_LINE_BYTES = 4 << 20
"""Of one line of a stream."""
BUSY = frozenset({429, 503})
"""Statuses of a server that may answer later."""
BAD_GATEWAY = frozenset({502, 504})
"""Statuses of a proxy that had no answer of the server, or none in time."""
BUSY_TRIES = 4
BUSY_SECONDS = 0.5
"""The pause after the first of them; it doubles each time."""
MOST_BUSY_SECONDS = 10.0
"""The longest pause, whatever the server asks for."""


@frozen
class EngineAddress:
    """The address of a server: its host, port and path, and whether it takes TLS."""

    host: str
    port: int
    path: str = ""
    """What stands before every path."""
    secure: bool = False
    api_key: str = field(default="", repr=False)
    timeout: float = 60.0
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """What each request has besides."""
    certificate: ClientCertificate | None = None
    """What the client shows, where the server asks for one."""
    place: ServerPlace = field(
        default=Factory(lambda self: ServerPlace(self.host, self.port), takes_self=True),
        eq=False,
        repr=False,
    )

    @property
    def url(self) -> str:
        """The address as it is printed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"

    def patient(self, seconds: float) -> EngineAddress:
        """The same address, with at least this many seconds for an answer."""
        return evolve(self, timeout=max(self.timeout, seconds))


class ServerProblem(OSError):
    """A server that did not answer as it should; the message says what to do."""

    def __init__(self, words: str, *, status: int = 0, closed: bool = False) -> None:
        super().__init__(words)
        self.status = status
        """The status that it answered; 0 if it did not."""
        self.may_be_cut = closed or status in BAD_GATEWAY
        """Whether what stands between can have cut the answer of a server that lives."""

    @property
    def is_end(self) -> bool:
        """Whether the server ended, hung or failed, and did not refuse the request."""
        return self.status == 0 or (self.status >= 500 and self.status not in BUSY)


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """Read headers, each as `Name: value`. Raises: UsageError."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _HEADER_NAME.match(name) and _HEADER_VALUE.match(value.strip())):
            # The value may be a secret.
            raise UsageError(f"--header {name!r} is no header; give one as 'X-Team: cache'")
        if name.lower() in _OWN_HEADERS:
            raise UsageError(f"--header {name}: the probe sets this one itself")
        headers[name] = value.strip()
    return headers


def address_of(
    url: str,
    api_key: str = "",
    timeout: float = 60.0,
    headers: Mapping[str, str] | None = None,
    certificate: ClientCertificate | None = None,
) -> EngineAddress:
    """Read a URL. Raises: UsageError."""
    # What it should not have may be secret.
    given = "what was given" if set("@?#") & set(url) else repr(url)
    no_address = f"{given} is no address of a server; give one as http://127.0.0.1:30000"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
        # What a name may have is seen only when it is looked up.
        host.encode("idna")
    except ValueError as error:
        raise UsageError(NO_USER if "@" in url else no_address) from error
    if "@" in parts.netloc:
        raise UsageError(NO_USER)
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or port == 0
        or not _PATH.match(parts.path)
    ):
        raise UsageError(no_address)
    _require_no_more(parts)
    if not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("the API key has characters that no HTTP header can have; check it")
    secure = parts.scheme == "https"
    path = parts.path.rstrip("/")
    for end in _ENDPOINTS:
        path = path.removesuffix(end)
    path = path.removesuffix("/v1")
    usual = 443 if secure else 80
    if certificate is not None and not secure:
        raise UsageError("--client-cert is for https; give an address that begins with https://")
    return EngineAddress(
        host, port or usual, path, secure, api_key, timeout, headers or {}, certificate
    )


def _require_no_more(parts: SplitResult) -> None:
    """Refuse parts of an address that requests would not have. Raises: UsageError."""
    if parts.query or parts.fragment:
        raise UsageError(
            f"the address of {parts.hostname} goes on after ? or #, which is not sent; leave it "
            "out, and give a key by --api-key or --header 'NAME: VALUE'"
        )


def ask(address: EngineAddress, method: str, path: str, body: object = None) -> bytes:
    """Send one request, and return the body of the answer. Raises: ServerProblem.

    An answer that trickles for longer than an answer may take is one that hangs.
    """
    with _answered(address, method, path, body) as (response, _):
        parts = list[bytes]()
        # What a server says of the length is no reason to make room for it.
        while part := response.read1(BUFFER_BYTES):
            parts.append(part)
        if response.length:
            raise IncompleteRead(b"".join(parts), response.length)
        return b"".join(parts)


def ask_json(address: EngineAddress, method: str, path: str, body: object = None) -> JsonObject:
    """Send one request, and return the JSON object that comes. Raises: ServerProblem."""
    answer = ask(address, method, path, body)
    try:
        value = json.loads(answer)
    except NOT_JSON as error:
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

    Each part may take as long as an answer may; whoever reads them bounds their number.

    Raises: ServerProblem.
    """
    with _answered(address, "POST", path, body) as (response, bounds):
        while line := response.readline(MOST_LINE_BYTES + 1):
            if len(line) > MOST_LINE_BYTES:
                raise TooLarge
            data = line.removeprefix(_STREAM_LINE).strip()
            if not line.startswith(_STREAM_LINE):
                # A comment keeps a connection open, and says nothing about the engine behind it.
                continue
            bounds.ends = time.monotonic() + address.timeout
            if data == _STREAM_END:
                return
            try:
                part = json.loads(data)
            except NOT_JSON as error:
                raise ServerProblem(
                    f"{address.url}{path} streamed what is no JSON: {_shown(data)}", status=200
                ) from error
            if not isinstance(part, Mapping) or "error" in part:
                raise _streamed_error(address, path, part)
            yield part
    words = f"{address.url}{path} ended its answer before its end; has it died?"
    raise ServerProblem(words, closed=True)


def _streamed_error(address: EngineAddress, path: str, part: object) -> ServerProblem:
    """What a server says in the middle of an answer, whose status was sent before."""
    error = part.get("error") if isinstance(part, Mapping) else part
    code = error.get("code") if isinstance(error, Mapping) else None
    words = f"{address.url}{path} streamed an error: {shown_value(error)}"
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return ServerProblem(words, status=status)


def understood(path: str, read: Callable[[], Answer]) -> Answer:
    """What is read of an answer. Raises: ServerProblem, if it has another form."""
    try:
        return read()
    except (LookupError, TypeError, ArithmeticError, AttributeError, *NOT_JSON) as error:
        why = shown_text(f"{type(error).__name__}: {error}")
        raise ServerProblem(
            f"{path} answered in a form that is not known ({why}); is the dialect right? --api "
            "names another",
            status=200,
        ) from error


@contextmanager
def _answered(
    address: EngineAddress, method: str, path: str, body: object
) -> Iterator[tuple[HTTPResponse, AnswerBounds]]:
    """The response to one request, with status 200, and its bounds. Raises: ServerProblem."""
    opened: list[HTTPConnection | HTTPResponse] = []
    try:
        response, bounds = _asked(address, method, path, body, opened)
        if response.status != 200:
            raise _refusal(address, path, response)
        yield response, bounds
    except ServerProblem:
        raise
    except (OSError, HTTPException) as error:
        raise _problem(address, path, error) from error
    finally:
        _close(opened)


def _asked(
    address: EngineAddress,
    method: str,
    path: str,
    body: object,
    opened: list[HTTPConnection | HTTPResponse],
) -> tuple[HTTPResponse, AnswerBounds]:
    """Ask, and ask again while the server is busy. Raises: OSError, HTTPException."""
    headers = {"Content-Type": "application/json", **address.headers}
    if address.api_key:
        headers["Authorization"] = f"Bearer {address.api_key}"
    text = None if body is None else json.dumps(body)
    tries = 0
    while True:
        tries += 1
        bounds = AnswerBounds(time.monotonic() + address.timeout, MOST_ANSWER_BYTES)
        security = security_of(address.certificate) if address.secure else None
        connection = connect(address.place, bounds, security)
        opened.append(connection)
        connection.request(method, f"{address.path}{path}", text, headers)
        response = connection.getresponse()
        opened.append(response)
        if response.status not in BUSY or tries == BUSY_TRIES:
            return response, bounds
        _close(opened)
        time.sleep(_pause(response, tries))


def _problem(address: EngineAddress, path: str, error: Exception) -> ServerProblem:
    """What went wrong with a connection, as a user can act on it."""
    if isinstance(error, TooLarge):
        return ServerProblem(
            f"{address.url} answered {path} by more than any engine answers: over "
            f"{MOST_ANSWER_BYTES >> 20} MiB, or {MOST_LINE_BYTES >> 20} MiB in one line",
            status=200,
        )
    if isinstance(error, NoAddress):
        return ServerProblem(
            f"no name server says within {address.timeout:g} s where {address.host} is; give its "
            "address as a number, or longer by --timeout"
        )
    if isinstance(error, TimeoutError):
        return hangs(address, path)
    if isinstance(error, SSLCertVerificationError):
        return ServerProblem(
            f"the certificate of {address.url} is not trusted: {error.verify_message}; name the "
            "file of its authority in the variable SSL_CERT_FILE"
        )
    if isinstance(error, SSLError):
        return ServerProblem(
            f"{address.url} speaks no https: {error.reason or error}; is it http://, or does it "
            "ask for a certificate of the client (--client-cert)?",
            # Who speaks TLS may close a connection without the words of TLS for it.
            closed=isinstance(error, SSLEOFError),
        )
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ServerProblem(
        f"{address.url} does not answer {path}: {shown_text(words)}; is the server running there?",
        closed=True,
    )


def _close(opened: list[HTTPConnection | HTTPResponse]) -> None:
    """Close connections and their answers, however much of these was read."""
    while opened:
        opened.pop().close()


def _pause(response: HTTPResponse, tries: int) -> float:
    """How long to wait for a busy server."""
    wanted = response.getheader("Retry-After") or ""
    usual = BUSY_SECONDS * 2 ** (tries - 1)
    return min(MOST_BUSY_SECONDS, float(wanted) if _SECONDS.match(wanted) else usual)


def hangs(address: EngineAddress, path: str) -> ServerProblem:
    """The problem of an answer that does not come, or does not end."""
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
        said = _shown(response.read(4 * _SHOWN + 1))
        words = f"{where} answered {status} {BUSY_TRIES} times: {said}; the server is too busy, or "
        words += "starts: probe it later"
    elif 300 <= status < 400:
        target = shown_text(response.getheader("Location") or "another address")
        words = f"{where} redirects to {target}; give the address that it leads to"
    else:
        words = f"{where} answered {status}: {_shown(response.read(4 * _SHOWN + 1))}"
    return ServerProblem(words, status=status)


def shown_text(text: str) -> str:
    """Text of a server for one line: not all of it where it is long."""
    line = " ".join(text[: 4 * _SHOWN].split())
    return line[:_SHOWN] + ("..." if len(line) > _SHOWN or len(text) > 4 * _SHOWN else "")


def shown_value(value: object) -> str:
    """A value of a server's JSON for one line."""
    # A number of thousands of digits has no text, and a deep list none that is short.
    try:
        return shown_text(value if isinstance(value, str) else repr(value))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _shown(data: bytes) -> str:
    return shown_text(data[: 4 * _SHOWN + 1].decode(errors="replace")) or "nothing"


def said(ask_for: Callable[[], Answer], otherwise: Answer) -> Answer:
    """The answer of a server, or `otherwise` if it has none. Raises: ServerProblem: it ended."""
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


def served_paths(address: EngineAddress) -> frozenset[str] | None:
    """The paths that a server says it has; None if the schema cannot be read."""

    def read() -> frozenset[str] | None:
        try:
            return frozenset(map(str, ask_json(address, "GET", "/openapi.json")["paths"]))
        except (KeyError, TypeError):
            return None

    return said(read, None)


def metrics_of(address: EngineAddress) -> str:
    """The metrics of a server, in the text format of Prometheus; empty if it has none."""
    return said(lambda: ask(address, "GET", "/metrics").decode(errors="replace"), "")


def metric_value(text: str, name: str) -> float | None:
    """The sum of a metric over its labels; None if it is not there, or is no number."""
    found = [line.rpartition(" ")[2] for line in _lines(text, name)]
    try:
        value = sum(float(each) for each in found) if found else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def metric_labels(text: str, name: str) -> dict[str, str]:
    """The labels of the first line of a metric; empty if it is not there."""
    return {
        label: value for line in _lines(text, name)[:1] for label, value in _LABEL.findall(line)
    }


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(rf"{re.escape(name)}[{{ ]", line)]
