"""The server behind a connection: what it is, whether leases are safe on it, whether it answers, what it cost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from scrapy_lease.exceptions import StoreRefused

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StoreStats:
    """What the store cost so far. ``down_seconds`` counts whole outages that are over."""

    commands: int = 0
    roundtrips: int = 0
    errors: int = 0
    down_seconds: float = 0.0


@dataclass(slots=True)
class Availability:
    """Whether the store answers; tells changes once, in one line each.

    :param on_change: called with True when the store is back and False when it went.
    :param meanwhile: what the crawl does while it is away, for the line about it.
    """

    shown: str
    stats: StoreStats
    on_change: Callable[[bool], None] = lambda up: None
    meanwhile: str = "nothing new is fetched until it is back"
    down_since: float | None = field(default=None, init=False)

    def down(self, reason: str) -> None:
        """Note a failure of the store."""
        self.stats.errors += 1
        if self.down_since is None:
            self.down_since = time.monotonic()
            logger.warning("The store %s went away (%s): %s", self.shown, reason, self.meanwhile)
            self.on_change(False)

    def up(self) -> None:
        """Note an answer of the store."""
        if self.down_since is not None:
            outage = time.monotonic() - self.down_since
            self.down_since = None
            self.stats.down_seconds += outage
            logger.info("The store %s is back after %.1f s", self.shown, outage)
            self.on_change(True)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a connection learnt about its server when it was made."""

    run_id: str
    version: tuple[int, ...]
    policy: str
    maxmemory: int

    @classmethod
    def parse(cls, text: str) -> ServerInfo:
        """Read the reply of INFO."""
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        version = tuple(int(part) for part in fields.get("redis_version", "0").split(".") if part.isdigit())
        return cls(fields["run_id"], version, fields.get("maxmemory_policy", ""), int(fields.get("maxmemory", 0)))

    def check(self, shown: str, setting: str = "LEASE_REDIS_URL") -> None:
        """Raise :class:`StoreRefused` if leases would not be safe on this server."""
        if self.version < (6, 2):
            found = ".".join(map(str, self.version))
            raise StoreRefused(f"{setting} = {shown!r}: the server is of version {found}; use 6.2 or later")
        if self.maxmemory and self.policy not in ("noeviction", ""):
            raise StoreRefused(
                f"{setting} = {shown!r}: the server has maxmemory-policy {self.policy!r} and may evict leases; "
                "set maxmemory-policy noeviction"
            )
