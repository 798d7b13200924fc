"""A pool on a real server, and sessions that take of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from scrapy_lease.store.pool_scripts import Backoff, Lease, PoolScripts, Resource, Take, Tie, Verdict
from tests.helpers.servers import Server
from tests.lua.bed import TTL, Bed

#: Rests of exactly this many ms, doubling.
BACKOFF = Backoff(10_000, 3_600_000)
HOUR = 3_600_000


def wall() -> int:
    """The wall clock in ms."""
    return int(time.time() * 1000)


def resource(name: object, *, life: int = 0, exit: str = "", body: bytes | None = None, spread: int = 0) -> Resource:
    """A resource that its provider takes back in *life* ms; 0: never. Its body tells the name."""
    return Resource(str(name), body or f"body of {name}".encode(), wall() + life if life else 0, exit, spread)


def ids(leases: Take | tuple[Lease, ...]) -> list[str]:
    """The ids of leases, in their order."""
    return [lease.id for lease in (leases.leases if isinstance(leases, Take) else leases)]


class PoolBed(Bed):
    """A pool beside the scope of a :class:`Bed`."""

    def __init__(self, server: Server, name: str = "default") -> None:
        super().__init__(server)
        self.pool = self.scope.namespace.pool("proxy", name)
        self.outside = PoolScripts(self.scripts.channel, self.pool)

    def member(self, sid: str = "a", *, ttl: int = TTL, reports: bool = True) -> Member:
        """Open a session that has reported to the pool."""
        self.session(sid, ttl=ttl)
        member = Member(self, sid)
        if reports:
            member.report()
        return member

    def add(self, *names: object, **options: Any) -> str:
        """Register resources from outside."""
        return self.run(self.outside.register("", 0, [resource(name, **options) for name in names]))

    def register(self, *resources: Resource) -> str:
        """Register these from outside."""
        return self.run(self.outside.register("", 0, resources))

    def change(self, verb: str, *names: object) -> str:
        """Do as an operator asks."""
        return self.run(self.outside.change(verb, [str(name) for name in names]))

    def recover(self, sid: str, *, grace: int = 0) -> tuple[int, int]:
        """End leases of a session that is over."""
        return self.run(self.outside.reclaim(sid, grace=grace))

    def events(self) -> list[Mapping[str, str]]:
        """What the pool tells, oldest first."""
        rows = self.client.xrange(self.pool.key("events"))
        return [{name.decode(): value.decode() for name, value in row.items()} for _, row in rows]

    def holder(self, name: object) -> str:
        """The session whose lease the resource is; "": nobody's."""
        lease = self.client.hget(self.pool.key("leases"), str(name))
        return lease[29:].decode() if lease else ""

    def place(self, name: object, exit: str = "") -> str:
        """Where a resource is: the one key that says so, "aside", or "gone"."""
        id_, key = str(name), self.pool.key
        places = {
            "leased": self.client.hexists(key("leases"), id_),
            "behind": self.client.zscore(key("behind"), f"{exit}\0{id_}") is not None,
            **{part: self.client.zscore(key(part), id_) is not None for part in ("free", "spotted", "resting")},
        }
        found = [place for place, is_there in places.items() if is_there]
        assert len(found) < 2, f"{id_} is in {found}"
        if not self.client.hexists(key("resources"), id_):
            assert not found, f"{id_} is gone and in {found}"
            return "gone"
        return found[0] if found else "aside"

    def expire(self, name: object) -> None:
        """Let the provider's time of a resource be over, as a later call would find it."""
        record = bytearray(self.client.hget(self.pool.key("resources"), str(name)))
        record[3:16] = f"{wall() - 1:013d}".encode()
        self.client.hset(self.pool.key("resources"), str(name), bytes(record))
        self.client.zadd(self.pool.key("expiries"), {str(name): wall() - 1})

    def age(self, milliseconds: int) -> None:
        """Let time pass, by which all leases are older on the wall clock too."""
        self.pass_time(milliseconds)
        key = self.pool.key("leases")
        for id_, lease in self.client.hgetall(key).items():
            self.client.hset(key, id_, lease[:16] + b"%013d" % (int(lease[16:29]) - milliseconds) + lease[29:])

    def dump(self) -> dict[bytes, Any]:
        """Everything in the store but clocks, events, and when somebody last looked whether sessions live."""
        left_out = {self.pool.key(part).encode() for part in ("events", "members")}
        readers = {
            b"hash": self.client.hgetall, b"set": self.client.smembers,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
        }  # fmt: skip
        keys = [key for key in self.client.scan_iter() if key not in left_out and not key.endswith(b":clock")]
        return {key: readers[self.client.type(key)](key) for key in keys}


class Member:
    """A session of a pool; its calls are numbered unless a number is given."""

    def __init__(self, bed: PoolBed, sid: str) -> None:
        self.sid = sid
        self.scripts = PoolScripts(bed.scripts.channel, bed.pool)
        self._bed = bed
        self._numbers: Counter[str] = Counter()

    def _number(self, verb: str, n: int | None) -> int:
        if n is None:
            self._numbers[verb] += 1
        return self._numbers[verb] if n is None else n

    def report(self, *leases: Lease, previous: str = "", n: int | None = None) -> list[int]:
        holds = [(lease.id, lease.fence) for lease in leases]
        return self._bed.run(self.scripts.report(self.sid, self._number("report", n), holds, previous=previous))

    def take(self, *asks: tuple[str, int], n: int | None = None, **options: Any) -> Take:
        return self._bed.run(self.scripts.take(self.sid, self._number("take", n), asks, **options))

    def tie(self, *ties: Tie, want: int = 0, n: int | None = None, ttl: int = HOUR, **options: Any) -> Take:
        """Take for sticky keys, and besides so many for the site of the first."""
        sites = dict.fromkeys(tie.site for tie in ties if tie.site is not None)
        asks = [(site, 0 if number else want) for number, site in enumerate(sites)]
        return self.take(*asks, n=n, ties=ties, ttl=ttl, **options)

    def tied(self, key: str, site: str = "shop", *, offer: str = "", avoid: str = "", **options: Any) -> str:
        """What a take for one key says that it is tied to; "": nothing could be had."""
        (id_,) = self.tie(Tie(key, site, offer, frozenset(avoid.split())), **options).tied
        return id_

    def get(self, want: int = 1, site: str = "") -> tuple[Lease, ...]:
        """What a take for one site gives."""
        return self.take((site, want)).leases

    def settle(self, *verdicts: Verdict, n: int | None = None) -> str:
        return self._bed.run(self.scripts.settle(self.sid, self._number("settle", n), verdicts))

    def say(self, lease: Lease, verb: str, *args: Any, n: int | None = None) -> str:
        """Settle one lease; a backoff is added where one is due."""
        if verb in ("ban", "hang", "broken") and not any(isinstance(arg, Backoff) for arg in args):
            args = (*args, BACKOFF)
        if verb == "back" and not args:
            args = (0,)
        return self.settle(Verdict(lease.id, lease.fence, verb, args), n=n)

    def back(self, *leases: Lease) -> str:
        """Give leases back."""
        return self.settle(*(Verdict(lease.id, lease.fence, "back", (0,)) for lease in leases))

    def register(self, *resources: Resource, n: int | None = None) -> str:
        return self._bed.run(self.scripts.register(self.sid, self._number("register", n), resources))
