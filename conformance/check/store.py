"""The store: the finished blocks of a cache's cases, for several machines and for later runs.

A store is a directory or a Redis. Each process claims a block, plays it, and stores its report. A
claim expires after a while, so that a machine may fail at any time. If a claim expires too early, a
block is played twice; the second report is the same as the first, and replaces it.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, cast

from attrs import asdict, evolve
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from kvcanon import __version__
from kvcanon.conformance.check.blocks import BlocksReport, OnBlock, play_blocks
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.result import Finding, Tally, finding_from_json, finding_to_json
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import Workers

if TYPE_CHECKING:
    from redis import Redis

FORMAT = 4
"""The version of stored reports; another version has other names."""
CLAIM_SECONDS = 1800
"""A claim expires after this time; no block should take so long."""


class ResultStore(ABC):
    """The blocks of one cache: claims and reports."""

    def __init__(self) -> None:
        self._first_open = 0

    def claim(self) -> int:
        """Claim the next block that is neither done nor claimed."""
        block = self._first_open
        while True:
            if self._is_done(block):
                self._first_open += block == self._first_open
            elif self._take(block):
                # Another process may have completed it meanwhile.
                if not self._is_done(block):
                    return block
                self.release(block)
            block += 1

    @abstractmethod
    def complete(self, block: int, report: BlocksReport) -> None:
        """Store the report of a claimed block."""

    @abstractmethod
    def release(self, block: int) -> None:
        """Release a claim."""

    @abstractmethod
    def reports(self) -> Iterator[BlocksReport]:
        """The reports of all blocks that are done, in the order of the blocks."""

    @abstractmethod
    def _is_done(self, block: int) -> bool: ...

    @abstractmethod
    def _take(self, block: int) -> bool:
        """Claim a block; False if it is claimed. At most one of several processes gets it."""


class DirectoryStore(ResultStore):
    """A store in a directory that all machines can write to."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._claims, self._done = directory / "claims", directory / "done"
        for each in (self._claims, self._done):
            each.mkdir(parents=True, exist_ok=True)

    def complete(self, block: int, report: BlocksReport) -> None:
        """Store the report of a claimed block."""
        with NamedTemporaryFile("w", dir=self._claims, suffix=".part", delete=False) as part:
            part.write(report_to_json(report))
        Path(part.name).replace(self._report(block))
        self.release(block)

    def release(self, block: int) -> None:
        """Release a claim."""
        self._claim(block).unlink(missing_ok=True)

    def reports(self) -> Iterator[BlocksReport]:
        """The reports of all blocks that are done, in the order of the blocks."""
        for path in sorted(self._done.glob("*.json")):
            yield report_from_json(path.read_text())

    def _is_done(self, block: int) -> bool:
        return self._report(block).exists()

    def _take(self, block: int) -> bool:
        claim = self._claim(block)
        try:
            if time.time() - claim.stat().st_mtime > CLAIM_SECONDS:
                claim.unlink()
        except FileNotFoundError:
            pass
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _claim(self, block: int) -> Path:
        return self._claims / f"{block:09}"

    def _report(self, block: int) -> Path:
        return self._done / f"{block:09}.json"


class RedisStore(ResultStore):
    """A store in a Redis that all machines can reach."""

    def __init__(self, client: Redis, folder: str) -> None:
        super().__init__()
        self._client = client
        self._done = f"kvcanon:{folder}:done"
        self._claims = f"kvcanon:{folder}:claim"

    def complete(self, block: int, report: BlocksReport) -> None:
        """Store the report of a claimed block."""
        self._client.hset(self._done, str(block), report_to_json(report))
        self.release(block)

    def release(self, block: int) -> None:
        """Release a claim."""
        self._client.delete(f"{self._claims}:{block}")

    def reports(self) -> Iterator[BlocksReport]:
        """The reports of all blocks that are done, in the order of the blocks."""
        done = cast("dict[bytes, bytes]", self._client.hgetall(self._done))
        for block in sorted(done, key=int):
            yield report_from_json(done[block])

    def _is_done(self, block: int) -> bool:
        return bool(self._client.hexists(self._done, str(block)))

    def _take(self, block: int) -> bool:
        claim = f"{self._claims}:{block}"
        return bool(self._client.set(claim, "claimed", nx=True, ex=CLAIM_SECONDS))


def require_store(location: str) -> None:
    """Refuse a folder that cannot be written, or a Redis that does not answer. Raises: UsageError.

    A check looks before it plays anything.
    """
    if _is_redis(location):
        _redis(location).close()
        return
    try:
        Path(location).mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=location):
            pass
    except OSError as error:
        raise UsageError(
            f"the store {location} cannot be written: {error.strerror or error}"
        ) from error


