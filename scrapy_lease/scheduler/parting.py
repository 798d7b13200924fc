"""How a node leaves the store: it hands everything back and ends its session, as far as the store answers in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from scrapy_lease.backlog.redis import RedisBacklog
from scrapy_lease.exceptions import SessionLost, StoreError, StoreUnavailable
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.giving_back import GivingBack
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.scheduler.tries import Tries
from scrapy_lease.scheduler.unsafe import Unsafe

logger = logging.getLogger(__name__)


class Parting:
    """See the module's docstring."""

    def __init__(
        self, runtime: Runtime, backlog: RedisBacklog, unsafe: Unsafe, intake: Intake, tries: Tries,
        giving_back: GivingBack,
    ) -> None:  # fmt: skip
        self._runtime = runtime
        self._backlog = backlog
        self._unsafe = unsafe
        self._intake = intake
        self._tries = tries
        self._giving_back = giving_back

    async def run(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Leave; a store that is away already is asked once, one that goes now for as long as a call may take.

        :param finish: tells the store that nothing more comes of ``start()``.
        """
        self._unsafe.leave()
        was_away = self._runtime.availability.down_since is not None
        reason: Exception = StoreUnavailable("no answer in time")
        try:
            async with asyncio.timeout(self._runtime.settings.store_timeout + 1):
                await self._backlog.stop()
                while True:
                    try:
                        return await self._leave(finish)
                    except StoreUnavailable as error:
                        reason = error
                        if was_away:
                            break
                    await asyncio.sleep(0.1)
        except (StoreError, SessionLost) as error:
            reason = error
        except TimeoutError:
            pass
        self._unsafe.abandoned(len(self._intake))
        logger.warning(
            "The store did not take back what this session held (%s); others take it when the session has expired",
            reason,
        )

    async def _leave(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Push what was discovered, settle what is over, hand back the rest, end the session."""
        self._giving_back.everything()
        while not await self._backlog.flush() or len(self._intake) or self._unsafe.waiting:
            pass
        if not self._tries.loose:
            await finish()
        await self._runtime.on_leave()
        session = self._runtime.session
        await session.close(self._runtime.scripts)
        await self._backlog.reclaim(session.sid)
