"""What the tests of the scripts share: sessions that speak to a real server through the Python side of the scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Self

from scrapy_lease.exceptions import StoreUnavailable
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.reading import DeadRecord, ItemRecord, read_dead, read_record
from scrapy_lease.store.scripts import Beat, Claim, Entry, Grant, Opened, Scripts, Settlement, Standing
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server

SLOT = "shop.example"
TTL = 60_000


def digest(name: object) -> bytes:
    """The digest of the item *name*."""
    return blake2b(str(name).encode(), digest_size=16).digest()


def entry(name: object, *, slot: str = SLOT, priority: int = 0, mark: str = "auto", ttl: int = 0) -> Entry:
    """A request for the item *name*; its payload tells the name."""
    return Entry(digest(name), slot, priority, f"payload of {name}".encode(), mark, ttl)


def names(grants: list[Grant]) -> list[str]:
    """The names of granted items, by their payloads."""
    return [grant.payload.decode().removeprefix("payload of ") for grant in grants]


def settlement(grant: Grant, verb: str = "done", *args: Any) -> Settlement:
    """What became of *grant*; done is kept over runs."""
    return Settlement(grant.digest, grant.fence, verb, args or (("keep",) if verb == "done" else ()))


def claimed(name: object, claim: Claim, verb: str = "done", *args: Any) -> Settlement:
    """What became of the item *name* that a claim leased; done is kept over runs."""
    return Settlement(digest(name), claim.fence, verb, args or (("keep",) if verb == "done" else ()))


class Bed:
    """A scope on a server, seen by sessions and from outside."""

    def __init__(self, server: Server, *, job: str = "shop", expected: int = 1000) -> None:
        self.server = server
        self.client = server.client()
        self.scope = Namespace("test").scope(job, expected_items=expected)
        self._runner = asyncio.Runner()
        self._channel = Channel(server.url, "the test's server", 10, StoreStats())
        self.scripts = Scripts(self._channel, self.scope)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.run(self._channel.close())
        self._runner.close()

    def run(self, call: Any) -> Any:
        """Make one call of the scripts."""
        return self._runner.run(call)

    def session(self, sid: str = "a", **options: Any) -> Session:
        """Open a session."""
        session = Session(self, sid)
        session.open(**options)
        return session

    def push(self, *entries: Entry) -> str:
        """Push from outside."""
        return self.run(self.scripts.push("", 0, entries))

    def restart(self) -> None:
        """Restart the server in order; the connection that it closed is noticed."""
        self.server.restart()
        with contextlib.suppress(StoreUnavailable):
            self.run(self._channel.command("PING"))

    def pass_time(self, milliseconds: int) -> None:
        """Let the lease clock advance, as the calls of others would."""
        self.client.hincrby(self.scope.namespace.clock, "now", milliseconds)

    def reclaim(self, sid: str, *, deaths: int = 5, policy: str = "refetch") -> tuple[int, int]:
        """Take items of a session that is over back."""
        return self.run(self.scripts.reclaim(sid, deaths=deaths, policy=policy))

    def record(self, name: object, holder: str = "") -> ItemRecord | None:
        """The record of an item, with its lease if *holder* has one; None: it is over, or never was."""
        value = self.client.hget(self.scope.key("state"), digest(name))
        lease = self.client.hget(self.scope.held(holder), digest(name)) or b""
        return read_record(value, lease, holder) if value is not None else None

    def dead(self, name: object) -> DeadRecord | None:
        """The dead letter of an item."""
        value = self.client.hget(self.scope.key("dead"), digest(name))
        return read_dead(value) if value is not None else None

    def counter(self, name: str) -> int:
        """A counter of the run."""
        return int(self.client.hget(self.scope.key("meta"), name) or 0)

    def mark(self, name: object) -> int | None:
        """The mark of an item as it is stored."""
        value = self.client.hget(*self.scope.mark(digest(name)))
        return int(value) if value is not None else None

    def dump(self) -> dict[bytes, Any]:
        """Everything in the store but the clock, to see that nothing changed."""
        readers = {
            b"hash": self.client.hgetall, b"set": self.client.smembers,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
        }  # fmt: skip
        keys = [key for key in self.client.scan_iter() if not key.endswith(b":clock")]
        return {key: readers[self.client.type(key)](key) for key in keys}


class Session:
    """One session; its calls are numbered unless a number is given."""

    def __init__(self, bed: Bed, sid: str) -> None:
        self.sid = sid
        self.scripts = Scripts(bed.scripts.channel, bed.scope)
        self._run = bed.run
        self._numbers: Counter[str] = Counter()

    def _number(self, verb: str, n: int | None) -> int:
        if n is None:
            self._numbers[verb] += 1
        return self._numbers[verb] if n is None else n

    def open(
        self, *, ttl: int = TTL, config: str = "c", fresh: bool = True, shards: int = 1, info: Mapping[str, str] = {}
    ) -> Opened:
        info = {"node": self.sid, **info}
        return self._run(self.scripts.open(self.sid, ttl=ttl, config=config, fresh=fresh, info=info, shards=shards))

    def beat(self, ttl: int = TTL) -> Beat:
        return self._run(self.scripts.beat(self.sid, ttl=ttl, node="host"))

    def close(self) -> None:
        self._run(self.scripts.close(self.sid))

    def start(self, verb: str, mode: str = "one") -> str:
        return self._run(self.scripts.start(self.sid, verb, mode))

    def push(self, *entries: Entry, n: int | None = None) -> str:
        return self._run(self.scripts.push(self.sid, self._number("push", n), entries))

    def look(
        self, want: int = 1000, rooms: Mapping[str, int] | None = None, n: int | None = None
    ) -> tuple[Standing, list[Grant]]:
        rooms = {SLOT: want} if rooms is None else rooms
        return self._run(self.scripts.lease(self.sid, self._number("lease", n), want=want, rooms=rooms))

    def lease(self, want: int = 1000, rooms: Mapping[str, int] | None = None, n: int | None = None) -> list[Grant]:
        return self.look(want, rooms, n)[1]

    def claim(self, *entries: Entry, n: int | None = None) -> list[Claim]:
        return self._run(self.scripts.claim(self.sid, self._number("claim", n), entries))

    def standing(self) -> Standing:
        return self.look(want=0)[0]

    def settle(self, *settlements: Settlement, n: int | None = None) -> str:
        return self._run(self.scripts.settle(self.sid, self._number("settle", n), settlements))

    def report(self, *holds: tuple[bytes, int], previous: str = "", n: int | None = None) -> list[int]:
        return self._run(self.scripts.report(self.sid, self._number("report", n), holds, previous=previous))
