"""A pool of accounts on a real server, whose clock is the test's, and sessions that take of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.pool_scripts import Backoff, Lease, PoolScripts, Resource, Take, Verdict
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.helpers.timed import TimedWire
from tests.state.pool_wire import run

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
BACKOFF = Backoff(MINUTE, DAY)
SITE = "shop"


@dataclass(frozen=True)
class Rules:
    """How the accounts of a pool may be used, as a call says it."""

    holders: int = 1
    quota: int = 0
    interval: int = 0
    active: int = 4 * HOUR
    slice: int = 10
    days: Sequence[int] = ()
    open: Sequence[tuple[int, int]] = ()
    more: Sequence[tuple[str, int]] = ()


class AccountBed:
    """See the module's docstring."""

    def __init__(self, server: Server) -> None:
        self.client = server.client()
        self.wire: Any = TimedWire(self.client)
        self.space = Namespace("test")
        self.scripts = Scripts(self.wire, self.space.scope("shop", expected_items=100))
        self.pool = self.space.pool("account", "default")
        self.outside = PoolScripts(self.wire, self.pool)
        self.client.hset(self.space.clock, "now", SECOND)

    def days(self) -> list[int]:
        """Midnights around now."""
        today = int(self.wire.now) // DAY
        return [(today + number) * DAY for number in range(-2, 4)]

    def pass_time(self, milliseconds: float) -> None:
        """Let both clocks go on, as with calls all the time."""
        self.wire.now += milliseconds
        self.client.hincrby(self.space.clock, "now", int(milliseconds))
        self.client.hset(self.space.clock, "wall", int(self.wire.now))

    def be_another_server(self) -> None:
        """Restart the server, as far as the scripts can see; its grace is over at once."""
        self.wire.be_another_server()
        self.client.hset(self.space.clock, "run_id", self.wire.server.run_id)

    def step_clock(self, milliseconds: float) -> None:
        """Step the server's wall clock."""
        self.wire.now += milliseconds

    def member(self, sid: str = "a", *, ttl: int = 365 * DAY, **rules: Any) -> Member:
        """Open a session that has reported to the pool, and whose calls say these rules."""
        run(self.scripts.open(sid, ttl=ttl, config="c", fresh=True, info={"node": sid}))
        member = Member(self, sid, rules)
        member.report()
        return member

    def end(self, sid: str) -> None:
        """A session died, and its time is over."""
        self.client.zadd(self.space.sessions, {sid: 1})

    def add(self, *names: str) -> str:
        """Register accounts from outside."""
        return run(self.outside.register("", 0, [Resource(name, b"body of " + name.encode()) for name in names]))

    def change(self, verb: str, *names: str) -> str:
        """Do as an operator asks."""
        return run(self.outside.change(verb, names))

    def cool(self, *names: str, length: int) -> str:
        """Let accounts cool, as an operator asks."""
        return run(self.outside.cool(names, length))

    def reclaim(self, sid: str) -> tuple[int, int]:
        """End leases of a session that is over."""
        return run(self.outside.reclaim(sid))

    def places(self, name: str) -> set[str]:
        """The keys that say where an account is."""
        key = self.pool.key
        sets = ("free", "resting", "bench", "spent")
        found = {part for part in sets if self.client.zscore(key(part), name) is not None}
        found |= {"cold"} if self.client.lpos(key("cold"), name) is not None else set()
        return found | ({"leased"} if self.client.hexists(key("leases"), name) else set())

    def place(self, name: str) -> str:
        """The one place of an account that one session may hold."""
        found = self.places(name) or {"aside" if self.client.hexists(self.pool.key("resources"), name) else "gone"}
        assert len(found) == 1, f"{name} is in {found}"
        return found.pop()

    def events(self, what: str) -> list[str]:
        """The ids, and why, of what the pool tells of a kind."""
        rows = [row for _, row in self.client.xrange(self.pool.key("events"))]
        return [f"{row[b'ids'].decode()} {row[b'why'].decode()}" for row in rows if row[b"what"].decode() == what]

    def dump(self) -> dict[bytes, Any]:
        """Everything in the store but clocks, events, and when somebody last looked whether sessions live."""
        left_out = {self.pool.key(part).encode() for part in ("events", "members")}
        readers = {
            b"hash": self.client.hgetall, b"set": self.client.smembers, b"string": self.client.get,
            b"zset": lambda key: self.client.zrange(key, 0, -1, withscores=True),
            b"list": lambda key: self.client.lrange(key, 0, -1),
        }  # fmt: skip
        keys = [key for key in self.client.scan_iter() if key.startswith(b"{") and not key.endswith(b":clock")]
        return {key: readers[self.client.type(key)](key) for key in keys if key not in left_out}


class Member:
    """A session of a pool; its calls are numbered unless a number is given."""

    def __init__(self, bed: AccountBed, sid: str, rules: dict[str, Any]) -> None:
        self.sid = sid
        self.rules = rules
        self.scripts = PoolScripts(bed.wire, bed.pool)
        self._bed = bed
        self._numbers: Counter[str] = Counter()

    def _number(self, verb: str, n: int | None) -> int:
        self._numbers[verb] += n is None
        return self._numbers[verb] if n is None else n

    def report(self, *leases: Lease, previous: str = "", told: Sequence[tuple[int, int]] = ()) -> list[int]:
        holds = [(lease.id, lease.fence) for lease in leases]
        n = self._number("report", None)
        return run(self.scripts.report(self.sid, n, holds, previous=previous, told=told))

    def take(self, want: int = 0, *, n: int | None = None, **rules: Any) -> Take:
        said = Rules(**{"days": self._bed.days(), **self.rules, **rules})
        number = self._number("take", n)
        return run(self.scripts.take(self.sid, number, [(SITE, want)] if want else [], terms=said))

    def get(self, want: int = 1, **rules: Any) -> tuple[Lease, ...]:
        return self.take(want, **rules).leases

    def one(self, **rules: Any) -> Lease:
        (lease,) = self.get(1, **rules)
        return lease

    def names(self, want: int = 1, **rules: Any) -> list[str]:
        return [lease.id for lease in self.get(want, **rules)]

    def more(self, lease: Lease) -> Any:
        """More permits for a lease, or None."""
        return self.take(more=[(lease.id, lease.fence)]).more.get(lease.id)

    def settle(self, *verdicts: Verdict, n: int | None = None) -> str:
        return run(self.scripts.settle(self.sid, self._number("settle", n), verdicts))

    def say(self, lease: Lease, verb: str, *args: Any, n: int | None = None) -> str:
        return self.settle(Verdict(lease.id, lease.fence, verb, args), n=n)

    def back(self, lease: Lease, delay: int = 0, unspent: int = 0) -> str:
        day = lease.permits.day if lease.permits else 0
        return self.say(lease, "back", delay, unspent, day)

    def uses(self, lease: Lease, results: str, samples: Sequence[str | int] = (), *, least: int = 20) -> str:
        return self.say(lease, "uses", results, least, 900, BACKOFF, list(samples))

    def refill(self, state: str = "ask", *, batch: int = 0, daily: Sequence[int] = (), **details: Any) -> Any:
        row = {"floor": 0, "batch": batch, "target": 0, "most": 0, "daily": list(daily), **details}
        return run(self.scripts.refill(self.sid, self._number("refill", None), state, **row))
