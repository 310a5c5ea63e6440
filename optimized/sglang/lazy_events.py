"""SGLang's events, whose lists are encoded already.

SGLang's publisher encodes an event as MessagePack, in another thread but under the same lock of the
interpreter as the scheduler. Lists of a thousand numbers are most of that, and of making the event.
So the native core encodes them, and an event has their bytes; they are decoded where a caller reads
the list. Encoded it is equal to SGLang's own event, byte for byte.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sglang.srt.disaggregation.kv_events import BlockRemoved, BlockStored


def _decoded(base: type, name: str) -> property:
    """A field that is read as a list. The encoder reads the field itself, which has the bytes."""
    field: Any = getattr(base, name)

    def read(event: object) -> Any:  # noqa: ANN401 # Whatever list the field has.
        return msgspec.msgpack.decode(field.__get__(event))

    return property(read, doc=f"The list `{name}`.")


def _plain(event: object) -> object:
    """SGLang's own event of the same fields."""
    base = type(event).__mro__[1]
    return base(*(getattr(event, name) for name in event.__struct_fields__))  # type: ignore[attr-defined]


def _is_equal(event: object, other: object) -> bool:
    if type(other) is type(event):
        other = _plain(other)
    return bool(_plain(event) == other)


def _lazy(base: type, *lists: str) -> Any:  # noqa: ANN401 # A class with the fields of `base`.
    methods: dict[str, object] = {name: _decoded(base, name) for name in lists}
    methods |= {
        "__eq__": _is_equal,
        "__hash__": None,
        "__repr__": lambda event: repr(_plain(event)),
        "__reduce__": lambda event: _plain(event).__reduce__(),
    }
    # Under the same name: it is the tag on the wire, and consumers may go by it.
    return msgspec.defstruct(base.__name__, [], bases=(base,), namespace=methods, module=__name__)


LazyStored = _lazy(BlockStored, "block_hashes", "token_ids")
LazyRemoved = _lazy(BlockRemoved, "block_hashes")
"""As SGLang's classes, made with `msgspec.Raw` in place of the lists."""
