"""Pauses that sites ask for (429, ``Retry-After``): for all hosts, of the narrowest key known.

That is an address at a site; after some addresses within a minute it is the site. Here a pause begins with the answer
that asks for it; the others hear of it within a second.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from scrapy_lease.exceptions import StoreError
from scrapy_lease.store.rate_scripts import RateScripts

logger = logging.getLogger(__name__)

#: Seconds of the first pause of which a site does not say how long it is.
FIRST = 5.0


class Blocks:
    """See the module's docstring.

    :param look: asks the store what is paused, each key with the seconds that are left.
    :param longest: seconds that a pause lasts at most.
    :param escalate: addresses of one site.
    """

    def __init__(
        self, store: RateScripts, look: Callable[[], Awaitable[dict[str, float]]], *, longest: float, escalate: int
    ) -> None:
        self._store = store
        self._look = look
        self._longest = longest
        self._escalate = escalate
        #: Key -> clock time (s) at which its pause ends.
        self._until: dict[str, float] = {}
        #: What the store has not heard of yet: (site, address, seconds).
        self._untold: list[tuple[str, str, float]] = []
        self._looked = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Blocks: {sorted(self._until)}>"

    @property
    def has_any(self) -> bool:
        """Is anything blocked, as far as is known here?"""
        return bool(self._until)

    def until(self, site: str, address: str) -> float:
        """Return the clock time (s) before which nothing may be sent to *site* from *address*; 0: now."""
        return max(self._until.get(_of_site(site), 0.0), self._until.get(_of_address(address, site), 0.0))

    def limited(self, site: str, address: str, seconds: float | None) -> None:
        """*site* has asked *address* to pause; None: it does not say for how long."""
        key, now = _of_address(address, site), time.monotonic()
        if seconds is None and self._until.get(key, 0.0) > now:
            return
        wait = FIRST if seconds is None else min(seconds, self._longest)
        self._until[key] = max(self._until.get(key, 0.0), now + min(wait, self._longest))
        logger.debug("%s asks %s for a pause of %s s", site, address, "?" if seconds is None else f"{wait:g}")
        self._untold.append((site, address, 0.0 if seconds is None else wait))
        self.look()

    def look(self, after: float = 0.0) -> None:
        """Tell the store what it has not heard of, and hear of what others told it.

        :param after: not within so many seconds after the last time.
        """
        now = time.monotonic()
        if now - self._looked >= after and (self._task is None or self._task.done()):
            self._looked = now
            self._task = asyncio.ensure_future(self._exchange())

    async def stop(self) -> None:
        """Say and hear no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _exchange(self) -> None:
        try:
            while self._untold:
                await self._tell(*self._untold[0])
                del self._untold[0]
            asked = time.monotonic()
            known = await self._look()
        except StoreError:
            # Told again with the next look; here the pause has begun.
            return
        if not self._untold:
            self._until = {key: asked + left for key, left in known.items()}

    async def _tell(self, site: str, address: str, seconds: float) -> None:
        _, whole = await self._store.block(
            _of_address(address, site), _of_site(site), address, wait=int(seconds * 1000), first=int(FIRST * 1000),
            longest=int(self._longest * 1000), share=random.randrange(1001), escalate=self._escalate,
        )  # fmt: skip
        if whole and _of_site(site) not in self._until:
            logger.warning(
                "%s has asked %d addresses for a pause within a minute (LEASE_RATE_ESCALATE): nobody sends anything "
                "there for %.0f s", site, self._escalate, whole / 1000,
            )  # fmt: skip


def _of_site(site: str) -> str:
    return f"site {site}"


def _of_address(address: str, site: str) -> str:
    return f"ip {address} {site}"
