"""A client of Mooncake Store without one: its calls on objects in memory, with the same codes."""

from __future__ import annotations

import ctypes

from attrs import Factory, define

OBJECT_NOT_FOUND, INVALID, NO_ROOM, TRANSFER_FAILED, RPC_FAILED = -704, -600, -200, -800, -900


@define(eq=False)
class MooncakeObjects:
    """What several clients share."""

    objects: dict[str, bytes] = Factory(dict)
    begun: set[str] = Factory(set)
    """Objects that another client has begun to put: nobody can read them yet."""
    most_objects: int = 1_000
    providers_gone: bool = False
    master_gone: bool = False


@define(eq=False)
class FakeMooncake:
    """One client. A piece of memory that it does not know is refused, as by the real one."""

    shared: MooncakeObjects = Factory(MooncakeObjects)
    known: dict[int, int] = Factory(dict)
    """Registered memory: addresses with lengths."""

    def register_buffer(self, buffer_ptr: int, size: int, /) -> int:
        if any(
            begin < buffer_ptr + size and buffer_ptr < begin + n for begin, n in self.known.items()
        ):
            return INVALID
        self.known[buffer_ptr] = size
        return 0

    def unregister_buffer(self, buffer_ptr: int, /) -> int:
        return 0 if self.known.pop(buffer_ptr, None) is not None else INVALID

    def batch_put_from_multi_buffers(
        self, keys: list[str], pointers: list[list[int]], sizes: list[list[int]], /
    ) -> list[int]:
        return [
            self._put(key, b"".join(map(ctypes.string_at, *places)))
            if self._knows(*places)
            else INVALID
            for key, places in zip(keys, zip(pointers, sizes, strict=True), strict=True)
        ]

    def batch_get_into_multi_buffers(
        self, keys: list[str], pointers: list[list[int]], sizes: list[list[int]], /
    ) -> list[int]:
        return [
            self._get_into(key, *places) if self._knows(*places) else INVALID
            for key, places in zip(keys, zip(pointers, sizes, strict=True), strict=True)
        ]

    def batch_put_from(
        self, keys: list[str], pointers: list[int], sizes: list[int], /
    ) -> list[int]:
        return [
            self._put(key, ctypes.string_at(pointer, size))
            if self._knows([pointer], [size])
            else INVALID
            for key, pointer, size in zip(keys, pointers, sizes, strict=True)
        ]

    def batch_get_into(
        self, keys: list[str], pointers: list[int], sizes: list[int], /
    ) -> list[int]:
        return [
            self._get_into(key, [pointer], [min(size, len(self.shared.objects.get(key, b"")))])
            if self._knows([pointer], [size])
            else INVALID
            for key, pointer, size in zip(keys, pointers, sizes, strict=True)
        ]

    def get_size(self, key: str, /) -> int:
        if self.shared.master_gone:
            return RPC_FAILED
        content = self.shared.objects.get(key)
        return OBJECT_NOT_FOUND if content is None else len(content)

    def batch_is_exist(self, keys: list[str], /) -> list[int]:
        return [-1 if self.shared.master_gone else int(key in self.shared.objects) for key in keys]

    def batch_remove(self, keys: list[str], force: bool, /) -> list[int]:
        found = [self.shared.objects.pop(key, None) if force else None for key in keys]
        return [0 if each is not None else OBJECT_NOT_FOUND for each in found]

    def _knows(self, pointers: list[int], sizes: list[int]) -> bool:
        return all(
            any(begin <= at and at + size <= begin + n for begin, n in self.known.items())
            for at, size in zip(pointers, sizes, strict=True)
        )

    def _put(self, key: str, content: bytes) -> int:
        if self.shared.master_gone:
            return RPC_FAILED
        if key in self.shared.objects or key in self.shared.begun:
            return 0
        if self.shared.providers_gone:
            return TRANSFER_FAILED
        if len(self.shared.objects) >= self.shared.most_objects:
            return NO_ROOM
        self.shared.objects[key] = content
        return 0

    def _get_into(self, key: str, pointers: list[int], sizes: list[int]) -> int:
        if self.shared.master_gone:
            return RPC_FAILED
        content = self.shared.objects.get(key)
        if content is None:
            return OBJECT_NOT_FOUND
        if len(content) > sum(sizes):
            return INVALID
        if self.shared.providers_gone or len(content) < sum(sizes):
            return TRANSFER_FAILED
        at = 0
        for pointer, size in zip(pointers, sizes, strict=True):
            ctypes.memmove(pointer, content[at : at + size], size)
            at += size
        return len(content)
