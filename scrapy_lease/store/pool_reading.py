"""What the records of a pool say, for people's tools: nothing is changed.

Each chunk is of one instant. What comes or goes while a pool is walked may or may not be seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec

from scrapy_lease.store.instant import Instant, pairs
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.tools import CHUNK, Read, Tools

_FLAGS = {" ": "", "d": "drained", "x": "revoked"}
_EXIT, _FENCE, _HOLDER = 19, 16, 29
#: The sorted sets that say where a resource is, by what people call it.
_SETS = {"free": "free", "spotted": "free", "resting": "resting"}
#: The same of accounts, besides those that are cold.
_ACCOUNT_SETS = {"free": "free", "resting": "cooling", "bench": "benched", "spent": "spent"}

_rests = msgspec.msgpack.Decoder(dict[str, tuple[int, int]]).decode
_values = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource of a pool. Times are s of the server's wall clock.

    :param state: ``leased``; ``free``; ``resting``: for all sites; ``behind``: free, but another identity of its exit
        address is in play; ``aside``: drained or revoked, and held by nobody. Of accounts also ``cooling``, ``cold``,
        ``benched`` (demoted) and ``spent`` (its quota is used up).
    :param flag: ``drained``, ``revoked`` or ``""``.
    :param strikes: how often in a row it was broken.
    :param exit: its exit address, ``""`` if that is not known.
    :param expires: when its provider takes it back, None: never.
    :param wait: s until it may be handed out; of what is free, resting, cooling, benched or spent.
    :param rests: sites for which it is not to be used -> s left; 0: its next use there is a probe.
    :param session: who holds it under *fence* *since* when; ``""``, 0 and None unless leased.
    :param others: further sessions that hold an account.
    :param used: permits of its present day that were granted.
    """

    id: str
    body: bytes
    state: str
    flag: str
    strikes: int
    exit: str
    expires: float | None
    wait: float
    rests: Mapping[str, float]
    session: str = ""
    fence: int = 0
    since: float | None = None
    others: tuple[str, ...] = ()
    used: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A session that holds resources of a pool or waits for some.

    :param is_live: its deadline is ahead.
    :param held: how many it holds.
    :param wants: how many it waits for.
    :param waits: s for which it has waited, None: it does not.
    """

    session: str
    node: str
    is_live: bool
    held: int
    wants: int
    waits: float | None


@dataclass(frozen=True, slots=True)
class PoolPicture:
    """How a pool stands.

    :param free: may be handed out, now or soon; *spotted* of them rest for some site.
    :param resting: for all sites.
    :param behind: free, but for another identity of their exit address that is in play.
    :param aside: drained or revoked, and held by nobody.
    :param paused: sites that failed with half of the pool -> s left; 0: they are being probed.
    :param cold: accounts in reserve; *benched*: demoted; *spent*: their quota is used up. Cooling ones are *resting*.
    """

    kind: str
    name: str
    known: int
    free: int
    spotted: int
    leased: int
    resting: int
    behind: int
    aside: int
    paused: Mapping[str, float]
    members: tuple[Member, ...]
    cold: int = 0
    benched: int = 0
    spent: int = 0

    @property
    def waiting(self) -> int:
        """Live sessions that wait."""
        return sum(member.is_live and member.waits is not None for member in self.members)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to resources of a pool, all under one fence; *at* in s of the server's wall clock.

    :param what: ``new``, ``take``, ``back``, ``ban``, ``pause`` (of the site *why*), ``gone``, or an operator's verb.
    :param session: who did it; ``""``: an operator or the store itself.
    """

    at: float
    what: str
    session: str
    node: str
    fence: int
    why: str
    ids: tuple[str, ...]


async def known_pools(tools: Tools, kind: str = "") -> list[PoolKeys]:
    """Return the pools that the namespace knows, of one *kind* or of all, sorted."""
    prefix = f"{tools.namespace.prefix}:pool:"
    found: set[str] = set()
    async for keys in tools.keys(f"{prefix.replace('*', '[*]')}*"):
        found.update(key.decode()[len(prefix) :].partition(":")[0] for key in keys)
    names = sorted(tuple(map(unquote, label.partition("/")[::2])) for label in found)
    return [tools.namespace.pool(*pair) for pair in names if kind in ("", pair[0])]


