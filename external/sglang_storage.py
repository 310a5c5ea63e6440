"""Redis or Mooncake Store as a storage backend of SGLang's HiCache, for a stock server.

`ExternalStorage` is loaded by `--hicache-storage-backend dynamic`. No request waits for a store
that does not answer: each call has a deadline, and after one that was missed the store is left
alone for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from urllib.parse import urlsplit

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.sglang_pages import SglangPages, is_positive
from kvcanon.external.failing import ExternalFailed
from kvcanon.external.guarded import BATCH_BYTES, CallMemory, ExternalStore, GuardedStore

DEADLINE_SECONDS = 1.0
"""How long a request waits for a store that does not answer."""
CLIENT_BYTES = 16 << 20
"""Memory that Mooncake's client takes for itself."""
REDIS, MOONCAKE, TCP = ("redis", "rediss", "unix"), "mooncake", "tcp"
_LOG = logging.getLogger(__name__)


class _Clients:
    """The clients of Mooncake that this process has had."""

    mooncake = 0


class ExternalStorage(SglangPages):
    """SGLang's storage interface over an external store. No call raises, except of an attach."""

    called = "kvcanon's external store"
    own_options = ("store", "deadline_seconds", "here", "protocol", "device", "weights")
    store: GuardedStore | None
    _close_client: Callable[[], object] | None = None

    def check_own_options(self) -> None:
        """Refuse a store that cannot be named or waited for. Raises: DiskUnusable."""
        scheme = urlsplit(str(self.options.get("store", ""))).scheme
        if scheme not in {*REDIS, MOONCAKE}:
            raise DiskUnusable(
                'kvcanon\'s external store needs a "store" in '
                "--hicache-storage-backend-extra-config, as redis://10.0.0.7:6379/0 or "
                "mooncake://10.0.0.7:50051"
            )
        if scheme == MOONCAKE and not self.options.get("here"):
            raise DiskUnusable(
                "kvcanon's external store needs \"here\", this machine's address with a port for "
                'Mooncake\'s client, as "10.0.0.5:17812"'
            )
        if not is_positive(self.options.get("deadline_seconds", DEADLINE_SECONDS)):
            raise DiskUnusable('"deadline_seconds" of kvcanon\'s external store is not above 0')

    def opened(self, identity: DiskIdentity) -> GuardedStore:
        """Make a client of the store. Raises: DiskUnusable, where Mooncake's does not start."""
        url = str(self.options["store"])
        deadline = float(self.options.get("deadline_seconds", DEADLINE_SECONDS))
        memory = CallMemory(max(BATCH_BYTES, self.page_bytes))
        is_mooncake = urlsplit(url).scheme == MOONCAKE
        store = (
            self._over_mooncake(url, identity, memory)
            if is_mooncake
            else _over_redis(url, identity, deadline)
        )
        _LOG.info(
            "kvcanon's external store: %s, a deadline of %g s, pages of %d bytes, for %s",
            urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl(),
            deadline,
            self.page_bytes,
            dict(identity.facts),
        )
        made = GuardedStore(store, deadline, memory)
        try:
            memory.give_back(memory.new_block())
        except ExternalFailed as error:
            raise DiskUnusable(f"kvcanon's external store has no memory: {error}") from error
        return made

    def close(self) -> None:
        """Close the store, and then its client."""
        super().close()
        if self._close_client is not None:
            self._close_client()
            self._close_client = None

    def in_words(self) -> str:
        """What the store has done."""
        if self.store is None:
            return ""
        done, calls = self.store.store.statistics(), self.store.statistics()
        return (
            f"since the start {done.written_pages} pages written, {done.kept_pages} kept, "
            f"{done.read_pages} read, {done.missed_pages} missed, {done.damaged_pages} damaged, "
            f"{done.refused_pages} refused; {calls.given_up_calls} calls given up, "
            f"{calls.failed_calls} failed, {calls.rests} rests"
        )

    def _over_mooncake(self, url: str, identity: DiskIdentity, memory: CallMemory) -> ExternalStore:
        """A client of Mooncake that provides no memory. Raises: DiskUnusable."""
        from kvcanon.external.mooncake_tier import MOST_COPIED_BYTES, MooncakeTier  # noqa: PLC0415  # Of two clients one.

        try:
            client = import_module("mooncake.store").MooncakeDistributedStore()
        except ImportError as error:
            raise DiskUnusable(
                f"kvcanon's external store needs Mooncake's client in this environment: {error}"
            ) from error
        if _Clients.mooncake:
            raise DiskUnusable(
                "this process had a client of Mooncake before, and a second one may end it; "
                "restart the server to attach the store again"
            )
        _Clients.mooncake += 1
        protocol = str(self.options.get("protocol", TCP))
        code = client.setup(
            str(self.options["here"]),
            "P2PHANDSHAKE",
            0,
            CLIENT_BYTES,
            protocol,
            str(self.options.get("device", "")),
            urlsplit(url).netloc,
        )
        if code != 0:
            raise DiskUnusable(f"Mooncake's client does not start for {url}: code {code}")
        self._close_client = client.close
        most_copied = MOST_COPIED_BYTES if protocol == TCP else 0
        tier = MooncakeTier.over(client, identity, most_copied_bytes=most_copied)
        memory.register = tier.register
        return tier


def _over_redis(url: str, identity: DiskIdentity, deadline: float) -> ExternalStore:
    """A client of Redis, which connects at the first call. Raises: DiskUnusable."""
    try:
        from kvcanon.external.redis_tier import RedisTier  # noqa: PLC0415  # Of two clients one.
    except ImportError as error:
        raise DiskUnusable(str(error)) from error
    return RedisTier.open(url, identity, timeout_seconds=deadline)
