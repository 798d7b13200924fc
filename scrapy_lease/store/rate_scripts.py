"""The scripts of rate limits: one call is about one counter, so each finds all its keys in one slot of a cluster.

Calls are numbered for each counter by who makes them, over all the sessions of a process: see ``rate_take.lua``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scrapy_lease.exceptions import OtherDays, SessionLost, StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.client import Channel
from scrapy_lease.store.columns import pack
from scrapy_lease.store.keys import Namespace


@dataclass(frozen=True, slots=True)
class Granted:
    """What a call got.

    :param until: names the end of the slice: permits are given back under it.
    :param permits: how many may be spent until then.
    :param left: ms until the slice ends, from the moment of the call on; not positive where it is over.
    :param wait: ms after which asking again may give more.
    :param free: permits that nobody has.
    :param limit: what is in force: the strictest of the live sessions', or what an operator set.
    :param waiting: other sessions that asked in vain lately.
    :param is_grace: the server is new, and grants nothing yet.
    """

    until: int
    permits: int
    left: int
    wait: int
    free: int
    limit: int
    waiting: int
    is_grace: bool


class CounterName(Protocol):
    """Which counter; see :class:`scrapy_lease.leases.rates.words.CounterName`."""

    @property
    def rule(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def shard(self) -> int: ...
    @property
    def shards(self) -> int: ...


class Ask(Protocol):
    """What a call asks and tells; see :class:`scrapy_lease.leases.rates.words.RateAsk`."""

    @property
    def limit(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def want(self) -> int: ...
    @property
    def days(self) -> Sequence[int]: ...
    @property
    def sliding(self) -> int: ...
    @property
    def is_paced(self) -> bool: ...
    @property
    def back(self) -> Sequence[tuple[int, int]]: ...
    @property
    def recent(self) -> Sequence[tuple[int, int, int]]: ...


class RateScripts:
    """The scripts of the counters of a namespace over one connection."""

    def __init__(self, channel: Channel, namespace: Namespace) -> None:
        self.channel = channel
        self._space = namespace

    async def take(self, sid: str, n: int, counter: CounterName, ask: Ask, *, previous: str = "") -> Granted:
        """Ask for permits, and give others back; *previous*: the lost session of the same process.

        :raises SessionLost: the session is over.
        :raises OtherDays: nothing happened: the server's clock shows another day.
        """
        space = self._space
        keys = (space.clock, space.sessions, space.rate(counter.label, counter.shard), space.rate_limits)
        packed = pack({
            "sid": sid, "n": n, "previous": previous, "name": counter.name,
            "rule": limit_field(counter.rule, ask.length),
            "shard": counter.shard, "shards": counter.shards, "limit": ask.limit, "length": ask.length,
            "days": list(ask.days), "sliding": ask.sliding, "pace": int(ask.is_paced), "want": ask.want,
            "back": [number for pair in ask.back for number in pair],
            "recent": [number for row in ask.recent for number in row],
        })  # fmt: skip
        status, *rest = await self.channel.call(Call("rate_take", keys, [packed]))
        if status == b"days":
            raise OtherDays(rest[0])
        if status == b"lost":
            raise SessionLost(f"session {sid} is over")
        if status == b"older":
            raise StoreRefused(f"call {n} of the rate limit {counter.name} is older than one already answered")
        until, permits, left, wait, free, limit, waiting, is_grace = rest
        return Granted(int(until), permits, left, wait, free, limit, waiting, bool(is_grace))

    async def block(
        self, key: str, site: str, address: str, *, wait: int, first: int, longest: int, share: int, escalate: int
    ) -> tuple[int, int]:
        """Block *key*, and *site* if enough addresses were asked for a pause: see ``rate_block.lua``; times in ms.

        :returns: ms for which the key is blocked, and the site.
        """
        space = self._space
        ask = {
            "key": key, "site": site, "address": address, "wait": wait, "first": first, "longest": longest,
            "share": share, "escalate": escalate,
        }  # fmt: skip
        keys = (space.clock, *space.rate_blocks, space.rate_witnesses(site))
        of_key, of_site = await self.channel.call(Call("rate_block", keys, [pack(ask)]))
        return of_key, of_site

    async def look(self, sid: str, spec: str, *, keep: int, waits: str) -> tuple[dict[str, float], list[str]]:
        """Tell what a session limits, and what of it waits: see ``rate_look.lua``.

        :returns: what is blocked, each key with the seconds that are left; what other live sessions limit.
        """
        space = self._space
        keys = (space.clock, space.rate_blocks[0], space.rate_specs, space.session(sid))
        blocked, others = await self.channel.call(
            Call("rate_look", keys, [pack({"spec": spec, "keep": keep, "waits": waits})])
        )
        left = {key.decode(): int(left) / 1000 for key, left in zip(blocked[::2], blocked[1::2], strict=True)}
        return left, sorted(other.decode() for other in others)


def limit_field(rule: str, window: int) -> str:
    """Return the field of the limit that an operator set for a rule and windows of so many ms."""
    return f"{rule}\0{window}"
