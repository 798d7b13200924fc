"""One async method for each Lua script: what it takes and returns, in Python's words.

Calls that change what a session holds are *numbered*: ``n`` rises by one for each new call of a verb, and the call that
got no answer is repeated under the number it had. The server runs it once and gives the stored reply to the repeats, so
a lost reply can neither lose a grant nor double it. A later number is never used before the earlier one is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scrapy_lease.exceptions import GenerationChanged, SessionLost, StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.client import Channel
from scrapy_lease.store.columns import Buckets, code_of, columns_of, fence_text, pack, raw
from scrapy_lease.store.keys import SHARDS, Scope
from scrapy_lease.store.messages import (
    Answer,
    Beat,
    Claim,
    Entry,
    Grant,
    Opened,
    Settlement,
    Standing,
    answer,
    check,
)
from scrapy_lease.store.reading import read_claims, read_record

__all__ = [
    "Answer",
    "Beat",
    "Claim",
    "Entry",
    "GenerationChanged",
    "Grant",
    "Opened",
    "Scripts",
    "Settlement",
    "Standing",
    "beat_call",
]

#: How ``settle.lua`` names the verbs; done is one for each mark.
_VERBS = {"rejected": "x", "failed": "f", "dead": "d", "back": "b", "sent": "s"}
_DONE = {"keep": "k", "run": "r", "none": "n"}


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
        #: Granted items whose mark needs the time at which they are done.
        self._timed: set[bytes] = set()

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
            (
                *self._clock, space.session(sid), key("meta"), key("members"), key("producing"), key("state"),
                key("start"),
            ),
            pack({
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
        buckets = Buckets(self.scope)
        columns = columns_of(entries, buckets)
        key, space = self.scope.key, self.scope.namespace
        keys = (space.clock, space.session(sid), key("meta"), *self._ready, key("state"), key("payload"), key("dead"))
        return answer(await self._call("push", (*keys, *buckets.keys()), sid, n, pack(columns)), sid, "push", n)

    async def claim(self, sid: str, n: int, entries: Sequence[Entry]) -> list[Claim]:
        """Lease named items: those that nobody has are pushed and leased at once.

        :returns: the answer to each entry.
        :raises SessionLost: the session is over.
        :raises GenerationChanged: the server restarted and this session has not reported yet.
        """
        buckets = Buckets(self.scope)
        columns = columns_of(entries, buckets)
        key, space = self.scope.key, self.scope.namespace
        keys = (
            *self._clock, space.session(sid), key("meta"), *self._backlog, key("payload"), key("dead"),
            self.scope.held(sid), space.control, *buckets.keys(),
        )  # fmt: skip
        status, *reply = await self._call("claim", keys, sid, n, self.scope.job, pack(columns))
        check(status, sid, "claim", n)
        claims = read_claims(*reply)
        self._timed.update(
            entry.digest
            for entry, claim in zip(entries, claims, strict=True)
            if claim.answer is Answer.GRANTED and code_of(entry) == "t"
        )
        return claims

    async def lease(self, sid: str, n: int, *, want: int, rooms: Mapping[str, int]) -> tuple[Standing, list[Grant]]:
        """Lease up to *want* items, of each slot in *rooms* no more than that.

        :raises SessionLost: the session is over.
        :raises GenerationChanged: the server restarted and this session has not reported yet.
        """
        key, space = self.scope.key, self.scope.namespace
        keys = (
            *self._clock, space.session(sid), key("meta"), key("members"), key("producing"), *self._backlog,
            self.scope.held(sid), space.control,
        )  # fmt: skip
        ask = {"want": want, "rooms": dict(rooms), "job": self.scope.job}
        (status, *standing), *granted = await self._call("lease", keys, sid, n, pack(ask))
        check(status, sid, "lease", n)
        grace, ready, delayed, leased, due, drained, paused, expired = standing
        return (
            Standing(bool(grace), ready, delayed, leased, due, bool(drained), bool(paused), expired.decode()),
            self._grants(*granted),
        )

    def _grants(self, fence: bytes, digests: bytes, values: Sequence[bytes]) -> list[Grant]:
        """Read the items of a lease; those that a repeated call finds gone are left out."""
        number, grants = int(fence), []
        for at, value in enumerate(values):
            if value:
                digest, item = digests[16 * at : 16 * at + 16], read_record(value)
                grants.append(Grant(digest, number, item.attempts, item.deaths, item.slot, item.mark, item.payload))
                if item.is_timed:
                    self._timed.add(digest)
        return grants

    async def settle(self, sid: str, n: int, settlements: Sequence[Settlement]) -> str:
        """Say what became of leased items.

        :returns: one character each: ``+`` accepted, ``!`` accepted and dead now, ``-`` not held (any more).
        """
        buckets = Buckets(self.scope)
        digests, fences, verbs, args = [], [], [], {}
        for number, settlement in enumerate(settlements, 1):
            digests.append(raw(settlement.digest))
            fences.append(fence_text(settlement.fence))
            verb, more = self._verb(settlement, buckets)
            verbs.append(verb)
            if more:
                args[number] = more
        key, space = self.scope.key, self.scope.namespace
        keys = (
            space.clock, space.session(sid), key("meta"), *self._backlog, key("payload"), key("dead"),
            self.scope.held(sid), *buckets.keys(),
        )  # fmt: skip
        columns = (digests, fences, "".join(verbs), args)
        replies = answer(await self._call("settle", keys, sid, n, pack(columns)), sid, "settle", n)
        self._timed.difference_update(settlement.digest for settlement in settlements if settlement.verb != "sent")
        return replies

    def _verb(self, settlement: Settlement, buckets: Buckets) -> tuple[str, tuple[Any, ...]]:
        """Return the verb and arguments of ``settle.lua``; a bucket is named only where the mark may have to change."""
        verb, args = settlement.verb, settlement.args
        if verb == "done" and args[0] == "leads":
            return "l", (buckets.number(settlement.digest), int(args[1]))
        if verb == "done":
            is_known = args[0] == "none" or (args[0] == "keep" and settlement.digest not in self._timed)
            return _DONE[args[0]], () if is_known else (buckets.number(settlement.digest),)
        if verb == "rejected":
            return "x", () if args == ("none",) else (buckets.number(settlement.digest),)
        return _VERBS[verb], args

    async def report(self, sid: str, n: int, holds: Sequence[tuple[bytes, int]], *, previous: str = "") -> list[int]:
        """Report what the session holds, as (digest, fence); *previous*: the lost session that held it.

        :returns: the fence now held for each, 0 where it is lost.
        :raises SessionLost: the session is over.
        """
        space = self.scope.namespace
        keys = (
            *self._clock, space.session(sid), self.scope.key("meta"), *self._backlog, self.scope.held(sid),
            self.scope.held(previous),
        )  # fmt: skip
        columns = ([raw(digest) for digest, _ in holds], [fence_text(fence) for _, fence in holds])
        reply = await self._call("report", keys, sid, n, pack(columns))
        return [int(fence) for fence in answer(reply, sid, "report", n).split()]

    async def reclaim(self, sid: str, *, deaths: int, policy: str) -> tuple[int, int]:
        """Move up to 100 items of *sid*, a session that is over, back to pending.

        :returns: (moved, left); left is -1 while it lives or the server's grace runs.
        """
        key, space = self.scope.key, self.scope.namespace
        keys = (
            *self._clock, space.session(sid), key("meta"), key("members"), key("producing"), *self._backlog,
            key("payload"), key("dead"), self.scope.held(sid),
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


def beat_call(scope: Scope, sid: str, ttl: int, node: str) -> tuple[tuple[str, ...], bytes]:
    """Return keys and arguments of a beat: the watchdog thread sends the same call over a connection of its own."""
    space = scope.namespace
    keys = (space.clock, space.sessions, space.session(sid), scope.key("members"), space.control)
    return keys, pack({"sid": sid, "ttl": ttl, "node": node, "job": scope.job})
