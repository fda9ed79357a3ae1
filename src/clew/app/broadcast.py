"""What happens, told to all open pages as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

MAX_WAITING = 1000
"""Events that may wait for one page; one that does not read for so long is let go, and connects again if it lives."""
HEARTBEAT = 15.0
"""Seconds after which a page that had no event gets a comment, so that both sides notice a broken connection."""
GREETING = b"retry: 1000\n\n"


class EventsStream:
    """Hands what is published to every page that listens. Lives in the event loop's thread."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._closed = False

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Tell all pages."""
        text = f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()
        for queue in list(self._listeners):
            if queue.qsize() >= MAX_WAITING:
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(text)

    def close(self) -> None:
        """End all streams: an open one would hold the server up."""
        self._closed = True
        for queue in self._listeners:
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[bytes]:
        """All events from now on."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield GREETING
            while not self._closed:
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT)
                except TimeoutError:
                    text = b": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._listeners.discard(queue)
