"""The workers of a command: a pool of processes, or this process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from attrs import frozen

from kvcanon.conformance.workers.pool import WorkerPool

Does = ParamSpec("Does")
Done = TypeVar("Done")


class _Here(Executor):
    """Runs what is submitted at once, in this process."""

    def submit(
        self, fn: Callable[Does, Done], /, *args: Does.args, **kwargs: Does.kwargs
    ) -> Future[Done]:
        done: Future[Done] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@frozen
class Workers:
    """The processes that play cases."""

    executor: Executor
    jobs: int

    def next_of_all(self, fn: Callable[..., Done], /, *args: object) -> Future[Done]:
        """Submit a job that comes before all that wait, as those before it died."""
        if isinstance(self.executor, WorkerPool):
            return self.executor.submit_first(fn, *args)
        return self.executor.submit(fn, *args)


@contextmanager
def workers(jobs: int, *, apart: bool = False, seed: int = 0) -> Iterator[Workers]:
    """Start worker processes; `jobs` of 1 uses this process, unless all must run apart from it.

    The seed sets the order of Python's sets, which depends on hashes of strings. At the end all
    workers are killed, whatever they do.
    """
    if jobs == 1 and not apart:
        yield Workers(_Here(), 1)
        return
    pool = WorkerPool(jobs, hash_seed=seed % (1 << 32))
    try:
        yield Workers(pool, jobs)
    finally:
        pool.shutdown()