async def read_instant(tools: Tools) -> Instant:
    """Return what time it is in the store."""
    (clock,) = await tools.look([Read("HGETALL", tools.namespace.clock)])
    return Instant.of(pairs(clock), await tools.command("TIME"))


async def walk(tools: Tools, pool: PoolKeys) -> AsyncIterator[list[ResourceRecord]]:
    """Walk the resources of *pool*, a chunk at a time and each once."""
    now, seen = await read_instant(tools), set[bytes]()
    async for records in tools.fields(pool.key("resources")):
        fresh = {id_: data for id_, data in records.items() if id_ not in seen}
        seen.update(fresh)
        if fresh:
            yield await _read_chunk(tools, pool, fresh, now)


async def _read_chunk(tools: Tools, pool: PoolKeys, data: Mapping[bytes, bytes], now: Instant) -> list[ResourceRecord]:
    ids = [id_.decode() for id_ in data]
    behind = [f"{_exit_of(record)}\0{id_}" for id_, record in zip(ids, data.values(), strict=True)]
    sets = _ACCOUNT_SETS if pool.kind == "account" else _SETS
    leases, rests, hidden, states, cold, *scores = await tools.look(
        [
            Read("HMGET", pool.key("leases"), tuple(ids)),
            Read("HMGET", pool.key("rests"), tuple(ids)),
            Read("ZMSCORE", pool.key("behind"), tuple(behind)),
            Read("HMGET", pool.key("accounts"), tuple(ids)),
            Read("LRANGE", pool.key("cold"), ("0", "-1")),
            *(Read("ZMSCORE", pool.key(name), tuple(ids)) for name in sets),
        ]
    )
    reserve = set(cold)
    chunk = []
    for at, (id_, record) in enumerate(zip(ids, data.values(), strict=True)):
        places = {name: column[at] for name, column in zip(sets, scores, strict=True) if column[at] is not None}
        state, due, clock = "aside", float(now.lease), now.lease
        if leases[at]:
            state = "leased"
        elif places:
            ((name, score),) = places.items()
            state, due, clock = sets[name], float(score), now.wall if name == "spent" else now.lease
        elif id_.encode() in reserve:
            state = "cold"
        elif hidden[at] is not None:
            state = "behind"
        elif not _FLAGS[chr(record[0])]:
            # Nowhere, and by nobody's wish: it has gone since its record was read.
            continue
        found = _record(id_, record, state, max(0.0, due - clock) / 1000, leases[at], rests[at], now)
        chunk.append(found if states[at] is None else _account(found, states[at], leases[at], now))
    return chunk


def _account(record: ResourceRecord, state: bytes, leases: bytes | None, now: Instant) -> ResourceRecord:
    """Add what is known of an account; its layer, day and count come first in its state."""
    _, day, used, *_ = _values(state)
    others = tuple(lease[_HOLDER:].decode() for lease in leases.split(b"\0")[1:]) if leases else ()
    return replace(record, others=others, used=used if day > now.wall else 0)


def _record(
    id_: str, data: bytes, state: str, wait: float, lease: bytes | None, rests: bytes | None, now: Instant
) -> ResourceRecord:
    exit_, expiry = _exit_of(data), int(data[3:16])
    sites = {site: max(0, until - now.lease) / 1000 for site, (until, _) in _rests(rests).items()} if rests else {}
    record = (
        id_, data[_EXIT + len(exit_.encode()) :], state, _FLAGS[chr(data[0])], int(data[1:3]), exit_,
        expiry / 1000 if expiry else None, wait, sites,
    )  # fmt: skip
    if lease is None:
        return ResourceRecord(*record)
    lease = lease.partition(b"\0")[0]
    return ResourceRecord(*record, lease[_HOLDER:].decode(), int(lease[:_FENCE]), int(lease[_FENCE:_HOLDER]) / 1000)


def _exit_of(data: bytes) -> str:
    return data[_EXIT : _EXIT + int(data[16:_EXIT])].decode()


