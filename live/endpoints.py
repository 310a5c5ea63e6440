"""Endpoints: addresses of sockets, and how data-parallel ranks share one."""

from __future__ import annotations

import re

import zmq

_WILDCARDS = ("*", "0.0.0.0", "[::]", "::")  # noqa: S104  # They are recognised, not bound.
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d+|\*)")
TRANSPORTS = ("tcp://", "ipc://")


class BadEndpoint(OSError):
    """An address that no socket can have."""


def endpoint_of_rank(endpoint: str, rank: int) -> str:
    """The endpoint of a rank: its port is higher by the rank, as with SGLang and vLLM.

    A port that the system chooses stays as it is; a path of ipc gets the rank at its end.

    Raises: BadEndpoint.
    """
    check_endpoint(endpoint)
    if rank == 0:
        return endpoint
    found = _TCP.fullmatch(endpoint)
    if found is None:
        return f"{endpoint}_dp{rank}"
    if found["port"] in {"*", "0"}:
        return endpoint
    port = int(found["port"]) + rank
    if port > 65535:
        raise BadEndpoint(f"{endpoint} has no port for rank {rank}: {port} is above 65535")
    return f"tcp://{found['host']}:{port}"


def check_endpoint(endpoint: str) -> None:
    """Refuse what is no address. Raises: BadEndpoint."""
    if not endpoint.startswith(TRANSPORTS):
        raise BadEndpoint(f"{endpoint!r} is no endpoint; give one such as tcp://127.0.0.1:5557")
    if endpoint.startswith("tcp://"):
        found = _TCP.fullmatch(endpoint)
        if found is None or (found["port"] != "*" and int(found["port"]) > 65535):
            raise BadEndpoint(f"{endpoint!r} has no port; give one such as tcp://127.0.0.1:5557")


def binds(endpoint: str) -> bool:
    """Whether a publisher binds this endpoint, as engines decide: wildcards and ipc."""
    found = _TCP.fullmatch(endpoint)
    return found is None or found["host"] in _WILDCARDS


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Bind a socket, and return where it is bound. Raises: BadEndpoint."""
    _allow_ipv6(socket, endpoint)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise BadEndpoint(f"{endpoint} cannot be bound: {error.strerror}") from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect a socket to where another is bound, now or later. Raises: BadEndpoint."""
    _allow_ipv6(socket, endpoint)
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        why = "" if "*" in endpoint else f": {error.strerror}"
        raise BadEndpoint(
            f"{endpoint!r} is no address to connect to{why}; name the machine and the port of the "
            "publisher, as tcp://127.0.0.1:5557, or bind it where publishers connect to it"
        ) from error


def _allow_ipv6(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Without it ZeroMQ takes no address in brackets, or never connects to it."""
    if "[" in endpoint:
        socket.setsockopt(zmq.IPV6, 1)
