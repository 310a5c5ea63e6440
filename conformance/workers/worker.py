"""A worker: a fresh interpreter that runs one job after the other until its parent ends it.

Its answer to a job is the result, or what was raised, in bytes for another process.

It imports nothing of the parent's `__main__`. Its stdin is empty, an interrupt goes to the parent
alone, and faulthandler writes the Python stacks of all threads to stderr when a signal ends it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from mmap import mmap
from multiprocessing.connection import Connection

from kvcanon.conformance.errors import describe_exception
from kvcanon.conformance.workers.ending import end_with
from kvcanon.conformance.workers.notes import NOTE, SIZE

READY = b"ready"
"""What a worker says first."""


class ImportWatch:
    """Renews the time limit whenever a module is imported: an engine may load for long."""

    def find_spec(self, *_: object) -> ModuleSpec | None:
        """Find no module, and note that one is looked for."""
        NOTE.renew()
        return None


def serve(connection_fd: int, note_fd: int, parent: int) -> None:
    """Run jobs from a connection, until the parent closes it or ends."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    NOTE.share(mmap(note_fd, SIZE))
    # A core file for each play that reduces a case would fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable(file=2)
    # The system forgets it at a fork, and a cache may fork.
    os.register_at_fork(after_in_child=_end_with_parent)
    sys.meta_path.insert(0, ImportWatch())
    connection = Connection(connection_fd)
    connection.send_bytes(READY)
    me = os.getpid()
    while True:
        try:
            job = connection.recv_bytes()
        except EOFError:
            os._exit(0)
        answer = answer_of(partial(_done, job))
        if os.getpid() != me:
            os._exit(0)  # The cache forked, and this copy of the worker came back from it.
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send_bytes(answer)


def _end_with_parent() -> None:
    end_with(os.getppid())


def _done(job: bytes) -> object:
    do, args = pickle.loads(job)  # noqa: S301  # Our own parent pickled it.
    return do(*args)


# Answers.

OURS = frozenset({"builtins", "kvcanon"})
"""Packages whose exceptions are passed on as they are."""


def answer_of(do: Callable[[], object]) -> bytes:
    """Do a job, and pickle a pair: whether it returned, and its result or what it raised.

    An exception of a class of the cache becomes a RuntimeError with its words: reading it
    would import the module of the class, and so run code of the cache in the other process.
    """
    try:
        return pickle.dumps((True, do()))
    except BaseException as error:  # noqa: BLE001  # A cache may raise anything.
        if type(error).__module__.partition(".")[0] in OURS and isinstance(error, Exception):
            try:
                pickled = pickle.dumps((False, error))
                pickle.loads(pickled)  # noqa: S301  # It may need more arguments than it kept.
            except Exception:  # noqa: BLE001  # Whatever it raises, it cannot be sent.
                return _in_words(error)
            return pickled
        return _in_words(error)


def _in_words(error: BaseException) -> bytes:
    return pickle.dumps((False, RuntimeError(describe_exception(error))))
