"""Sends news to all open pages, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

MAX_WAITING = 1000
"""Events that may wait for one page; a page that does not read them is dropped, and
connects again if it is still there."""
HEARTBEAT = 15.0
"""Seconds without an event after which a page receives a comment, so that both sides
notice a broken connection."""
GREETING = b"retry: 1000\n\n"
KEEP_ALIVE = b": still here\n\n"


class EventsStream:
    """Passes events on to every page that listens.

    All methods run in the thread of the event loop.
    """

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._is_closed = False

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Send an event to all pages.

        Parameters
        ----------
        event : str
            Its name.
        data : dict
            Its content, anything that JSON can hold.
        """
        content = json.dumps(data, allow_nan=False)
        text = f"event: {event}\ndata: {content}\n\n".encode()
        for queue in list(self._listeners):
            if queue.qsize() >= MAX_WAITING:
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(text)

    def close(self) -> None:
        """End all streams: an open one would keep the server from ending."""
        self._is_closed = True
        for queue in self._listeners:
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield all events from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield GREETING
            while not self._is_closed:
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT)
                except TimeoutError:
                    text = KEEP_ALIVE
                if text is None:
                    return
                yield text
        finally:
            self._listeners.discard(queue)
