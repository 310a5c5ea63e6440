"""Serves the batches that a publisher keeps to subscribers that missed them.

A request is a number: the first batch that is wanted. The answer is each batch that is kept from
there on, in the frames of the live stream, and then an end with the number -1. What is no longer
kept is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

import zmq

from kvcanon.live.endpoints import bind

logger = logging.getLogger(__name__)

END = (-1).to_bytes(8, "big", signed=True)
"""The number of the frame that ends a replay."""
LOOKS_EVERY_MS = 50


class ReplayServer:
    """A ROUTER socket with a thread of its own. Raises: BadEndpoint."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        topic: bytes,
        since: Callable[[int], list[tuple[int, bytes]]],
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        # An answer may be longer than what a slow subscriber takes at once.
        self._socket.set_hwm(0)
        try:
            self.endpoint = bind(self._socket, endpoint)
        except Exception:
            self._socket.close(linger=0)
            raise
        self._topic, self._since = topic, since
        self._over = Flag()
        self._thread = Thread(target=self._work, name="kvcanon-replay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.is_set():
            if self._socket.poll(LOOKS_EVERY_MS):
                self._serve(self._socket.recv_multipart())
        self._socket.close(linger=0)

    def _serve(self, request: list[bytes]) -> None:
        if len(request) != 3 or len(request[2]) != len(END):
            logger.warning("a replay request with %d frames is not answered", len(request))
            return
        client, empty, first = request
        for number, payload in self._since(int.from_bytes(first, "big")):
            frames = (client, empty, self._topic, number.to_bytes(len(END), "big"), payload)
            self._socket.send_multipart(frames)
        self._socket.send_multipart((client, empty, b"", END, b""))
