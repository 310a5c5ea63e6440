"""Ties a process to its parent: when the parent ends, however it ends, the process is killed.

On Linux the system does this (`PR_SET_PDEATHSIG`), so that also a process in a native loop ends.
It is the *thread* that started the process whose end counts. Elsewhere a thread looks at the
parent once in a second; a process that never lets another thread run then stays.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from ctypes import CDLL
from time import sleep

PR_SET_PDEATHSIG = 1
"""From `linux/prctl.h`."""
LOOKS_EVERY_SECONDS = 1.0

# Looked up once: after a fork nothing should be imported or allocated that another thread may lock.
_PRCTL = CDLL(None).prctl if sys.platform == "linux" else None


def end_with(parent: int) -> None:
    """Let this process end when its parent does, which is given by its id.

    A parent that has ended already ends the process at once.
    """
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _end_without(parent)


def tied() -> Callable[[], None] | None:
    """What `subprocess.Popen` takes as `preexec_fn`, so that a program ends with this process.

    None where the system cannot do it: a program then ends when it reads the end of its input.
    """
    if _PRCTL is None:
        return None
    parent, prctl = os.getpid(), _PRCTL

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _end_without(parent)

    return tie


def _end_without(parent: int) -> None:
    """End at once if the parent ended before it could be watched."""
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while True:
        sleep(LOOKS_EVERY_SECONDS)
        _end_without(parent)
