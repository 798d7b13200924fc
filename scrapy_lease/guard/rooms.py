"""Requests in the downloader that wait until their download slot can send them.

Behind a slot's own queue they would be sent when nobody wants them any more: Scrapy empties that queue before it
closes, with all its delays. Here they can be let go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from scrapy import Request

from scrapy_lease.scheduler.slots import Slots


class Rooms:
    """First come, first served, slot by slot.

    :param is_open: tells whether one of those that wait here may be sent by a slot that can.
    """

    def __init__(self, slots: Slots, is_open: Callable[[str], bool]) -> None:
        self._slots = slots
        self._is_open = is_open
        self._queues: dict[str, deque[tuple[Request, asyncio.Future[bool]]]] = {}

    def __iter__(self) -> Iterator[Request]:
        return (request for queue in self._queues.values() for request, _ in queue)

    def __repr__(self) -> str:
        return f"<Rooms: {sum(1 for _ in self)} requests wait for {len(self._queues)} slots>"

    async def enter(self, request: Request) -> bool:
        """Wait until *request* can be sent, and count it as handed out; False: it is let go."""
        key = self._slots.key_of(request)
        if key not in self._queues and self._slots.can_send(key) and self._is_open(key):
            self._slots.handed_out(request)
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append((request, future))
        return await future

    def admit(self) -> None:
        """Let in what can be sent now."""
        for key, queue in list(self._queues.items()):
            while queue and self._slots.can_send(key) and self._is_open(key):
                request, future = queue.popleft()
                if not future.done():
                    self._slots.handed_out(request)
                    future.set_result(True)
            if not queue:
                del self._queues[key]

    def let_go(self) -> None:
        """Let all go that wait."""
        for queue in self._queues.values():
            for _, future in queue:
                if not future.done():
                    future.set_result(False)
        self._queues.clear()
