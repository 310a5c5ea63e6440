"""Pipe server: `python -m kvcanon.conformance.protocol.pipe_server NAME` serves a Python cache.

It loads the named cache and serves it over the pipe. So a cache can be judged that needs its own
Python environment, with libraries that the judge must not load.

While it serves, standard output is redirected to standard error: what a cache prints would be read
as an answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    CopyControl,
    RequestSubject,
    Subject,
    Unoffered,
    make_request_subject,
    make_subject,
)
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.drawn_config import any_config
from kvcanon.conformance.protocol.wire import (
    CALLS,
    OF_COPIES,
    PROTOCOL,
    decoder,
    from_json,
    to_json,
)
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError

Served = Subject | RequestSubject


def serve(adapter: Adapter, lines: Iterable[str], answers: IO[str]) -> None:
    """Write the hello line, then answer each line until the input ends."""
    hello = _hello(adapter)
    _say(answers, hello)
    subject: Served | None = None
    for line in lines:
        try:
            asked = json.loads(line)
            name = asked.pop("op")
            if name == "make":
                subject, answer = _made(adapter, from_json(CacheConfig, asked["config"])), None
            else:
                answer = _called(subject, name, asked)
            _say(answers, {"ok": to_json(answer)})
        except Unoffered as unoffered:
            _say(answers, {"refused": to_json(unoffered.__cause__)})
        except CacheError as refusal:
            _say(answers, {"refused": to_json(refusal)})
        except Exception as error:  # noqa: BLE001  # The judge has to hear of it, whatever it is.
            _say(answers, {"error": describe_exception(error)})


def _hello(adapter: Adapter) -> dict[str, object]:
    """Return the hello line; it makes a cache to find out what the cache can do."""
    subject = _made(adapter, any_config(lambda options: options[0], adapter.offer))
    essential = request.ESSENTIAL if adapter.kind is CacheKind.REQUEST else tree.ESSENTIAL
    of_copies = () if _copies_of(subject) is None else OF_COPIES
    return {
        "protocol": PROTOCOL,
        "name": adapter.name,
        "kind": adapter.kind,
        "operations": [*essential, *sorted(subject.can), *of_copies],
        "offer": to_json(adapter.offer),
        "profile": to_json(adapter.profile),
        "hides": sorted(adapter.hides),
    }


def _made(adapter: Adapter, config: CacheConfig) -> Served:
    if adapter.kind is CacheKind.REQUEST:
        return make_request_subject(adapter, config)
    return make_subject(adapter, config)


def _called(subject: Served | None, name: str, asked: Mapping[str, object]) -> object:
    """Return what an operation answers. Raises: CacheError, and every exception of the cache."""
    if subject is None:
        raise LookupError("no cache was made yet")
    call, owner = CALLS[name], _copies_of(subject) if name in OF_COPIES else subject.cache
    given = {each: decoder(call.takes[each])(value) for each, value in asked.items()}
    member = getattr(owner, name)
    return member(**given) if callable(member) else member


def _copies_of(subject: Served) -> CopyControl | None:
    return subject.copies if isinstance(subject, Subject) else None


def _say(answers: IO[str], value: Mapping[str, object]) -> None:
    answers.write(json.dumps(value, separators=(",", ":")) + "\n")
    answers.flush()


def main(arguments: Sequence[str]) -> int:
    """Serve the named cache. Returns 2 if there is no such cache."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        (name,) = arguments
        serve(load_adapter(name), sys.stdin, answers)
    except (UsageError, Unoffered) as fault:
        sys.stderr.write(f"{fault}\n")
        return 2
    except ValueError:
        sys.stderr.write("name one cache, as package.module:factory\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
