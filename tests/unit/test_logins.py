"""Logins as what waits for them sees them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from scrapy_lease.accounts.logins import Logins


class _Handler:
    """Logs in after a while."""

    async def login(self, account: Any, fetch: Any) -> None:
        await asyncio.sleep(5)


def test_a_login_that_is_cut_off_before_its_first_step() -> None:
    """Whoever waits for it is told that it came to nothing: a CancelledError would hang the crawl that is closing."""

    async def work() -> None:
        profile: Any = SimpleNamespace(pool="p", login=None, lease=SimpleNamespace(id="a"), account=None)
        logins = Logins(None, {"p": _Handler()}, None, None)  # type: ignore[arg-type,dict-item]
        for _ in range(2):
            waits = asyncio.ensure_future(logins.run(profile))
            # Only the one that waits has had a turn of the loop.
            await asyncio.sleep(0)
            logins.let_go()
            done, _ = await asyncio.wait({waits}, timeout=1)
            assert done
            assert not waits.cancelled()
            assert waits.result() is not None
            assert waits.result().kind == "unused"
            assert profile.login is None

    asyncio.run(work())
