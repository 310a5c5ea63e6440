"""The workers of a command: a pool of processes, or this process alone.

The pool survives what a job does to its process. `concurrent.futures.ProcessPoolExecutor` gives
everything up when one process dies. Here the job of that process alone fails, with `ProcessDied`,
and a new worker takes its place. A worker that misses the limit in its note is ended in the same
way.

A thread looks after the workers, so that they are watched also while the main thread is busy.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from mmap import mmap
from multiprocessing.connection import Pipe, wait
from tempfile import TemporaryFile
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.allowance import Passed
from kvcanon.conformance.workers.ending import (
    MOST_OUTPUT,
    Ending,
    ProcessDied,
    Watch,
    Words,
    end_group,
    end_late,
    end_soon,
    ending_of,
)
from kvcanon.conformance.workers.hash_seeds import SEEDS, environment
from kvcanon.conformance.workers.notes import SIZE, Noted
from kvcanon.conformance.workers.worker import READY

LOOKS_EVERY_SECONDS = 0.1
MOST_PASSED_ON = 1 << 20
"""Bytes of stderr of a job that are passed on."""

BOOT = (
    "import sys; sys.path[:] = {path!r}; "
    "from kvcanon.conformance.workers.worker import serve; serve({connection}, {note}, {parent})"
)

Does = ParamSpec("Does")
Done = TypeVar("Done")
Job = tuple["Future[Any]", bytes]


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

    def each(self, fn: Callable[..., Done], /, *args: object) -> list[Future[Done]]:
        """Do a job once in each process. Nothing else may be waiting."""
        if isinstance(self.executor, WorkerPool):
            return self.executor.submit_to_each(fn, *args)
        return [self.executor.submit(fn, *args)]


@contextmanager
def workers(jobs: int, *, apart: bool = False, seed: int = 0) -> Iterator[Workers]:
    """Start worker processes; `jobs` of 1 uses this process, unless all must run apart from it.

    The seed sets the order of Python's sets, which depends on hashes of strings. At the end all
    workers are killed, whatever they do.
    """
    if jobs == 1 and not apart:
        yield Workers(_Here(), 1)
        return
    pool = WorkerPool(jobs, hash_seed=seed % SEEDS)
    try:
        yield Workers(pool, jobs)
    finally:
        pool.shutdown()


# The pool.


class WorkerPool(Executor):
    """A number of worker processes with one seed of Python's hashes."""

    def __init__(self, jobs: int, hash_seed: int) -> None:
        self._jobs, self._hash_seed = jobs, hash_seed
        self._waiting: deque[Job] = deque()
        self._workers: list[_Worker] = []
        self._lock = Lock()
        self._over = False
        self._hears, self._wakes = Pipe(duplex=False)
        self._thread = Thread(target=self._look_after, name="workers", daemon=True)
        self._thread.start()

    def submit(
        self, fn: Callable[Does, Done], /, *args: Does.args, **kwargs: Does.kwargs
    ) -> Future[Done]:
        """Give out a job: a function of a module, and arguments that can be pickled."""
        if kwargs:
            raise TypeError("a job takes no arguments by name")
        return self._submit(self._waiting.append, fn, args)

    def submit_first(self, fn: Callable[..., Done], /, *args: object) -> Future[Done]:
        """Give out a job that comes before all that wait."""
        return self._submit(self._waiting.appendleft, fn, args)

    def submit_to_each(self, fn: Callable[..., Done], /, *args: object) -> list[Future[Done]]:
        """Give each worker this job once; no worker may have another job."""
        futures: list[Future[Done]] = [Future() for _ in range(self._jobs)]
        job = pickle.dumps((fn, args))
        with self._lock:
            self._waiting.extend((each, job) for each in futures)
        self._wake()
        return futures

    def _submit(
        self, put: Callable[[Job], None], fn: Callable[..., Done], args: tuple[object, ...]
    ) -> Future[Done]:
        future: Future[Done] = Future()
        job = pickle.dumps((fn, args))
        with self._lock:
            put((future, job))
        self._wake()
        return future

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:  # As in Executor.
        """End all workers at once, whatever they do."""
        del wait, cancel_futures
        if not self._over:
            self._over = True
            self._wake()
            self._thread.join()
            self._wakes.close()
            self._hears.close()

    def _wake(self) -> None:
        self._wakes.send_bytes(b"!")

    def _look_after(self) -> None:
        """Hand out jobs and take answers, until the pool is shut down."""
        try:
            while not self._over:
                self._hand_out()
                wait([self._hears, *(each.connection for each in self._workers)], self._patience)
                while self._hears.poll():
                    self._hears.recv_bytes()
                for worker in list(self._workers):
                    if not worker.look():
                        self._workers.remove(worker)
        except BaseException as error:
            for future, _ in [*self._waiting, *(each.job for each in self._workers if each.job)]:
                _fail(future, error)
            raise
        finally:
            for worker in self._workers:
                worker.end()
            for future, _ in self._waiting:
                future.cancel()

    @property
    def _patience(self) -> float | None:
        """How long to wait for news; a worker without a job needs no look."""
        return LOOKS_EVERY_SECONDS if any(each.job for each in self._workers) else None

    def _hand_out(self) -> None:
        """Give jobs to workers that have none, and start workers while there are too few."""
        while True:
            idle = next((each for each in self._workers if each.job is None), None)
            if idle is None and len(self._workers) == self._jobs:
                return
            with self._lock:
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            if not job[0].set_running_or_notify_cancel():
                continue
            if idle is None:
                idle = _Worker(self._hash_seed)
                self._workers.append(idle)
            idle.begin(job)


