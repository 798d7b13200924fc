"""One async method for each Lua script: what it takes and returns, in Python's words.

Calls that change what a session holds are *numbered*: ``n`` rises by one for each new call of a verb, and the call that
got no answer is repeated under the number it had. The server runs it once and gives the stored reply to the repeats, so
a lost reply can neither lose a grant nor double it. A later number is never used before the earlier one is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.client import Call, Channel
from scrapy_lease.store.keys import SHARDS, Scope

_pack = msgspec.msgpack.Encoder().encode


def _raw(data: bytes) -> msgspec.Raw:
    """Return *data* as a msgpack string: Redis's Lua library reads no binary type, and takes a string for bytes anyway."""
    size = len(data)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + data)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + data)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + data)


class GenerationChanged(Exception):
    """The server restarted: the session must report what it holds before it is granted anything."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Reply of :meth:`Scripts.open`: server generation, number of the run, live sessions of the scope."""

    generation: int
    run: int
    live: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Reply of :meth:`Scripts.beat`."""

    generation: int
    live: int
    paused: bool
    draining: bool
    reported: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A request on its way into the backlog.

    :param mark: ``auto``: an item; ``run``: done counts for this run only; ``none``: not an item, never marked.
    :param ttl: seconds for which a mark counts; 0: for ever.
    """

    digest: bytes
    slot: str
    priority: int
    payload: bytes
    mark: str
    ttl: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """An item leased to this session."""

    digest: bytes
    fence: int
    attempts: int
    deaths: int
    slot: str
    mark: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Standing:
    """How the run stands. ``due``: ms until the next delayed item is ready, -1 if there is none; ``expired``: a session
    that is over and still holds items, or ``""``."""

    grace: bool
    ready: int
    delayed: int
    leased: int
    due: int
    drained: bool
    paused: bool
    expired: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a leased item: *verb* and its arguments as ``settle.lua`` lists them.

    ``done`` takes ``keep``, ``run`` or ``none`` as its mark, ``rejected`` takes nothing, ``failed`` (delay ms, attempts
    allowed, reason, trace), ``dead`` (reason, trace), ``back`` (delay ms), ``sent`` nothing.
    """

    digest: bytes
    fence: int
    verb: str
    args: tuple[Any, ...] = ()


class _Buckets:
    """The done buckets that one call names: each key once, entries refer to it by number."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._numbers: dict[str, int] = {}

    def place(self, digest: bytes) -> tuple[int, bytes]:
        key, field = self._scope.mark(digest)
        return self._numbers.setdefault(key, len(self._numbers) + 1), field

    def keys(self) -> list[str]:
        return list(self._numbers)


