"""The blocks of each request that computes, and how far they are computed."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from kvcanon.optimized.vllm.engine_calls import SchedulerOutput, VllmRequest


@define(eq=False)
class RequestTable:
    """The blocks of one request, and what of them is known to be computed."""

    blocks: list[list[int]]
    """For each group the blocks in order, the null block where nothing is read any more."""
    known_blocks: int
    """So many leading blocks were taken note of."""
    computed_tokens: int
    """Tokens that are computed once the last step has ended."""


@define(eq=False)
class RequestTables:
    """The tables of all requests, as the steps of the engine change them."""

    block_tokens: int
    _tables: dict[str, RequestTable] = Factory(dict)

    def get(self, name: str) -> RequestTable | None:
        """The table of a request, if it has one."""
        return self._tables.get(name)

    def drop(self, name: str) -> None:
        """Forget a request that lost its blocks."""
        self._tables.pop(name, None)

    def clear(self) -> None:
        """Forget all requests; one that is resumed comes with a new table."""
        self._tables.clear()

    def follow(self, plan: SchedulerOutput) -> list[Sequence[Sequence[int]]]:
        """Take over what a step allocates.

        Returns: the blocks that requests were given, by group; local hits are among them.
        """
        given: list[Sequence[Sequence[int]]] = []
        for new in plan.scheduled_new_reqs:
            self._begin(new.req_id, new.block_ids, new.num_computed_tokens)
            given.append(new.block_ids)
        cached = plan.scheduled_cached_reqs
        for name, added, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self._begin(name, added or (), computed)
            elif added and (table := self._tables.get(name)) is not None:
                for row, blocks in zip(table.blocks, added, strict=True):
                    row.extend(blocks)
            if added:
                given.append(added)
            if table := self._tables.get(name):
                table.computed_tokens = computed
        drafts = plan.scheduled_spec_decode_tokens or {}
        for name, tokens in plan.num_scheduled_tokens.items():
            if table := self._tables.get(name):
                table.computed_tokens += tokens - len(drafts.get(name, ()))
        return given

    def _begin(self, name: str, blocks: Sequence[Sequence[int]], computed: int) -> None:
        self._tables[name] = RequestTable(
            [list(row) for row in blocks], computed // self.block_tokens, computed
        )


def settled_tokens(request: VllmRequest) -> int:
    """How many computed tokens of a request are final."""
    return max(0, request.num_computed_tokens - request.num_output_placeholders)
