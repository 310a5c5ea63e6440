"""Redis under allkeys-lru parts prompts; a stopped server holds each call for its whole time-out.

It needs redis-server and the package redis: python redis_parts_prompts.py
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PROMPTS, PAGES, BYTES = 12, 40, 16_384
TIMEOUT_SECONDS = 0.2


def name(prompt: int, page: int) -> str:
    """The key of a page."""
    return f"{prompt}:{page}"


def there(client: redis.Redis, prompt: int) -> list[bool]:
    """Which pages of a prompt are there."""
    asked = client.pipeline(transaction=False)
    for page in range(PAGES):
        asked.exists(name(prompt, page))
    return [found == 1 for found in asked.execute()]


def held_seconds(client: redis.Redis) -> float:
    """How long a get waits for a server that does not answer."""
    begun = time.monotonic()
    with contextlib.suppress(redis.RedisError):
        client.get(name(PROMPTS - 1, 0))
    return time.monotonic() - begun


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/socket"
    room = PROMPTS * PAGES * BYTES // 2
    plain = ["--port", "0", "--unixsocket", path, "--dir", folder, "--save", ""]
    limits = ["--maxmemory", str(room), "--maxmemory-policy", "allkeys-lru"]
    server = subprocess.Popen(  # noqa: S603  # A test server of its own.
        ["redis-server", *plain, *limits],  # noqa: S607
        stdout=subprocess.DEVNULL,
    )
    try:
        usual = redis.Redis(unix_socket_path=path, socket_timeout=TIMEOUT_SECONDS)
        bare = redis.Redis(
            unix_socket_path=path, socket_timeout=TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        while True:
            try:
                if usual.ping():
                    break
            except redis.RedisError:
                time.sleep(0.05)
        for prompt in range(PROMPTS):
            for page in range(PAGES):
                usual.set(name(prompt, page), bytes(BYTES))
        runs = [there(usual, prompt) for prompt in range(PROMPTS)]
        readable = [[*each, False].index(False) for each in runs]
        print(f"pages there: {sum(map(sum, runs))} of {PROMPTS * PAGES}")
        print(f"pages of leading runs, which alone can be read: {sum(readable)}")
        usual.get(name(PROMPTS - 1, 0)), bare.get(name(PROMPTS - 1, 0))
        server.send_signal(signal.SIGSTOP)
        waits = [held_seconds(bare) for _ in range(3)]
        print(f"a stopped server, a time-out of {TIMEOUT_SECONDS} s and no retries:", end=" ")
        print("gets wait", ", ".join(f"{each:.1f}" for each in waits), "s")
        print(f"with redis-py's own retries a get waits {held_seconds(usual):.1f} s")
        server.send_signal(signal.SIGCONT)
    finally:
        server.kill()
        server.wait()
parted = sum(readable) < sum(map(sum, runs))
sys.exit(1 if parted or min(waits) > TIMEOUT_SECONDS / 2 else 0)
