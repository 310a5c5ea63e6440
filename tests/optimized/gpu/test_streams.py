"""Explicit order of copies after streams and events, as an overlap scheduler needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from attrs import evolve

from fast.caches import new_cache, unchanged
from gpu.fake import FakeRuntime, FakeStream
from gpu.scene import SMALL, Device
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, GPU, Counts, WritePolicy

PROMPT = np.arange(4, dtype=np.uint32)


THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy=WritePolicy.WRITE_THROUGH
)


@pytest.fixture(params=[WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
def cache(request: pytest.FixtureRequest, device: Device) -> Iterator[PrefixCache]:
    """A cache on that GPU."""
    config = evolve(THROUGH, write_policy=request.param)
    pools = Pools(config, {FULL: PageLayout(2, (16,))})
    with device.engine(pools, SMALL) as engine, PrefixCache(config, pools, engine) as made:
        yield made


def back_up(cache: PrefixCache, after: object) -> None:
    """Make the cache copy a prompt to the host."""
    slots, _, _ = cache.allocate(4)
    if cache.config.write_policy is WritePolicy.WRITE_BACK:
        cache.insert(PROMPT, 0, slots)
        cache.evict(4, after=after)
    else:
        cache.insert(PROMPT, 0, slots, after=after)
    cache.flush()


def waited_for(runtime: FakeRuntime, stream: FakeStream) -> bool:
    """Whether a stream of the copies waits for a record on this stream."""
    return any(event in each.waited for each in runtime.streams for event in stream.recorded)


def test_copies_wait_for_the_stream_that_is_named(cache: PrefixCache, device: Device) -> None:
    """A backup, and a load-back, wait for the compute stream, not for the current one."""
    runtime, compute = device.runtime, FakeStream("compute")
    for stream in (compute, FakeStream("another")):
        recorded = len(runtime.current.recorded)
        if stream is compute:
            back_up(cache, stream)
            cache.evict(4)
        else:
            assert cache.load_back(PROMPT, after=stream).transfer_id is not None
            cache.flush()
        assert waited_for(runtime, stream)
        assert len(runtime.current.recorded) == recorded


def test_copies_wait_for_the_event_that_is_named(cache: PrefixCache, device: Device) -> None:
    """A copy waits for what the event was recorded for, also if it is recorded again later."""
    runtime = device.runtime
    event = runtime.event()
    event.record(FakeStream("compute"))
    back_up(cache, event)
    gates = [stream for stream in runtime.streams if event in stream.waited]
    assert len(gates) == 1
    assert waited_for(runtime, gates[0])
    assert not runtime.current.recorded


def test_a_stream_is_named_for_one_call(cache: PrefixCache, device: Device) -> None:
    """None means the current stream, as does leaving it out, also after a call that named one."""
    compute, current = FakeStream("compute"), device.runtime.current
    back_up(cache, compute)
    assert not waited_for(device.runtime, current)
    recorded = len(compute.recorded)
    cache.evict(4)
    cache.load_back(PROMPT)
    cache.flush()
    assert len(compute.recorded) == recorded
    assert waited_for(device.runtime, current)
    cache.reset()
    waited = len(current.recorded)
    back_up(cache, None)
    assert any(
        event in each.waited
        for each in device.runtime.streams
        for event in current.recorded[waited:]
    )


@pytest.mark.parametrize("wrong", [7, "stream", object()])
def test_what_is_no_stream_is_refused(cache: PrefixCache, wrong: object) -> None:
    """The call is refused before anything has changed."""
    slots, _, _ = cache.allocate(4)
    with unchanged(cache, BadArgument, r"after: is a \w+; give a CUDA stream, an event, or None"):
        cache.insert(PROMPT, 0, slots, after=wrong)
    cache.insert(PROMPT, 0, slots)
    cache.flush()
    for call in (
        lambda: cache.evict(1, after=wrong),
        lambda: cache.load_back(PROMPT, after=wrong),
        lambda: cache.detach(contents_kept=False, after=wrong),
    ):
        with unchanged(cache, BadArgument, "after: is a"):
            call()
    assert cache.pools is not None
    assert cache.pools.attached


def test_an_event_without_a_record_is_refused(
    cache: PrefixCache, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream would not wait for it at all, so that the copy would come too early."""
    event = device.runtime.event()
    monkeypatch.setattr(type(event), "cuda_event", 0, raising=False)
    with unchanged(cache, BadArgument, "after: is an event that was never recorded"):
        cache.evict(1, after=event)


def test_pools_on_a_cpu_have_no_streams() -> None:
    """Naming one is a mistake, and is refused."""
    for engine in (None, ThreadedEngine()):
        cache = new_cache(THROUGH, engine)
        slots, _, _ = cache.allocate(4)
        with unchanged(cache, BadArgument, "after: is given, and the engine has no streams"):
            cache.insert(PROMPT, 0, slots, after=FakeStream("compute"))
        pools = cache.pools
        assert pools is not None
        with pytest.raises(BadArgument, match="after: is given, and the pools are on cpu"):
            pools.read(FULL, GPU, 0, after=FakeStream("compute"))
        with pytest.raises(BadArgument, match="after: is given, and the pools are on cpu"):
            pools.write(FULL, 0, b"1", after=FakeStream("compute"))


def test_without_a_host_tier_nothing_is_copied() -> None:
    """A stream may be named all the same, so that an engine need not look at its configuration."""
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=8)))
    slots, _, _ = cache.allocate(4)
    cache.insert(PROMPT, 0, slots, after=FakeStream("compute"))
    assert cache.evict(4, after=FakeStream("compute")) == [4, 0, 0]
