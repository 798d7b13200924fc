"""Requests that wait for permits in the middleware or at the gate, first come, first served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from scrapy_lease.rates.charges import Charge
from scrapy_lease.rates.line import Row


class Waiters:
    """See the module's docstring.

    :param on_wait: called when one begins to wait.
    """

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self._on_wait = on_wait
        self._waiters: dict[Charge, asyncio.Future[None]] = {}

    def __iter__(self) -> Iterator[Charge]:
        return iter(list(self._waiters))

    def __repr__(self) -> str:
        return f"<Waiters: {len(self._waiters)}>"

    async def wait(self, charge: Charge, seconds: float) -> bool:
        """Wait until permits are reserved for *charge*, or until it is woken in vain."""
        future = self._waiters[charge] = asyncio.get_running_loop().create_future()
        self._on_wait()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiters.pop(charge, None)
        return charge.is_reserved

    def rows(self) -> Iterator[Row]:
        """Yield what they cost."""
        return ((charge, 1) for charge in self)

    def wake(self, charge: Charge) -> None:
        """Let one go on, whether permits are reserved for it or not."""
        future = self._waiters.get(charge)
        if future is not None and not future.done():
            future.set_result(None)

    def let_go(self) -> None:
        """Let all go on."""
        for charge in self:
            self.wake(charge)
