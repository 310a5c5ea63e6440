"""Endpoints: addresses of sockets, and how data-parallel ranks share one."""

from __future__ import annotations

import re

import zmq

_WILDCARDS = ("*", "0.0.0.0", "[::]", "::")  # noqa: S104  # They are recognised, not bound.
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]{1,5}|\*)")
_BRACKETS = re.compile(r"[^\[\]]*|.*\[[^\[\]]+\]")
"""A host with an address of IPv6 in brackets, or without any."""
MOST_PORT = 65535
MOST_SHOWN = 200
"""Letters of an address that an error shows."""
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
    if port > MOST_PORT:
        raise BadEndpoint(f"{endpoint} has no port for rank {rank}: {port} is above {MOST_PORT}")
    return f"tcp://{found['host']}:{port}"


def check_endpoint(endpoint: str) -> None:
    """Refuse what is no address. Raises: BadEndpoint."""
    if not endpoint.startswith(TRANSPORTS):
        raise BadEndpoint(
            f"{endpoint[:MOST_SHOWN]!r} is no endpoint; give one such as tcp://127.0.0.1:5557"
        )
    if endpoint.startswith("tcp://"):
        found = _TCP.fullmatch(endpoint)
        if found is None or (found["port"] != "*" and int(found["port"]) > MOST_PORT):
            raise BadEndpoint(
                f"{endpoint[:MOST_SHOWN]!r} has no port; give one such as tcp://127.0.0.1:5557"
            )
        if _BRACKETS.fullmatch(found["host"]) is None:
            raise BadEndpoint(f"{endpoint!r} lacks a bracket; give one such as tcp://[::1]:5557")


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
    found = _TCP.fullmatch(endpoint)
    if found is not None and found["port"] != "*" and int(found["port"]) == 0:
        raise BadEndpoint(f"{endpoint!r} names port 0, where nobody is; give the publisher's port")
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
    """Without it ZeroMQ takes no address of IPv6, or never connects to it."""
    found = _TCP.fullmatch(endpoint)
    if found is not None and ":" in found["host"]:
        socket.setsockopt(zmq.IPV6, 1)
