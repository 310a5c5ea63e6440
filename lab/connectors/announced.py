"""What a connector's events say is in the host, folded, and held against its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import Factory, define

from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector

GPU = "GPU"


@define
class KnownBlock:
    """What a hash stands for."""

    parent: object | None
    tokens: tuple[int, ...]
    lora_name: str | None


@define
class Announced:
    """The blocks that events have announced and not removed."""

    shape: EngineShape
    hash_of_event: Callable[[bytes], object]
    held: set[tuple[object, int]] = Factory(set)
    """Hash, as events have it, and group."""
    events: int = 0
    _known: dict[object, KnownBlock] = Factory(dict)

    def learn(self, request: StandInRequest) -> None:
        """Remember what the hashes of a request stand for."""
        size, before = self.shape.block_tokens, None
        adapter = request.lora_request
        lora = adapter.lora_name if adapter else None
        for at, each in enumerate(request.block_hashes):
            name = self.hash_of_event(each)
            if name not in self._known:
                tokens = tuple(request.all_token_ids[at * size : (at + 1) * size])
                self._known[name] = KnownBlock(before, tokens, lora)
            before = name

    def take(self, events: Iterable[Any]) -> None:
        """Fold events. Raises: BrokenConnector: one is not true."""
        for event in events:
            self.events += 1
            if not hasattr(event, "block_hashes"):
                self.held.clear()
            elif getattr(event, "medium", None) == GPU:
                raise BrokenConnector(BreachKind.WRONG_EVENT, f"{event} of the device")
            elif hasattr(event, "token_ids"):
                self._store(event)
            else:
                self._remove(event)

    def prefix_tokens(
        self, request: StandInRequest, elsewhere: Callable[[bytes, int], bool] | None = None
    ) -> int:
        """How many tokens of a prompt events say can be loaded.

        `elsewhere` says of a block hash and a group whether another place has the block, too.
        """
        size = self.shape.block_tokens
        end = (request.num_tokens - 1) // size
        for number, group in enumerate(self.shape.groups):
            needed = group.blocks_of_hit(size)
            there = [
                (self.hash_of_event(each), number) in self.held
                or (elsewhere is not None and elsewhere(each, number))
                for each in request.block_hashes[:end]
            ]
            if needed is None:
                end = next((at for at, held in enumerate(there) if not held), end)
            else:
                end = next(
                    (
                        last
                        for last in range(end, 0, -1)
                        if all(there[max(0, last - needed) : last])
                    ),
                    0,
                )
        return end * size

    def _store(self, event: Any) -> None:  # noqa: ANN401  # The connector's own.
        size, group = self.shape.block_tokens, getattr(event, "group_idx", None) or 0
        parent, tokens = event.parent_block_hash, tuple(event.token_ids)
        if len(tokens) != size * len(event.block_hashes) or event.block_size != size:
            raise BrokenConnector(
                BreachKind.WRONG_EVENT,
                f"{len(tokens)} tokens for {len(event.block_hashes)} blocks of {size}",
            )
        for at, name in enumerate(event.block_hashes):
            known = self._known.get(name)
            own = tokens[at * size : (at + 1) * size]
            if known is None or known.tokens != own or known.parent != parent:
                raise BrokenConnector(
                    BreachKind.WRONG_EVENT,
                    f"hash {name!r} with tokens {own} behind {parent!r}",
                )
            if known.lora_name != getattr(event, "lora_name", None):
                raise BrokenConnector(BreachKind.WRONG_EVENT, f"hash {name!r} of another adapter")
            self.held.add((name, group))
            parent = name

    def _remove(self, event: Any) -> None:  # noqa: ANN401  # The connector's own.
        group = getattr(event, "group_idx", None) or 0
        for name in event.block_hashes:
            if (name, group) not in self.held:
                raise BrokenConnector(
                    BreachKind.WRONG_EVENT, f"hash {name!r} is removed, and was not announced"
                )
            self.held.discard((name, group))
