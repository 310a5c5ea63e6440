"""The factory for the clients of a case. A subclass can observe every call that a client makes."""

from __future__ import annotations

from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.cases.request_client import RequestClient
from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
from kvcanon.conformance.protocol.adapter import Adapter, RequestSubject, Subject
from kvcanon.spec.cache import Cache
from kvcanon.spec.types import DEFAULT_NAMESPACE, Namespace


class ClientFactory:
    """Makes the client of each cache of a case."""

    def tree_client(
        self, cache: Cache, subject: Subject, stamps: Stamps, namespaces: tuple[Namespace, ...]
    ) -> Client:
        """Make a client that calls `cache`, which judges or records the calls of a subject."""
        return Client(cache, subject.can, subject.copies, stamps, namespaces)

    def request_client(
        self,
        cache: RequestBlackboxGuard,
        subject: RequestSubject,
        stamps: Stamps,
        namespaces: tuple[Namespace, ...],
    ) -> RequestClient:
        """Make a client of requests, as `tree_client` makes one of a tree."""
        return RequestClient(cache, subject.can, stamps, namespaces)


def namespaces_of(adapter: Adapter) -> tuple[Namespace, ...]:
    """The namespaces of the keys that a client uses."""
    return NAMESPACES if adapter.offer.namespaces else (DEFAULT_NAMESPACE,)
