"""The pool: jobs, what they raise, and workers that die or are late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

import worker_jobs
from descendants import wait_until_ended
from kvcanon.conformance.check.time_limit import NotMade
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.ending import SILENT, ProcessDied
from kvcanon.conformance.workers.workers import WorkerPool, workers


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """One worker, for all tests."""
    one = WorkerPool(1, hash_seed=7)
    yield one
    one.shutdown()


def test_jobs_run_in_another_process(pool: WorkerPool) -> None:
    """A job runs in a worker, not here; its result comes back."""
    pid = pool.submit(os.getpid).result()
    assert pid != os.getpid()
    assert [each.result() for each in [pool.submit(abs, -n) for n in range(5)]] == [0, 1, 2, 3, 4]


def test_the_hash_seed_is_given(pool: WorkerPool) -> None:
    """All workers of one seed hash alike."""
    other = WorkerPool(1, hash_seed=7)
    third = WorkerPool(1, hash_seed=8)
    hashes = [each.submit(hash, "x").result() for each in (pool, other, third)]
    other.shutdown()
    third.shutdown()
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("error", [UsageError("no"), ValueError("no"), NotMade("A", "b")])
def test_exceptions_come_back(pool: WorkerPool, error: Exception) -> None:
    """What a job raises is raised by its future, with its class if that is ours."""
    with pytest.raises(type(error), match=str(error)):
        pool.submit(worker_jobs.fail_with, error).result()


def test_strange_exceptions_come_back_in_words(pool: WorkerPool) -> None:
    """An exception that cannot cross, or must not, is a RuntimeError with its words."""
    with pytest.raises(RuntimeError, match=r"Strange: 7 \(worker_jobs.py"):
        pool.submit(worker_jobs.be_strange).result()
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        pool.submit(worker_jobs.leave, 3).result()
    with pytest.raises(RuntimeError, match="its message cannot be made"):
        pool.submit(worker_jobs.be_mute).result()


def test_only_the_job_that_dies_is_lost(pool: WorkerPool) -> None:
    """The process of a job dies; the jobs after it are done by a new worker."""
    before = pool.submit(os.getpid)
    dead = pool.submit(worker_jobs.die_at, b"case 3", 9)
    after = pool.submit(os.getpid)
    with pytest.raises(ProcessDied, match="ended its process with exit code 9") as died:
        dead.result()
    assert died.value.ending.noted.place == b"case 3"
    assert died.value.ending.words == "last words"
    assert before.result() != after.result()


def test_a_signal_has_its_name_and_the_stacks(pool: WorkerPool) -> None:
    """A crash in native code names the signal, the operation and the Python frames."""
    with pytest.raises(ProcessDied) as died:
        pool.submit(worker_jobs.crash).result()
    ending = died.value.ending
    assert ending.name == "SIGSEGV"
    assert (ending.noted.action, ending.noted.operation, ending.noted.name) == (2, 6, "match")
    assert "Segmentation fault" in ending.words
    assert "worker_jobs.py" in ending.words
    assert "0x" not in ending.words.partition("most recent")[0]


@pytest.mark.parametrize(
    ("hang", "words"),
    [
        (worker_jobs.loop, "no answer within 0.4 s of processor time"),
        (worker_jobs.hold_the_interpreter, "no answer within 4 s in which it waited"),
    ],
)
def test_a_late_worker_is_ended(pool: WorkerPool, hang: Callable[[], None], words: str) -> None:
    """A worker that misses its limit is ended from outside, with the stack that it had."""
    began = time.monotonic()
    with pytest.raises(ProcessDied, match=words) as died:
        pool.submit(worker_jobs.within_limit, hang, 0.4).result()
    assert time.monotonic() - began < 20
    assert died.value.ending.name == SILENT
    assert hang.__name__ in died.value.ending.words


def test_a_limit_that_is_renewed_is_kept(pool: WorkerPool) -> None:
    """An import that goes on renews the limit."""
    assert pool.submit(worker_jobs.import_for, 1.2, 0.5).result() == "done"


def test_a_job_goes_before_all_others(pool: WorkerPool) -> None:
    """A job that is submitted first comes before those that wait."""
    pool.submit(time.sleep, 0.3)
    waiting = [pool.submit(time.monotonic) for _ in range(3)]
    first = pool.submit_first(time.monotonic)
    assert first.result() < min(each.result() for each in waiting)


def test_what_a_job_writes_to_stderr_is_passed_on(
    pool: WorkerPool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cache may log; what it wrote comes when the job is done."""
    pool.submit(worker_jobs.say, "a warning").result()
    assert "a warning" in capsys.readouterr().err


def test_a_copy_of_a_worker_gives_no_answer(pool: WorkerPool) -> None:
    """A cache that forks and returns twice gives one answer."""
    pids = {pool.submit(worker_jobs.fork_and_return).result() for _ in range(3)}
    assert len(pids) == 1


def test_a_worker_that_cannot_start_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends before it is ready is not started again and again."""
    boot = "raise SystemExit('no such module')"
    monkeypatch.setattr("kvcanon.conformance.workers.workers.BOOT", boot)
    with workers(1, apart=True) as by, pytest.raises(UsageError, match="no such module"):
        by.executor.submit(os.getpid).result()


def test_no_worker_outlives_its_pool() -> None:
    """Also one in native code, and what it started, is ended with the pool."""
    with workers(2, apart=True) as by:
        pid, child = by.executor.submit(worker_jobs.start_a_sleeper).result()
        by.executor.submit(worker_jobs.hold_the_interpreter)
        time.sleep(0.3)
    assert not wait_until_ended({pid, child}, 20)
