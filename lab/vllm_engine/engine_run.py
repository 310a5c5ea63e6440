"""Runs an engine of vLLM in this process, and prints what it answered as one line of JSON.

`python -m kvcanon.lab.vllm_engine.engine_run SETTINGS`, in vLLM's environment; SETTINGS are those
of `EngineSettings` as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import Factory, asdict, define

from kvcanon.lab.vllm_engine.planted_faults import PLANTED, fail_loads
from kvcanon.lab.vllm_engine.run_script import Ask, EngineSettings, Round, draw_rounds
from kvcanon.lab.vllm_engine.tiny_models import save_model

BLOCK_TOKENS = 32
REPLY_TOKENS = 24
ABORT_STEP = 2
MOST_STEPS = 20_000
GIB = 1 << 30
DISK = "disk"


@define
class RunAnswer:
    """What came of a run."""

    replies: list[list[int]] = Factory(list)
    """Of each prompt that was not aborted, in the order of the script."""
    cached: list[int] = Factory(list)
    """Tokens of each such prompt that were not computed."""
    salted_hits: int = 0
    """Cached tokens of prompts whose salt nobody had before."""
    hits_after_reset: int = 0
    """Cached tokens of the first prompt after a reset."""
    untrue_events: int = 0
    """Steps after which events do not say what is on the host."""
    found_on_disk: int | None = None
    """Pages that the disk had when the engine began; None without a disk."""
    steps: int = 0
    aborted: int = 0
    counts: dict[str, int] = Factory(dict)


@define
class RunningEngine:
    """An engine, and what it has answered."""

    engine: Any
    settings: EngineSettings
    answer: RunAnswer = Factory(RunAnswer)
    chats: dict[int, list[int]] = Factory(dict)
    _announced: set[bytes] = Factory(set)
    _number: int = 0

    def play(self, rounds: Sequence[Round]) -> RunAnswer:
        """Ask everything."""
        for each in rounds:
            if each.reset:
                self._drain()
                if not self.engine.reset_prefix_cache(False, True):  # vLLM's.
                    raise RuntimeError("the caches could not be reset")
            for at in range(0, len(each.asks), self.settings.at_a_time):
                self._serve(
                    each.asks[at : at + self.settings.at_a_time], first=each.reset and not at
                )
        self._drain()
        half = self._half()
        if half is not None:
            self.answer.counts = half.totals()
        return self.answer

    def _serve(self, asks: Sequence[Ask], *, first: bool) -> None:
        vllm = import_module("vllm")
        names: dict[str, Ask] = {}
        prompts: dict[str, list[int]] = {}
        for ask in asks:
            name, self._number = f"ask {self._number}", self._number + 1
            known = self.chats.get(ask.chat, [])
            prompt = known[: ask.beginning] + list(ask.added)
            names[name], prompts[name] = ask, prompt
            given: dict[str, Any] = {"prompt_token_ids": prompt}
            if ask.salt:
                given["cache_salt"] = ask.salt
            sampling = vllm.SamplingParams(
                temperature=0.0, max_tokens=REPLY_TOKENS, ignore_eos=True, detokenize=False
            )
            self.engine.add_request(name, given, sampling)
        ended = self._steps(names)
        for place, (name, ask) in enumerate(names.items()):
            if ask.aborted:
                continue
            reply, cached = ended[name]
            self.answer.replies.append(reply)
            self.answer.cached.append(cached)
            self.answer.salted_hits += cached if ask.salt else 0
            self.answer.hits_after_reset += cached if first and not place else 0
            if ask.beginning is None:
                self.chats[ask.chat] = prompts[name] + reply

    def _steps(self, names: dict[str, Ask]) -> dict[str, tuple[list[int], int]]:
        ended: dict[str, tuple[list[int], int]] = {}
        wanted = {name for name, ask in names.items() if not ask.aborted}
        begun = self.answer.steps
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.finished and output.request_id in wanted:
                    tokens = list(output.outputs[0].token_ids)
                    ended[output.request_id] = (tokens, output.num_cached_tokens or 0)
            self._after_step()
            if self.answer.steps == begun + ABORT_STEP:
                gone = [name for name in names if name not in wanted]
                self.engine.abort_request(gone)
                self.answer.aborted += len(gone)
            if self.answer.steps > begun + MOST_STEPS:
                raise RuntimeError(f"no end after {MOST_STEPS} steps")
        return ended

    def _drain(self) -> None:
        """Let copies end, so that nothing is in flight."""
        core = self.engine.engine_core.engine_core
        for _ in range(MOST_STEPS):
            half = self._half()
            if half is None or not (
                half.has_pending_push_work() or half.gauges()["loading_requests"]
            ):
                return
            core.step()
            self._after_step()

    def _after_step(self) -> None:
        self.answer.steps += 1
        half = self._half()
        if half is None:
            return
        disk = half.disk
        if disk is not None and disk.index.is_known and self.answer.found_on_disk is None:
            self.answer.found_on_disk = disk.index.count
        if self._announced != half.pages.keys():
            self.answer.untrue_events += 1

    def note_events(self, events: Sequence[Any]) -> None:
        """Fold events of the host, as they are given to vLLM."""
        for event in events:
            keys = {each + event.group_idx.to_bytes(4, "big") for each in event.block_hashes}
            if hasattr(event, "token_ids"):
                self._announced |= keys
            else:
                self._announced -= keys

    def _half(self) -> Any:  # noqa: ANN401  # None, or the scheduler's half.
        connector = self.engine.engine_core.engine_core.scheduler.connector
        if self.settings.beside and connector is not None:
            connector = connector.sub_connectors[0]
        return None if connector is None else connector._scheduler


def run(settings: EngineSettings) -> RunAnswer:
    """Run an engine."""
    if settings.failing:
        fail_loads()
    if settings.fault:
        PLANTED[settings.fault]()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(settings.folder or temporary)
        model = _kept_model(settings, folder)
        engine = RunningEngine(make_engine(settings, model, folder / DISK), settings)
        half = engine._half()
        if half is not None:
            take = half.take_events

            def noted() -> Any:  # noqa: ANN401
                events = take()
                engine.note_events(events)
                return events

            half.__class__.take_events = lambda _: noted()
        played = engine.play(draw_rounds(settings.script_seed, salts=settings.salts))
        if settings.folder and not settings.killed:
            engine.engine.engine_core.shutdown()
        return played


def _kept_model(settings: EngineSettings, folder: Path) -> Path:
    """The folder of the model, which is saved unless an earlier engine had the same weights."""
    model, mark = folder / "model", folder / "model of seed"
    if not mark.exists() or mark.read_text() != str(settings.seed):
        save_model(settings.model, settings.seed, model)
        mark.write_text(str(settings.seed))
    return model


def make_engine(settings: EngineSettings, model: Path, disk: Path) -> Any:  # noqa: ANN401  # vLLM's.
    """Make an engine over a model in a folder."""
    arg_utils, config = import_module("vllm.engine.arg_utils"), import_module("vllm.config")
    groups = 1 if settings.model == "full" else 2
    arguments: dict[str, Any] = {}
    if settings.connector:
        arguments["kv_transfer_config"] = config.KVTransferConfig(**_transfer(settings, disk))
        arguments["kv_events_config"] = config.KVEventsConfig(
            enable_kv_cache_events=True, publisher="null"
        )
    made = arg_utils.EngineArgs(
        model=str(model),
        dtype="float32",
        max_model_len=512,
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=settings.blocks * groups,
        max_num_seqs=settings.at_a_time,
        max_num_batched_tokens=128,
        tensor_parallel_size=settings.ranks,
        distributed_executor_backend="uni" if settings.ranks == 1 else "mp",
        enable_prefix_caching=True,
        enforce_eager=True,
        skip_tokenizer_init=True,
        async_scheduling=settings.overlapping,
        **arguments,
    )
    return import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(
        made, enable_multiprocessing=False
    )


def _transfer(settings: EngineSettings, disk: Path) -> dict[str, Any]:
    """What vLLM is told of the connector."""
    on_disk = {"disk_folder": str(disk), "disk_gib": settings.disk_mib / 1024}
    # Two layers a group, keys and values of heads of 32 numbers of 4 bytes, by ranks.
    row = 2 * 2 * 2 * 32 * 4 * BLOCK_TOKENS
    usual = {"kv_role": "kv_both", "kv_load_failure_policy": "recompute"}
    tiers = [
        {
            **usual,
            "kv_connector": "KvcanonConnector",
            "kv_connector_extra_config": {
                "host_gib": settings.host_blocks * row / GIB,
                "policy": policy,
                **(on_disk if settings.disk_mib else {}),
            },
        }
        for policy in (settings.policy, "write_through")
    ]
    if not settings.beside:
        return tiers[0]
    return {
        **usual,
        "kv_connector": "MultiConnector",
        "kv_connector_extra_config": {"connectors": tiers},
    }


if __name__ == "__main__":
    given = EngineSettings(**json.loads(sys.argv[1]))
    answer = run(given)
    sys.stdout.write("\nANSWER " + json.dumps(asdict(answer)) + "\n")
    sys.stdout.flush()
    if given.killed:
        os._exit(0)
