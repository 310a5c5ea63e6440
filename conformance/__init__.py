"""The judge: checks any prefix KV cache against the laws in `kvcanon.spec`.

A cache is judged through an adapter, never through its internals, so that one suite serves caches
of every make and language. `kvcanon.optimized` is not imported here: it is judged as any cache is.

The names in `__all__` are the public API. Everything else may move between releases. Each name is
loaded on first use, so that the pytest plugin does not import the whole suite into every test run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcanon.conformance.adapter_parts.arguments import (
        check_allocate,
        check_evict,
        check_insert,
        check_insert_host,
        check_key,
        check_load_back,
        check_prompt,
        check_room,
        check_settle,
    )
    from kvcanon.conformance.adapter_parts.event_log import EventLog
    from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
    from kvcanon.conformance.adapter_parts.receipts import Receipts
    from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
    from kvcanon.conformance.adapter_parts.slot_ledger import (
        CountedPool,
        PlainFreeList,
        SlotLedger,
        TokenAllocator,
    )
    from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
    from kvcanon.conformance.adapter_parts.small_tokens import SmallTokens
    from kvcanon.conformance.adapter_parts.token_slots import (
        NotWholePages,
        extra_key_of,
        namespace_of_extra_key,
        page_count,
        page_slots,
        token_indices,
        tokens_of,
    )
    from kvcanon.conformance.adapter_parts.tree_view import LastMatch, TreeView
    from kvcanon.conformance.cases.case import Case, case_from_json, case_to_json
    from kvcanon.conformance.cases.draw import draw_case
    from kvcanon.conformance.check.machine import machine_of
    from kvcanon.conformance.check.play import play
    from kvcanon.conformance.check.trial import Trial
    from kvcanon.conformance.cli import main
    from kvcanon.conformance.errors import UsageError, ViolationError
    from kvcanon.conformance.judge import (
        GuardCounts,
        GuardedCache,
        JudgeConfig,
        ProductionGuard,
        guard,
        guard_collector,
        production_guard,
    )
    from kvcanon.conformance.protocol.adapter import (
        Adapter,
        CacheKind,
        Capability,
        CopyControl,
        Offer,
    )
    from kvcanon.conformance.protocol.cache_names import load_adapter
    from kvcanon.conformance.protocol.request import Admitted, RequestCache
    from kvcanon.conformance.protocol.tree import TreeCache
    from kvcanon.conformance.pytest_plugin.checks import check_cache
    from kvcanon.conformance.report.script_runtime import fetched, judged, write_stamps
    from kvcanon.conformance.stores.adapter import (
        StoreAdapter,
        StoreGround,
        StoreOffer,
        folder_ground,
    )
    from kvcanon.conformance.stores.check import check_store

_MODULES = {
    "adapter_parts.arguments": (
        "check_allocate",
        "check_evict",
        "check_insert",
        "check_insert_host",
        "check_key",
        "check_load_back",
        "check_prompt",
        "check_room",
        "check_settle",
    ),
    "adapter_parts.event_log": ("EventLog",),
    "adapter_parts.offers": ("FULL_ATTENTION",),
    "adapter_parts.receipts": ("Receipts",),
    "adapter_parts.running_requests": ("RunningRequests",),
    "adapter_parts.slot_ledger": (
        "CountedPool",
        "PlainFreeList",
        "SlotLedger",
        "TokenAllocator",
    ),
    "adapter_parts.slot_memory": ("SlotMemory",),
    "adapter_parts.small_tokens": ("SmallTokens",),
    "adapter_parts.token_slots": (
        "NotWholePages",
        "extra_key_of",
        "namespace_of_extra_key",
        "page_count",
        "page_slots",
        "token_indices",
        "tokens_of",
    ),
    "adapter_parts.tree_view": ("LastMatch", "TreeView"),
    "cases.case": ("Case", "case_from_json", "case_to_json"),
    "cases.draw": ("draw_case",),
    "cli": ("main",),
    "errors": ("UsageError", "ViolationError"),
    "protocol.adapter": ("Adapter", "CacheKind", "Capability", "CopyControl", "Offer"),
    "protocol.cache_names": ("load_adapter",),
    "protocol.request": ("Admitted", "RequestCache"),
    "protocol.tree": ("TreeCache",),
    "report.script_runtime": ("fetched", "judged", "write_stamps"),
    "check.machine": ("machine_of",),
    "judge": (
        "GuardCounts",
        "GuardedCache",
        "JudgeConfig",
        "ProductionGuard",
        "guard",
        "guard_collector",
        "production_guard",
    ),
    "check.play": ("play",),
    "check.trial": ("Trial",),
    "pytest_plugin.checks": ("check_cache",),
    "stores.adapter": ("StoreAdapter", "StoreGround", "StoreOffer", "folder_ground"),
    "stores.check": ("check_store",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "FULL_ATTENTION",
    "Adapter",
    "Admitted",
    "CacheKind",
    "Capability",
    "Case",
    "CopyControl",
    "CountedPool",
    "EventLog",
    "GuardCounts",
    "GuardedCache",
    "JudgeConfig",
    "LastMatch",
    "NotWholePages",
    "Offer",
    "PlainFreeList",
    "ProductionGuard",
    "Receipts",
    "RequestCache",
    "RunningRequests",
    "SlotLedger",
    "SlotMemory",
    "SmallTokens",
    "StoreAdapter",
    "StoreGround",
    "StoreOffer",
    "TokenAllocator",
    "TreeCache",
    "TreeView",
    "Trial",
    "UsageError",
    "ViolationError",
    "case_from_json",
    "case_to_json",
    "check_allocate",
    "check_cache",
    "check_evict",
    "check_insert",
    "check_insert_host",
    "check_key",
    "check_load_back",
    "check_prompt",
    "check_room",
    "check_settle",
    "check_store",
    "draw_case",
    "extra_key_of",
    "fetched",
    "folder_ground",
    "guard",
    "guard_collector",
    "judged",
    "load_adapter",
    "machine_of",
    "main",
    "namespace_of_extra_key",
    "page_count",
    "page_slots",
    "play",
    "production_guard",
    "token_indices",
    "tokens_of",
    "write_stamps",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
