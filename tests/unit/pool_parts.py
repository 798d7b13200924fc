"""Leases as the store would grant them, and a session that is confirmed, for the pure parts of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from scrapy_lease.leases.session import Session
from scrapy_lease.store.pool_scripts import Lease as Granted
from scrapy_lease.store.pool_scripts import Rest
from scrapy_lease.store.taking import View
from tests.state.memory import Answering, Memory

SITE, OTHER = "shop.example", "other.example"


def granted(
    name: str,
    *,
    fence: int = 1,
    life: float | None = None,
    strikes: int = 0,
    rests: Mapping[str, Rest] = {},
    views: Mapping[str, View] = {},
) -> Granted:
    """A lease of the resource *name*; *life* in s."""
    return Granted(name, fence, b"body", "", None if life is None else int(life * 1000), strikes, rests, views)


class Clock:
    """A clock that a test moves, in s."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def open_session() -> Session:
    """A session that has just been opened."""
    store: Any = Answering(Memory())
    session = Session(node="node", ttl=60, config="c", fresh=True, info={})
    asyncio.run(session.open(store))
    return session
