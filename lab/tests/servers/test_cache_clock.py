"""A server counts what its cache takes, and another process reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_peer import run_in
from kvcanon.lab.servers import cache_clock
from kvcanon.lab.servers.cache_clock import CLOCK, make_clock, read_clock, time_calls

now = [0.0]
"""What the clock shows, in seconds."""


class Cache:
    """A cache one of whose calls makes another."""

    def match_prefix(self, seconds: float) -> float:
        """Take some time. Raises: ValueError, for less than none."""
        if seconds < 0:
            raise ValueError("less than none")
        now[0] += seconds
        return seconds

    def checkpoint(self, seconds: float) -> float:
        """Take some time, in another call."""
        return self.match_prefix(seconds)

    def evictable_size(self) -> int:
        """Not counted."""
        now[0] += 1
        return 3


def test_outermost_calls_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call within a call counts with it, a failed call counts, and other calls do not."""
    monkeypatch.setattr(cache_clock, "perf_counter", lambda: now[0])
    file = tmp_path / "clock"
    make_clock(file)
    cache_type = type("Timed", (Cache,), dict(Cache.__dict__))
    time_calls(cache_type, file)
    cache, earlier = cache_type(), read_clock(file)
    assert (earlier.seconds, earlier.calls) == (0, 0)
    assert cache.checkpoint(0.5) == 0.5
    assert cache.match_prefix(0.25) == 0.25
    assert cache.evictable_size() == 3
    with pytest.raises(ValueError, match="less than none"):
        cache.match_prefix(-1)
    spent = read_clock(file) - earlier
    assert (spent.seconds, spent.calls) == (0.75, 3)
    assert cache.match_prefix(0.125) == 0.125
    assert read_clock(file).seconds == 0.875


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A server that could not count does not start."""
    with pytest.raises(FileNotFoundError):
        time_calls(Cache, tmp_path / "missing")


@pytest.mark.nightly
def test_a_server_with_a_clock_counts_its_scheduler(tmp_path: Path) -> None:
    """The plugin times SGLang's cache, whose calls it knows, and shortens its attention."""
    file = tmp_path / "clock"
    make_clock(file)
    code = f"""
import os
os.environ["{CLOCK}"] = {str(file)!r}
from kvcanon.conformance.engines.sglang.adapters import make_unified_world
from kvcanon.lab.servers import cache_clock, server_plugin, short_attention
from kvcanon.sglang_plugin import register
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts
server_plugin.register()
register()
cache = make_unified_world(CacheConfig(device_slots=Counts(full=8)), "kvcanon").cache
print([name for name in cache_clock.CALLS if not hasattr(type(cache), name)])
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
cache.evict(EvictParams(num_tokens=1))
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend as Attention
extend = Attention._run_sdpa_forward_extend
print(short_attention.attend_new_tokens in [each.cell_contents for each in extend.__closure__])
"""
    done = run_in("sglang==0.5.23", "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-3:] == ["[]", "True", ""]
    assert read_clock(file).calls == 1
