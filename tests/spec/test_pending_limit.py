"""Events that nobody takes: at most `max_pending_events` wait, and a router is always right again.

The judge draws no limit. Here its cases are played with small ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.search.play import play
from kvcanon.conformance.search.walker import draw_case
from kvcanon.conformance.variants.override import Overrides, overriding
from kvcanon.optimized.cache import OptimizedCache
from kvcanon.reference import ManualEngine, ReferenceCache, cache, events, snapshot
from kvcanon.reference.state import State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event, fold_events
from kvcanon.spec.laws.expected_events import is_truth
from kvcanon.spec.types import CPU, Counts, Key, Namespace
