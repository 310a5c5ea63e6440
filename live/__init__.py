"""Live KV events: publish a cache's events, follow a publisher, and judge what it sends.

Routers send requests where events say that a prefix is cached. `Publisher` sends the events of any
cache as SGLang and vLLM send theirs. `Subscriber` follows publishers without losing a batch that
can still be had. `Follower` folds a stream as a router does, and checks the laws that a stream can
show by itself; `kvcanon watch` and `kvcanon audit` are made of these.
"""

from importlib import import_module

FOLDER = "kvcanon.live._stream"

try:
    for name in ("msgspec", "zmq", FOLDER):
        import_module(name)
except ModuleNotFoundError as error:
    if error.name == FOLDER:
        raise ImportError(
            "kvcanon.live has no native module here: none was compiled when kvcanon was installed; "
            "with a C++17 compiler such as g++, install kvcanon[live] again as before, but with "
            "`--force-reinstall --no-cache-dir` and without `--config-settings=kvcanon.core=off`; "
            "in a checkout run `make native`."
        ) from error
    package = {"zmq": "pyzmq"}.get(str(error.name), error.name)
    raise ImportError(
        f"kvcanon.live needs {package}, which is not installed; run `pip install 'kvcanon[live]'`."
    ) from error

from kvcanon.live.dialects import Dialect as Dialect
from kvcanon.live.follower import Follower as Follower
from kvcanon.live.publisher import Publisher as Publisher
from kvcanon.live.subscriber import Subscriber as Subscriber