class _Worker:
    """A worker process, and the job that it has."""

    def __init__(self, hash_seed: int) -> None:
        self.job: Job | None = None
        self._ready = False
        self._words = Words()
        self._note_file = TemporaryFile()  # noqa: SIM115  # See `end`.
        self._note_file.truncate(SIZE)
        self._memory = mmap(self._note_file.fileno(), SIZE)
        self.connection, theirs = Pipe()
        fds = theirs.fileno(), self._note_file.fileno()
        self._process = subprocess.Popen(  # noqa: S603  # Our own interpreter and module.
            _command(*fds),
            stdin=subprocess.DEVNULL,
            stderr=self._words.file,
            pass_fds=fds,
            env=environment(hash_seed),
            # A signal to the group ends what the worker started, and Ctrl-C is for the parent.
            start_new_session=True,
        )
        theirs.close()
        self._watch = Watch(self._memory, self._process.pid)

    def begin(self, job: Job) -> None:
        """Give it a job."""
        self.job = job
        if self._ready:
            self._send()

    def look(self) -> bool:
        """Take its answer, or see whether it died or is late. Returns whether it lives."""
        try:
            while self.connection.poll():
                self._take(self.connection.recv_bytes())
        except (EOFError, OSError):
            return self._died(None)
        if self._process.poll() is not None:
            return self._died(None)
        passed = self._watch.look() if self.job is not None else None
        if passed is not None:
            end_late(self._process.pid, lambda: self._process.poll() is not None)
            return self._died(passed)
        self._words.drop(MOST_OUTPUT)
        return True

    def end(self) -> None:
        """Kill it, and what it started. Its job is lost."""
        end_group(self._process.pid)
        self._process.wait()
        self.connection.close()
        self._memory.close()
        self._note_file.close()
        self._words.close()
        if self.job is not None:
            _fail(self.job[0], ProcessDied(Ending("SIGKILL", Noted(), "")))

    def _send(self) -> None:
        if self.job is not None:
            try:
                self.connection.send_bytes(self.job[1])
            except OSError:
                return  # It died; the next look sees that.

    def _take(self, said: bytes) -> None:
        """Take what it said: that it is ready, or the answer to its job."""
        if not self._ready:
            self._ready = said == READY
            self._send()
            return
        if self.job is None:
            return
        future, _ = self.job
        self.job = None
        self._pass_words_on()
        served, value = pickle.loads(said)  # noqa: S301  # Our own worker pickled it.
        if served:
            future.set_result(value)
        else:
            future.set_exception(value)

    def _pass_words_on(self) -> None:
        """Write what a job that is done wrote to stderr."""
        words = self._words.last(MOST_PASSED_ON)
        if words:
            self._words.drop()
            sys.stderr.write(words.decode(errors="replace"))
            sys.stderr.flush()

    def _died(self, passed: Passed | None) -> bool:
        """Fail its job, if it had one. Returns False: it does not live."""
        job, self.job = self.job, None
        end_soon(self._process.pid, lambda: self._process.poll() is not None)
        code = self._process.wait()
        ending = ending_of(code, self._memory, self._words.last(), passed)
        self.end()
        if job is not None:
            error = ProcessDied(ending) if self._ready else _not_started(ending)
            _fail(job[0], error)
        return False


def _not_started(ending: Ending) -> UsageError:
    last = ending.words.splitlines()[-1:] or ["it wrote nothing"]
    return UsageError(f"a worker process of kvcanon did not start, {ending.name}: {last[0]}")


def _fail(future: Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _command(connection: int, note: int) -> list[str]:
    """The command of a worker."""
    path = list(sys.path)
    return python_command(
        BOOT.format(path=path, connection=connection, note=note, parent=os.getpid())
    )


def python_command(code: str) -> list[str]:
    """The command that runs code with the options of this interpreter that change Python itself."""
    options = ["-O"] * sys.flags.optimize + ["-B"] * sys.dont_write_bytecode
    options += [f"-X{name}" for name in ("dev", "utf8") if getattr(sys.flags, f"{name}_mode", 0)]
    options += [f"-W{each}" for each in sys.warnoptions]
    return [sys.executable, *options, "-c", code]
