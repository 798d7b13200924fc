"""What the reader of a feed asks the lease store: who is over, and whether anybody has work."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from scrapy_lease.store.keys import Scope
from scrapy_lease.store.tools import Read, Tools


class Sessions:
    """The sessions of a namespace, over a connection of its own; errors of the store pass through."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools = tools
        self._scope = scope

    async def store_id(self) -> str:
        """Return what tells this store from another with a namespace of the same name; made on first use."""
        clock = self._scope.namespace.clock
        await self._tools.command("HSETNX", clock, "store", secrets.token_hex(4))
        name: bytes = await self._tools.command("HGET", clock, "store")
        return name.decode()

    async def begin_again(self) -> None:
        """Forget that ``start()`` has been read to its end in this run."""
        await self._tools.command("HDEL", self._scope.key("start"), "over")

    async def over(self, sids: Iterable[str]) -> list[str]:
        """Return those of the sessions *sids* that are over."""
        asked = list(sids)
        if not asked:
            return []
        space = self._scope.namespace
        now, deadlines = await self._tools.look([
            Read("HGET", space.clock, ("now",)), Read("ZMSCORE", space.sessions, tuple(asked)),
        ])  # fmt: skip
        return [sid for sid, deadline in zip(asked, deadlines, strict=True) if float(deadline or 0) <= float(now or 0)]

    async def have_work(self) -> bool:
        """Is anything of the job pending or leased?"""
        (known,) = await self._tools.look([Read("HLEN", self._scope.key("state"))])
        return bool(known)

    async def close(self) -> None:
        """Close the connection."""
        await self._tools.channel.close()
