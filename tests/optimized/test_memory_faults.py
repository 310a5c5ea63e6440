"""Memory that runs out: one call is refused, or the cache is closed until a reset recovers it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fast.caches import CALLS, IN_THE_TREE, OF_A_STORE, insert, new_cache, tiered
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.optimized.cache import OptimizedCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheUnusable, ReceiptSpent
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import Key
from paths import ROOT

NATIVE = ROOT / "optimized" / "native"
TOKENS = np.arange(4, dtype=np.uint32)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that fails allocations, with the core's asserts."""
    if sys.platform != "linux":
        pytest.skip("the linker of this platform cannot wrap realloc")
    path = tmp_path_factory.mktemp("faults") / "memory_faults"
    sources = [
        *(each for each in NATIVE.glob("*.cpp") if not each.name.startswith(("bind_", "module"))),
        NATIVE / "fuzz" / "audit.cpp",
        NATIVE / "sglang" / "row_table.cpp",
        *(NATIVE / "faults").glob("*.cpp"),
    ]
    compiler = os.environ.get("CXX", "c++")
    flags = ["-std=c++17", "-O0", f"-I{NATIVE}", "-Wl,--wrap=realloc"]
    subprocess.run([compiler, *flags, *map(str, sources), "-o", path], check=True, timeout=600)
    return path


def run(*command: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program."""
    words = list(map(str, command))
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=timeout)


@pytest.mark.nightly
def test_every_allocation_may_fail(program: Path) -> None:
    """Each allocation of each call of random histories fails once, and once with all later ones.

    The program checks that a refused call changed nothing and can be made again, that a closed
    cache refuses, and that it then does exactly what a new one does.
    """
    done = run(program, "1", "40", timeout=600)
    assert done.returncode == 0, done.stderr
    calls, refused, closed = (int(word) for word in done.stdout.split() if word.isdigit())
    assert calls > 4000
    assert refused > 1000
    assert closed > 1000


STOPPED = {
    "use_without_requeue": "is_queued_right(state, node)",
    "lock_without_requeue": "is_queued_right(state, node)",
    "forget_a_child": "audit: node 2: it is in the wrong queues, or places",
    "free_twice": "!any_has_owner(state.pool(component, medium), slots)",
    "free_held_slots": "!any_has_owner(state.pool(component, medium), slots)",
    "place_too_few_slots": "slots.slots() == slots_due(node, component)",
    "place_over_data": "!data.on(medium)",
    "remove_a_leaf_with_data": "is_bare(node)",
    "add_a_second_child": "state.children.find(",
    "announce_what_is_not_there": "node->data[FULL].resident(medium)",
    "unlock_twice": "found != state.holds.end()",
    "copy_what_is_not_there": "part.node->data[part.component].resident(transfer.source())",
    "lose_a_copy": "fills_its_parts(transfer)",
    "read_a_hash_that_is_not_there": "page < span->hashed",
    "end_with_a_victim_left": "audit: node 0: a victim of an earlier eviction has not left",
}
"""What stops the core where one of its modules breaks a rule of another, by the planted mistake."""


@pytest.mark.nightly
def test_a_mistake_between_modules_of_the_core_stops_it(program: Path) -> None:
    """In a build with asserts, each planted mistake ends the program where it is made."""
    assert run(program, "plant", "list").stdout.split() == list(STOPPED)
    for name, words in STOPPED.items():
        done = run(program, "plant", name)
        assert done.returncode == -signal.SIGABRT, name
        assert words in done.stderr, name
        assert len(done.stderr.splitlines()) == 1, name


@pytest.mark.nightly
@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="a sanitizer ends what has no memory")
def test_a_failure_before_any_change_refuses_one_call() -> None:
    """Tokens and answers that have no room are refused, and the next call is served."""
    program = """
import resource
import numpy as np
from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

cache = PrefixCache(CacheConfig(device_slots=Counts(full=2**25), events=False))
cache.insert(np.arange(16), 0, cache.allocate(16)[0])
large = np.zeros(1 << 27, np.int64)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
for call in (lambda: cache.match(large), lambda: cache.allocate(2**25 - 16)) * 2:
    try:
        call()
    except MemoryError as error:
        print(error)
print(cache.match(np.arange(16)).device_pages, cache.free_slot_counts()[0] == 2**25 - 16)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
cache.tree.check()
"""
    done = run(sys.executable, "-c", program)
    assert done.stderr == ""
    assert done.stdout == "memory ran out; the call was refused\n" * 4 + "16 True\n"


class Fault(Exception):
    """What a test raises in the middle of a call."""


def fail(*_: object) -> None:
    """Raise it."""
    raise Fault


def test_bytes_that_cannot_be_written_close_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bytes of fetched pages are not written, nobody reads them, and reset recovers."""
    cache = new_cache(tiered(16))
    assert cache.pools is not None
    held, _, _ = cache.allocate(3)
    insert(cache, TOKENS + 50)
    receipt = cache.lock(TOKENS + 50)
    with monkeypatch.context() as patched:
        patched.setattr(cache.pools, "write_host", fail)
        with pytest.raises(Fault):
            cache.insert_host(TOKENS, 0, HostPayload((b"a", b"b", b"c", b"d")))
    for name, call in (CALLS | IN_THE_TREE).items():
        if (
            name
            not in {"reset", "wait", "wait_layer", "detach", "attach", "invalidate"} | OF_A_STORE
        ):
            with pytest.raises(CacheUnusable, match="call `reset`, which forgets the tree"):
                call(cache)
    assert cache.stats().receipts >= 1  # Statistics are always there.
    cache.reset()
    cache.tree.check()
    assert cache.match(TOKENS).prefix_pages == cache.match(TOKENS + 50).prefix_pages == 0
    assert cache.free_slot_counts() == (13, 0, 0)
    assert cache.tree.pool_counts(0, 1) == (16, 16, 0, 0, 0)
    with pytest.raises(ReceiptSpent):
        cache.unlock(receipt)
    cache.free(held)
    assert cache.free_slot_counts() == (16, 0, 0)
    assert [each.kind for each in cache.take_events()] == ["cleared"]
    cache.insert_host(TOKENS, 0, HostPayload((b"a", b"b", b"c", b"d")))
    assert cache.load_back(TOKENS).transfer_id is not None
    cache.flush()
    assert cache.match(TOKENS).device_pages == 4
    cache.tree.check()


class Recovered(OptimizedCache):
    """A cache that was closed in the middle of its first call, and recovered."""

    def __init__(self, config: CacheConfig, engine: TransferEngine | None = None) -> None:
        super().__init__(config, engine)
        if not config.host_slots.full:
            return
        key = Key((tuple((0, 0) if config.bigram else 0 for _ in range(config.page_size)),))
        payload = HostPayload((bytes(config.slot_bytes),))
        write, self._pools.write_host = self._pools.write_host, fail  # type: ignore[method-assign,assignment]
        with pytest.raises(Fault):
            self.insert_host(key, 0, payload)
        self._pools.write_host = write  # type: ignore[method-assign]
        with pytest.raises(CacheUnusable):
            self.match(key)
        self.reset()


def test_a_recovered_cache_keeps_the_laws() -> None:
    """A cache that was closed and recovered answers as the reference does, and keeps all laws."""
    adapter = Adapter("recovered", Recovered)
    seeds = [seed for seed in range(60) if draw_case(seed, adapter.offer).config.host_slots.full]
    for seed in seeds[:10]:
        findings, _ = play(draw_case(seed, adapter.offer), [adapter], against=REFERENCE)
        assert findings == [], (seed, findings[0].words)