class Scripts:
    """The scripts of one scope over one connection."""

    def __init__(self, channel: Channel, scope: Scope) -> None:
        self.channel = channel
        self.scope = scope
        space = scope.namespace
        key = scope.key
        self._clock = (space.clock, space.sessions)
        self._ready = (key("ready"), key("slots"))
        self._backlog = (*self._ready, key("delayed"), key("state"))

    @property
    def server_id(self) -> str:
        """What the server process at the other end calls itself; "" before the first call."""
        server = self.channel.server
        return server.run_id if server is not None else ""

    async def open(
        self, sid: str, *, ttl: int, config: str, fresh: bool, info: Mapping[str, str], shards: int = SHARDS
    ) -> Opened:
        """Open session *sid* for *ttl* ms. Repeating it with the same id changes nothing.

        :param config: what the live sessions of a job must agree on.
        :param fresh: an ended run makes way for a new one.
        :raises StoreRefused: live sessions of the job are configured otherwise.
        """
        key, space = self.scope.key, self.scope.namespace
        reply = await self._call(
            "open",
            (*self._clock, space.session(sid), key("meta"), key("members"), key("producing"), key("state"), key("start")),
            _pack({
                "sid": sid, "ttl": ttl, "config": config, "shards": shards, "fresh": int(fresh),
                "info": [part for pair in info.items() for part in pair],
            }),
        )  # fmt: skip
        status, *rest = reply
        if status == b"config":
            raise StoreRefused(
                f"job {self.scope.job!r}: its live sessions run with {rest[0].decode()}, this one with {config}; "
                "configure them alike, or give this crawl a LEASE_JOB of its own"
            )
        if status == b"shards":
            raise StoreRefused(
                f"LEASE_NAMESPACE = {space.name!r} was created with {rest[0].decode()} shards, not with {shards}; "
                "choose another name, or delete its keys once no crawl needs them"
            )
        return Opened(*rest)

    async def beat(self, sid: str, *, ttl: int, node: str) -> Beat:
        """Renew session *sid* for *ttl* ms from now.

        :raises SessionLost: its deadline has passed, or it was closed.
        """
        reply = await self._call("beat", *beat_call(self.scope, sid, ttl, node))
        if reply[0] == b"lost":
            raise SessionLost(f"session {sid} is over")
        generation, live, *flags = reply[1:]
        return Beat(generation, live, *map(bool, flags))

    async def close(self, sid: str) -> None:
        """End session *sid*; what it still holds is free for :meth:`reclaim`."""
        key, space = self.scope.key, self.scope.namespace
        await self._call("close", (*self._clock, space.session(sid), key("members"), key("producing")), sid)

    async def push(self, sid: str, n: int, entries: Sequence[Entry]) -> str:
        """Add *entries*; ``sid=""`` for a push from outside, whose number does not count.

        :returns: one character each: ``+`` accepted, ``=`` pending or leased already, ``.`` done already.
        """
        buckets, rows = _Buckets(self.scope), []
        for entry in entries:
            bucket, field = (0, b"") if entry.mark == "none" else buckets.place(entry.digest)
            rows.append(  # fmt: skip
                (
                    _raw(entry.digest), entry.slot, entry.priority, _raw(entry.payload), entry.mark,
                    bucket, _raw(field), entry.ttl,
                )
            )
        key, space = self.scope.key, self.scope.namespace
        keys = (space.clock, space.session(sid), key("meta"), *self._ready, key("state"), key("payload"), key("dead"))
        return self._answer(await self._call("push", (*keys, *buckets.keys()), sid, n, _pack(rows)), "push", n)

    async def lease(self, sid: str, n: int, *, want: int, rooms: Mapping[str, int]) -> tuple[Standing, list[Grant]]:
        """Lease up to *want* items, of each slot in *rooms* no more than that.

        :raises SessionLost: the session is over.
        :raises GenerationChanged: the server restarted and this session has not reported yet.
        """
        key, space = self.scope.key, self.scope.namespace
        keys = (
            *self._clock, space.session(sid), key("meta"), key("members"), key("producing"), *self._backlog,
            key("payload"), self.scope.held(sid), space.control,
        )  # fmt: skip
        ask = {"want": want, "rooms": dict(rooms), "job": self.scope.job}
        (status, *standing), *rows = await self._call("lease", keys, sid, n, _pack(ask))
        if status == b"report":
            raise GenerationChanged
        if status == b"lost":
            raise SessionLost(f"session {sid} is over")
        if status == b"older":
            raise StoreRefused(f"call {n} of lease is older than one already answered")
        grace, ready, delayed, leased, due, drained, paused, expired = standing
        grants = [
            Grant(rows[i], int(rows[i + 1]), rows[i + 2], rows[i + 3], rows[i + 4].decode(), rows[i + 5].decode(), rows[i + 6])
            for i in range(0, len(rows), 7)
        ]
        return (
            Standing(bool(grace), ready, delayed, leased, due, bool(drained), bool(paused), expired.decode()),
            grants,
        )

    async def settle(self, sid: str, n: int, settlements: Sequence[Settlement]) -> str:
        """Say what became of leased items.

        :returns: one character each: ``+`` accepted, ``!`` accepted and dead now, ``-`` not held (any more).
        """
        buckets = _Buckets(self.scope)
        rows = [self._row(settlement, buckets) for settlement in settlements]
        key, space = self.scope.key, self.scope.namespace
        keys = (
            space.clock, space.session(sid), key("meta"), *self._backlog, key("payload"), key("dead"),
            self.scope.held(sid), *buckets.keys(),
        )  # fmt: skip
        return self._answer(await self._call("settle", keys, sid, n, _pack(rows)), "settle", n)

    @staticmethod
    def _row(settlement: Settlement, buckets: _Buckets) -> tuple[Any, ...]:
        head = (_raw(settlement.digest), settlement.fence, settlement.verb)
        if settlement.verb not in ("done", "rejected"):
            return (*head, *settlement.args)
        if settlement.args[:1] == ("none",):
            return (*head, 0, "", *settlement.args)
        bucket, field = buckets.place(settlement.digest)
        return (*head, bucket, _raw(field), *settlement.args)

    async def report(
        self, sid: str, n: int, holds: Sequence[tuple[bytes, int]], *, previous: str = ""
    ) -> list[int]:
        """Report what the session holds, as (digest, fence); *previous*: the lost session that held it.

        :returns: the fence now held for each, 0 where it is lost.
        :raises SessionLost: the session is over.
        """
        space = self.scope.namespace
        keys = (*self._clock, space.session(sid), *self._backlog, self.scope.held(sid), self.scope.held(previous))
        reply = await self._call("report", keys, sid, n, previous,
            _pack([(_raw(digest), fence) for digest, fence in holds]))
        if reply == b"lost":
            raise SessionLost(f"session {sid} is over")
        return [int(fence) for fence in self._answer(reply, "report", n).split()]

    async def reclaim(self, sid: str, *, deaths: int, policy: str) -> tuple[int, int]:
        """Move up to 100 items of *sid*, a session that is over, back to pending.

        :returns: (moved, left); left is -1 while it lives or the server's grace runs.
        """
        key, space = self.scope.key, self.scope.namespace
        keys = (
            *self._clock, space.session(sid), key("meta"), key("members"), key("producing"), *self._backlog,
            key("dead"), self.scope.held(sid),
        )  # fmt: skip
        moved, left = await self._call("reclaim", keys, sid, deaths, policy)
        return moved, left

    async def start(self, sid: str, verb: str, mode: str) -> str:
        """Settle who reads ``start()``; *verb* ``claim``, ``finish`` or ``leave`` as in ``start.lua``."""
        key = self.scope.key
        reply: bytes = await self._call("start", (*self._clock, key("start"), key("producing")), sid, verb, mode)
        return reply.decode()

    async def _call(self, script: str, keys: Sequence[str], *args: bytes | str | int) -> Any:
        return await self.channel.call(Call(script, keys, args))

    @staticmethod
    def _answer(reply: bytes, verb: str, n: int) -> str:
        if reply == b"older":
            raise StoreRefused(f"call {n} of {verb} is older than one already answered")
        return reply.decode()


def beat_call(scope: Scope, sid: str, ttl: int, node: str) -> tuple[tuple[str, ...], bytes]:
    """Return keys and arguments of a beat: the watchdog thread sends the same call over a connection of its own."""
    space = scope.namespace
    keys = (space.clock, space.sessions, space.session(sid), scope.key("members"), space.control)
    return keys, _pack({"sid": sid, "ttl": ttl, "node": node, "job": scope.job})
