"""vLLM's own scheduler in the place of ours, where vLLM for CPUs is installed.

Everything else stays: the ranks, their stamped memory, the connector and the referee. So runs of
both schedulers say whether ours asks a connector for what vLLM's does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Any

from kvcanon.lab.connectors.connector_calls import ConnectorOfScheduler, ConnectorReport
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_scheduler import check_answer, check_loads
from kvcanon.lab.connectors.engine_shape import EngineShape

LONGEST_TOKENS = 4_096
VOCABULARY = 64_000
_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LONGEST_TOKENS,
    "torch_dtype": "float32",
}
"""A model that no weights are loaded of."""
_PASSED = (
    "on_new_request",
    "build_connector_meta",
    "update_connector_output",
    "request_finished_all_groups",
    "has_pending_push_work",
    "reset_cache",
)
_OF_WORKERS = ("start_load_kv", "wait_for_layer_load", "save_kv_layer", "wait_for_save")
"""What vLLM's base class wants of every connector, and its scheduler never calls."""


class VLLMScheduler:
    """A `StepScheduler`: vLLM's `Scheduler`, with vLLM's requests and block pool."""

    def __init__(self, shape: EngineShape, connector: ConnectorOfScheduler) -> None:
        self.shape = shape
        self.local_tokens = self.external_tokens = self.preemptions = self.failed_loads = 0
        self._half: Any = connector
        self._events: list[Any] = []
        self._loads: dict[str, int] = {}
        self._local: dict[str, int] = {}
        self._status = import_module("vllm.v1.request").RequestStatus
        self._outputs = import_module("vllm.v1.outputs")
        self._hasher = _hasher(shape.block_tokens)
        self._scheduler: Any = _make_scheduler(shape)
        self._scheduler.connector = self._passing()
        manager = self._scheduler.kv_cache_manager
        half: Any = connector
        if hasattr(half, "bind_kv_cache_manager"):
            half.bind_kv_cache_manager(manager)
        elif hasattr(half, "bind_gpu_block_pool"):
            half.bind_gpu_block_pool(manager.block_pool)

    def made(self, request: StandInRequest) -> Any:  # noqa: ANN401  # vLLM's.
        """A request of vLLM's with the same prompt."""
        adapter = request.lora_request
        sampling = import_module("vllm.sampling_params").SamplingParams(
            max_tokens=request.max_tokens, ignore_eos=True
        )
        made = import_module("vllm.v1.request").Request(
            request_id=request.request_id,
            prompt_token_ids=list(request.prompt_token_ids),
            sampling_params=sampling,
            pooling_params=None,
            lora_request=adapter
            and import_module("vllm.lora.request").LoRARequest(
                adapter.lora_name, adapter.lora_int_id, f"/{adapter.lora_name}"
            ),
            cache_salt=request.cache_salt,
            block_hasher=self._hasher,
        )
        made.skip_reading_prefix_cache = request.skip_reading_prefix_cache
        made.namespace, made.stamped = request.namespace, request.stamped
        made.process = request.process
        return made

    def add(self, request: Any) -> None:  # noqa: ANN401
        """Take a new request."""
        self._scheduler.add_request(request)

    def end_unscheduled(self, request: Any) -> None:  # noqa: ANN401
        """End a request that was never added."""
        request.status = self._status.FINISHED_ABORTED
        self._half.request_finished_all_groups(request, tuple([] for _ in self.shape.groups))

    def has_work(self) -> bool:
        """Whether vLLM would make another step."""
        return bool(self._scheduler.has_requests())

    def unfinished(self) -> list[Any]:
        """The requests that did not end."""
        return [each for each in self._scheduler.requests.values() if not each.is_finished()]

    def loading(self) -> list[Any]:
        """The requests that the connector loads for."""
        waits = self._status.WAITING_FOR_REMOTE_KVS
        return [each for each in self._scheduler.requests.values() if each.status == waits]

    def ended_loads(self) -> list[Any]:
        """Those of them whose load has ended, so that a step need only look at them."""
        ended = self._scheduler.finished_recving_kv_req_ids
        return [each for each in self.loading() if each.request_id in ended]

    def plan(self) -> Any:  # noqa: ANN401
        """Decide what the next step computes."""
        plan = self._scheduler.schedule()
        self.preemptions += len(plan.preempted_req_ids or ())
        return plan

    def settle(self, plan: Any, report: ConnectorReport, token: int) -> None:  # noqa: ANN401
        """Take what a step has computed, and what the connector has finished."""
        names = list(plan.num_scheduled_tokens)
        requests = self._scheduler.requests
        sampled = [
            [token] if requests[name].num_computed_tokens >= requests[name].num_tokens else []
            for name in names
        ]
        waiting = {each.request_id for each in self.loading()}
        self.failed_loads += len(waiting & report.failed_recving)
        output = self._outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=self._outputs.KVConnectorOutput(
                finished_sending=report.finished_sending,
                finished_recving=report.finished_recving,
                failed_recving=report.failed_recving,
                invalid_block_ids=report.invalid_block_ids,
                kv_connector_worker_meta=report.kv_connector_worker_meta,
                expected_finished_count=report.expected_finished_count,
            ),
        )
        self._scheduler.update_from_output(plan, output)

    def finish(self, request: Any) -> None:  # noqa: ANN401
        """End a request in whatever state it is."""
        self._scheduler.finish_requests([request.request_id], self._status.FINISHED_ABORTED)

    def reset(self) -> bool:
        """Empty both caches; vLLM refuses while anything but a running request holds a block."""
        try:
            return bool(
                self._scheduler.reset_prefix_cache(
                    reset_running_requests=True, reset_connector=True
                )
            )
        except RuntimeError:
            return False

    def take_events(self) -> Iterable[Any]:
        """The connector's events since the last call."""
        self._events += self._half.take_events() or ()
        events, self._events = self._events, []
        return events

    def table_of(self, request: Any) -> Sequence[Sequence[int]]:  # noqa: ANN401
        """The block ids of a request, by group."""
        table: Sequence[Sequence[int]] = self._scheduler.kv_cache_manager.get_block_ids(
            request.request_id
        )
        return table

    def has_on_device(self, block_hash: bytes, group: int) -> bool:
        """Whether a block of a group is found on the device."""
        pool = self._scheduler.kv_cache_manager.block_pool
        return pool.get_cached_block(block_hash, [group]) is not None

    def held_blocks(self) -> list[int]:
        """The ids of all blocks that something holds."""
        blocks = self._scheduler.kv_cache_manager.block_pool.blocks
        return [block.block_id for block in blocks if block.ref_cnt and not block.is_null]

    def open_requests(self) -> Mapping[str, str]:
        """Those that hold blocks or wait, by id, each with its status."""
        return {name: each.status.name for name, each in self._scheduler.requests.items()}

    def _passing(self) -> Any:  # noqa: ANN401
        """A connector of vLLM's class that passes all calls on, and counts and checks them."""
        base = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
        methods: dict[str, Any] = {name: _pass_on(getattr(self._half, name)) for name in _PASSED}
        methods |= {name: lambda *_, **__: None for name in _OF_WORKERS}
        methods |= {
            "__init__": lambda _: None,
            "requires_kv_delivery": False,
            "get_loaded_kv_cache_group_ids": lambda *_: tuple(range(len(self.shape.groups))),
            "get_num_new_matched_tokens": lambda _, *given: self._asked(*given),
            "update_state_after_alloc": lambda _, *given: self._allocated(*given),
            "take_events": lambda _: self._keep_events(),
        }
        return type("PassingConnector", (base.KVConnectorBase_V1, base.SupportsHMA), methods)()

    def _asked(self, request: Any, local: int) -> tuple[int | None, bool]:  # noqa: ANN401
        answer, later = self._half.get_num_new_matched_tokens(request, local)
        if not request.skip_reading_prefix_cache:
            check_answer(request, local, answer, self.shape.block_tokens, loads_later=later)
        self._local[request.request_id] = local
        return answer, later

    def _allocated(self, request: Any, blocks: Any, external: int) -> None:  # noqa: ANN401
        name = request.request_id
        self._half.update_state_after_alloc(request, blocks, external)
        self.local_tokens += self._local.pop(name, 0)
        self.external_tokens += external
        if external:
            self._loads[name] = self._loads.get(name, 0) + 1
            check_loads(request, self._loads[name])

    def _keep_events(self) -> tuple[()]:
        """Keep events for `take_events`; vLLM's scheduler would publish them."""
        self._events += self._half.take_events() or ()
        return ()


