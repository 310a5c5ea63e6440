"""What a step computes, with the names of vLLM's `SchedulerOutput` that connectors read."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define, frozen

from kvcanon.lab.connectors.engine_request import LoraAdapter

BlockIds = tuple[list[int], ...]


@frozen
class NewRequestPlan:
    """A request that computes for the first time."""

    req_id: str
    prompt_token_ids: Sequence[int]
    block_ids: BlockIds
    num_computed_tokens: int
    lora_request: LoraAdapter | None
    mm_features: Sequence[object] = ()
    prompt_embeds: object | None = None


@define
class CachedRequestsPlan:
    """Requests that go on, each at the same place of every list."""

    req_ids: list[str] = Factory(list)
    resumed_req_ids: set[str] = Factory(set)
    """Those that were preempted: their blocks replace what they had, and do not extend it."""
    new_block_ids: list[BlockIds | None] = Factory(list)
    num_computed_tokens: list[int] = Factory(list)
    num_output_tokens: list[int] = Factory(list)
    new_token_ids: list[list[int]] = Factory(list)
    all_token_ids: dict[str, list[int]] = Factory(dict)


@define
class StepPlan:
    """A step."""

    scheduled_new_reqs: list[NewRequestPlan] = Factory(list)
    scheduled_cached_reqs: CachedRequestsPlan = Factory(CachedRequestsPlan)
    num_scheduled_tokens: dict[str, int] = Factory(dict)
    preempted_req_ids: set[str] = Factory(set)
    finished_req_ids: set[str] = Factory(set)
    """Requests that ended since the last step."""
    scheduled_spec_decode_tokens: dict[str, list[int]] = Factory(dict)
    scheduled_encoder_inputs: dict[str, list[int]] = Factory(dict)
    num_common_prefix_blocks: list[int] = Factory(list)
    free_encoder_mm_hashes: list[str] = Factory(list)
    has_sync_kv_loads: bool = False
    kv_connector_block_state: object | None = None
    kv_connector_metadata: object | None = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(self.num_scheduled_tokens.values())