async def picture_of(tools: Tools, pool: PoolKeys, now: Instant) -> PoolPicture:
    """Return how *pool* stands."""
    sizes = ("free", "spotted", "resting", "behind", "bench", "spent")
    known, cold, leased, sites, asks, waiting, members, *counts = await tools.look(
        [
            Read("HLEN", pool.key("resources")),
            Read("LLEN", pool.key("cold")),
            Read("HLEN", pool.key("leases")),
            Read("HGETALL", pool.key("sites")),
            Read("HGETALL", pool.key("asks")),
            Read("ZRANGE", pool.key("waiting"), ("0", "-1", "WITHSCORES")),
            Read("ZRANGE", pool.key("members"), ("0", "-1")),
            *(Read("ZCARD", pool.key(name)) for name in sizes),
        ]
    )
    free, spotted, resting, behind, benched, spent = counts
    paused = {
        site.decode(): max(0.0, _values(packed)[0] - now.lease) / 1000
        for site, packed in zip(sites[::2], sites[1::2], strict=True)
    }
    return PoolPicture(
        pool.kind, pool.name, known, free + spotted, spotted, leased, resting, behind,
        # An account that several hold may be free for others besides.
        max(0, known - sum(counts) - cold - leased), paused,
        tuple(await _members(tools, pool, now, _waits(waiting, asks, now), members)), cold, benched, spent,
    )  # fmt: skip


def _waits(waiting: Sequence[bytes], asks: Sequence[bytes], now: Instant) -> dict[str, tuple[float, int]]:
    """Return for each session that waits since when it does, in s, and for how many."""
    wants = {sid: int(_values(packed)[2]) for sid, packed in zip(asks[::2], asks[1::2], strict=True)}
    return {
        sid.decode(): (max(0.0, now.lease - float(since)) / 1000, wants.get(sid, 0))
        for sid, since in zip(waiting[::2], waiting[1::2], strict=True)
    }


async def _members(
    tools: Tools, pool: PoolKeys, now: Instant, waits: Mapping[str, tuple[float, int]], members: Sequence[bytes]
) -> list[Member]:
    sids = sorted({sid.decode() for sid in members} | set(waits))
    reads = []
    for sid in sids:
        reads += [
            Read("SCARD", pool.held(sid)),
            Read("HGET", tools.namespace.session(sid), ("node",)),
            Read("ZSCORE", tools.namespace.sessions, (sid,)),
        ]
    replies: list[Any] = await tools.look(reads) if reads else []
    found = []
    for sid, held, node, deadline in zip(sids, replies[::3], replies[1::3], replies[2::3], strict=True):
        since, wants = waits.get(sid, (None, 0))
        is_live = deadline is not None and float(deadline) > now.lease
        found.append(Member(sid, node.decode() if node else "", is_live, held, wants, since))
    return sorted(found, key=lambda member: (member.node, member.session))


async def nodes_of(tools: Tools, sids: Sequence[str]) -> dict[str, str]:
    """Return the node of each session that is still known."""
    found = {}
    for first in range(0, len(sids), CHUNK):
        chunk = sids[first : first + CHUNK]
        replies = await tools.look([Read("HGET", tools.namespace.session(sid), ("node",)) for sid in chunk])
        found.update({sid: node.decode() for sid, node in zip(chunk, replies, strict=True) if node})
    return found


async def read_events(tools: Tools, pool: PoolKeys) -> AsyncIterator[list[Event]]:
    """Walk what *pool* tells of itself, newest first, a chunk at a time; some 100 000 entries are kept."""
    end = "+"
    while True:
        rows = await tools.command("XREVRANGE", pool.key("events"), end, "-", "COUNT", CHUNK)
        if rows:
            yield [_event(*row) for row in rows]
        if len(rows) < CHUNK:
            return
        end = f"({rows[-1][0].decode()}"


def _event(stamp: bytes, flat: Sequence[bytes]) -> Event:
    fields = pairs(flat)
    return Event(
        int(stamp.partition(b"-")[0]) / 1000, fields["what"], fields["session"], fields["node"],
        int(fields["fence"] or 0), fields["why"], tuple(fields["ids"].split()),
    )  # fmt: skip
