"""kvcanon's connector over a disk that outlives its processes: sound runs, and planted faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve

from kvcanon.lab.connectors.contestants import CONNECTORS
from kvcanon.lab.connectors.drawn_disk import DrawnDisk
from kvcanon.lab.connectors.drawn_run import RunOutcome, draw_run, play_run
from kvcanon.lab.connectors.finding import BreachKind
from kvcanon.optimized.vllm import disk_half
from kvcanon.optimized.vllm.disk_half import DiskHalf
from kvcanon.optimized.vllm.disk_names import PromptNames, seed_of
from kvcanon.optimized.vllm.disk_news import DiskJob
from kvcanon.optimized.vllm.worker_half import WorkerHalf
from kvcanon.spec.hashing import namespace_seed
from kvcanon.spec.types import Namespace

OVER_DISK = ("kvcanon-disk", "kvcanon-disk-through")
MOST_RUNS = 60


def play(name: str, seed: int) -> RunOutcome:
    """Play a run."""
    chosen = CONNECTORS[name]
    return play_run(chosen.fitted(draw_run(seed)), chosen.make)


@pytest.mark.parametrize("name", OVER_DISK)
@pytest.mark.parametrize("seed", range(12))
def test_runs_over_a_disk_find_nothing_wrong(name: str, seed: int) -> None:
    """No wrong byte, event, leak or hang, through kills, resets, and a disk that fails."""
    outcome = play(name, seed)
    assert outcome.fault is None, outcome.words
    assert outcome.requests


@pytest.mark.parametrize("name", OVER_DISK)
def test_later_processes_are_served_from_the_disk(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs have restarts, and read in a process what another has written."""
    disks: list[DrawnDisk] = []
    begin = DrawnDisk.__attrs_post_init__

    def noted(self: DrawnDisk) -> None:
        begin(self)
        disks.append(self)

    monkeypatch.setattr(DrawnDisk, "__attrs_post_init__", noted)
    outcomes = [play(name, seed) for seed in range(6)]
    assert sum(each.restarts for each in outcomes) > 6
    assert sum(each.from_earlier_read for each in disks) > 40


Plant = Callable[[pytest.MonkeyPatch], None]


def salt_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Names do not depend on the salt."""
    patch.setattr(disk_half, "seed_of", lambda _, epoch: seed_of(None, epoch))


def reset_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Names are the same after a reset."""
    patch.setattr(disk_half, "seed_of", lambda salt, _: seed_of(salt, None))


def epoch_counted(patch: pytest.MonkeyPatch) -> None:
    """A later process comes to the same names by as many resets."""

    def reset(self: DiskHalf) -> None:
        self._epoch = f"{self._epoch or ''}I"
        self._names.clear()
        self._waiting.clear()

    patch.setattr(DiskHalf, "reset", reset)


def adapters_kept(patch: pytest.MonkeyPatch) -> None:
    """Pages of an adapter go to the disk under its name."""

    def names_of(self: DiskHalf, request: Any) -> PromptNames:  # noqa: ANN401
        lora = request.lora_request
        space = Namespace(self._epoch, request.cache_salt, lora and lora.lora_name)
        return self._names.setdefault(
            request.request_id,
            PromptNames(
                self.shape.block_tokens,
                request.block_hashes,
                request.all_token_ids,
                namespace_seed(space),
            ),
        )

    patch.setattr(DiskHalf, "names_of", names_of)


def other_page_read(patch: pytest.MonkeyPatch) -> None:
    """The disk gives the bytes of another page, and does not see it."""
    read = DrawnDisk._read

    def other(self: DrawnDisk, job: DiskJob) -> bool:
        moved = read(self, job)
        if moved:
            pages = [self.kept.pages[page] for page in job.pages]
            for row, page in zip(job.rows, pages[1:] + pages[:1], strict=True):
                self.host.put_page(row, page)
        return moved

    patch.setattr(DrawnDisk, "_read", other)


def failed_read_used(patch: pytest.MonkeyPatch) -> None:
    """A read that failed is taken for one that filled its rows."""
    end = DrawnDisk._end

    def ended(self: DrawnDisk, job: DiskJob) -> bool:
        return end(self, job) or not job.to_disk

    patch.setattr(DrawnDisk, "_end", ended)


def load_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """A load begins while its rows are being filled."""

    def at_once(self: WorkerHalf) -> None:
        for job in self._awaiting.values():
            self._engine().begin(job)
        self._awaiting.clear()

    patch.setattr(WorkerHalf, "_begin_read", at_once)


def rows_not_held(patch: pytest.MonkeyPatch) -> None:
    """A row may be given to another page while it is being written to the disk."""
    take = DiskHalf.take_jobs

    def let_go(self: DiskHalf) -> Iterable[DiskJob]:
        jobs = take(self)
        for number, job in self._writing.items():
            self.pages.let_go(job.rows)
            self._writing[number] = evolve(job, rows=[], pages=[])
        return jobs

    patch.setattr(DiskHalf, "take_jobs", let_go)


def position_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A name is made of the tokens of its block, and not of those before."""

    def up_to(self: PromptNames, end: int) -> list[bytes]:
        size = self.block_tokens
        blocks = [list(self.token_ids[at * size : (at + 1) * size]) for at in range(end)]
        return [repr((self.seed, block)).encode() for block in blocks]

    patch.setattr(PromptNames, "up_to", up_to)


@pytest.mark.parametrize(
    "plant",
    [
        salt_forgotten,
        reset_forgotten,
        epoch_counted,
        adapters_kept,
        other_page_read,
        failed_read_used,
        load_does_not_wait,
        rows_not_held,
        position_forgotten,
    ],
    ids=lambda plant: plant.__name__,
)
def test_planted_faults_are_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wrong bytes, by one run of many."""
    plant(monkeypatch)
    for seed in range(MOST_RUNS):
        outcome = play("kvcanon-disk-through", seed)
        if outcome.fault is not None:
            assert outcome.fault is BreachKind.WRONG_BYTES, outcome.words
            return
    pytest.fail(f"{plant.__doc__} {MOST_RUNS} runs did not find it.")
