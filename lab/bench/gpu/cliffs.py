"""`bench cliffs`: looks for single calls whose time depends on the size of the tree."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping

from kvcanon.lab.bench.gpu import cliff_host_scenes as host
from kvcanon.lab.bench.gpu import cliff_scenes as device
from kvcanon.lab.bench.gpu.stopwatch import CallTimes, Stopwatch

Scene = Callable[[Stopwatch, int], None]

SCENES: Mapping[str, Scene] = {
    scene.__name__: scene
    for scene in (
        device.wide,
        device.touched,
        device.growing,
        device.shrinking,
        device.chains,
        device.fragments,
        device.windows,
        device.namespaces,
        device.pending,
        host.full_host,
        host.duplicates,
        host.windows_write_back,
        host.policies,
        host.deep_write_back,
        host.locked_host,
        host.second_hit,
        host.fetched,
        host.failures,
        host.failing_chain,
        host.idle_polls,
    )
}


def run_scene(name: str, nodes: int) -> Iterable[CallTimes]:
    """Play one scene with a tree of so many nodes; returns the times of its operations."""
    watch = Stopwatch()
    gc.disable()  # A collection is Python's, and would count for the call in which it comes.
    try:
        SCENES[name](watch, nodes)
    finally:
        gc.enable()
    return tuple(watch.times(name))