def _pass_on(call: Any) -> Any:  # noqa: ANN401  # Any method.
    def passed(_: object, *given: object, **named: object) -> object:
        return call(*given, **named)

    return passed


def _hasher(block_tokens: int) -> Any:  # noqa: ANN401
    utils = import_module("vllm.v1.core.kv_cache_utils")
    sha256 = import_module("vllm.utils.hashing").sha256
    utils.init_none_hash(sha256)
    return utils.get_request_block_hasher(block_tokens, sha256)


def _make_scheduler(shape: EngineShape) -> Any:  # noqa: ANN401
    """VLLM's scheduler for an engine of this shape. Raises: ImportError."""
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config = import_module("vllm.config")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(dumps(_MODEL), encoding="utf-8")
        settings = config.VllmConfig(
            model_config=config.ModelConfig(
                model=folder,
                skip_tokenizer_init=True,
                dtype="float32",
                max_model_len=LONGEST_TOKENS,
                enforce_eager=True,
            ),
            scheduler_config=config.SchedulerConfig(
                max_num_seqs=shape.running,
                max_num_batched_tokens=shape.step_tokens,
                max_model_len=LONGEST_TOKENS,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                async_scheduling=False,
            ),
            cache_config=config.CacheConfig(
                block_size=shape.block_tokens, enable_prefix_caching=True
            ),
            device_config=config.DeviceConfig(device="cpu"),
        )
    settings.cache_config.num_gpu_blocks = shape.blocks + 1
    outputs = import_module("vllm.v1.structured_output").StructuredOutputManager(settings)
    scheduler = import_module("vllm.v1.core.sched.scheduler").Scheduler
    return scheduler(settings, cache_config(shape), outputs, block_size=shape.block_tokens)


def cache_config(shape: EngineShape) -> Any:  # noqa: ANN401
    """VLLM's groups and blocks of an engine's."""
    interface = import_module("vllm.v1.kv_cache_interface")
    sizes = {
        "block_size": shape.block_tokens,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": import_module("torch").uint8,
    }
    groups = []
    for group in shape.groups:
        if group.window_tokens is None:
            spec = interface.FullAttentionSpec(**sizes)
        else:
            spec = interface.SlidingWindowSpec(**sizes, sliding_window=group.window_tokens)
        groups.append(interface.KVCacheGroupSpec(list(group.layers), spec))
    return interface.KVCacheConfig(
        num_blocks=shape.blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups
    )