def open_store(cache: CachePlan) -> ResultStore:
    """Open the store of a cache in a directory or a Redis. Raises: UsageError."""
    location, folder = str(cache.plan.store), stored_as(cache, cache.plan.effort.block)
    if _is_redis(location):
        return RedisStore(_redis(location), folder)
    return DirectoryStore(Path(location) / folder)


def open_examples(cache: CachePlan) -> ExampleDatabase:
    """Open the database of Hypothesis at the same location. Raises: UsageError."""
    location, folder = str(cache.plan.store), stored_as(cache, 0)
    if _is_redis(location):
        client = _redis(location)
        from hypothesis.extra.redis import RedisExampleDatabase  # noqa: PLC0415  # It needs redis.

        return RedisExampleDatabase(client, key_prefix=f"kvcanon:{folder}:".encode())
    return DirectoryBasedExampleDatabase(Path(location) / "hypothesis" / folder)


def stored_as(cache: CachePlan, cases_each: int) -> str:
    """The name in a store: a readable part, and a digest of all that defines the cases.

    How much of them is played may differ, as may the number of processes.
    """
    plan, judges = cache.plan, cache.plan.judges
    facts = [
        __version__,
        FORMAT,
        cache.name,
        plan.seed,
        cache.model,
        judges.laws,
        judges.black_box,
        sorted(judges.known),
        judges.ranks,
        cases_each,
    ]
    digest = sha256(json.dumps(facts).encode()).hexdigest()[:12]
    readable = "".join(each if each.isalnum() else "-" for each in cache.name)
    return f"{readable}-seed-{plan.seed}-{digest}"


def _is_redis(location: str) -> bool:
    return location.startswith(("redis://", "rediss://"))


def _redis(url: str) -> Redis:
    """Connect to a Redis. Raises: UsageError: it does not answer."""
    try:
        from redis import Redis  # noqa: PLC0415  # An optional dependency.
        from redis.exceptions import RedisError  # noqa: PLC0415  # As above.
    except ImportError as error:
        raise UsageError("a store in Redis needs the extra kvcanon[redis]") from error
    try:
        client = Redis.from_url(url)
        client.ping()
    except (RedisError, ValueError) as error:
        raise UsageError(f"no Redis answers at {url}: {error}") from error
    return client


def share_blocks(
    cache: CachePlan, store: ResultStore, by: Workers, deadline: float, done: OnBlock
) -> tuple[BlocksReport, str]:
    """Play unclaimed blocks until the time is over or enough was found.

    Returns the report of all blocks in the store, also of other processes and earlier runs, and why
    it ended.
    """
    claimed: set[int] = set()
    unfinished = BlocksReport()

    def claims() -> Iterator[int]:
        while True:
            block = store.claim()
            claimed.add(block)
            yield block

    def keep(block: int, report: BlocksReport) -> None:
        if report.cut:
            unfinished.add(report)
        else:
            store.complete(block, report)
            claimed.discard(block)
        done(block, report)

    try:
        ours, why = play_blocks(cache, claims(), by, deadline, keep)
    finally:
        for block in claimed:
            store.release(block)
    total = BlocksReport()
    for report in store.reports():
        total.add(report)
    total.add(unfinished)
    for findings, own in ((total.found, ours.found), (total.beside, ours.beside)):
        for fingerprint in own:
            findings[fingerprint] = evolve(findings[fingerprint], earlier=False)
    return total, why


# Reports as JSON.


def report_to_json(report: BlocksReport) -> str:
    """A report as a line of JSON."""
    found, beside = (
        [_stored(each) for each in findings.values()] for findings in (report.found, report.beside)
    )
    return json.dumps({"tally": asdict(report.tally), "found": found, "beside": beside})


def report_from_json(text: str | bytes) -> BlocksReport:
    """The report of an earlier run or another machine."""
    value: dict[str, Any] = json.loads(text)
    tally = value["tally"]
    counters = {name: Counter(tally[name]) for name in ("laws", "served", "refused", "known")}
    found, beside = (
        {finding.fingerprint: finding for finding in map(_earlier, value[kind])}
        for kind in ("found", "beside")
    )
    return BlocksReport(Tally(**{**tally, **counters}), found, beside)


def _stored(finding: Finding) -> dict[str, Any]:
    number = finding.case_number
    return {"cache": finding.cache, "case_number": number, **finding_to_json(finding)}


def _earlier(value: dict[str, Any]) -> Finding:
    finding = finding_from_json(value, value["cache"])
    return evolve(finding, case_number=value["case_number"], earlier=True)
