"""What the script that leases resources of a pool is asked and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from scrapy_lease.store.columns import raw
from scrapy_lease.store.permits import AccountReply, Permits, read_reply

_marks = msgspec.msgpack.Decoder(dict[str, tuple[int, int]])
_views = msgspec.msgpack.Decoder(dict[str, tuple[int, str]])


@dataclass(frozen=True, slots=True)
class Rest:
    """A resource rests for a site: ms left, 0 when its next use there is a probe; how often in a row it was banned."""

    left: int
    strikes: int


@dataclass(frozen=True, slots=True)
class View:
    """How a resource served a site: ms since it was last said to, None: never; the suspect, "" for none."""

    served: int | None
    suspect: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A resource leased to this session.

    :param life: ms until the provider takes it back, None: for ever. Counted from the moment of the call.
    :param strikes: how often in a row it was broken; above 0 its first use is a probe, to be settled by its own.
    :param rests: the sites for which it is not to be used, or only to be probed.
    :param views: what its holders before knew of how it serves sites.
    :param permits: how often an account may be used, None: that is no question.
    :param jar: what the last holder of an account kept for the next one.
    """

    id: str
    fence: int
    body: bytes
    exit: str
    life: int | None
    strikes: int
    rests: Mapping[str, Rest]
    views: Mapping[str, View] = field(default_factory=dict)
    permits: Permits | None = None
    jar: bytes = b""


@dataclass(frozen=True, slots=True)
class Own:
    """A resource that is made for one key; *life*: ms that it lives once it is in the pool, 0: for ever."""

    id: str
    body: bytes
    life: int


@dataclass(frozen=True, slots=True)
class Tie:
    """A sticky key, and what the session asks for it.

    :param key: any text; the store is shown a digest of it.
    :param site: where it is to serve, None: the key is in use on *offer*, and stays tied to it for another time.
    :param offer: a lease of this session that it may be tied to if it is tied to nothing that may serve; "": none.
    :param avoid: ids that it must not be tied to.
    :param strict: it is tied once and for ever: while that may not serve, it waits, and is tied to nothing else.
    :param own: it is tied to nothing but what is made for it: this, unless it has such a one already.
    """

    key: str
    site: str | None
    offer: str = ""
    avoid: frozenset[str] = frozenset()
    strict: bool = False
    own: Own | None = None


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """How a pool stands: resources free, free but resting for some site, leased, resting for all, known at all.

    Of accounts those that are cold are free, too; ``cold``: how many these are; ``benched``: demoted, and not even cold
    yet; ``spent``: their quota is used up; ``shut``: ms until the hours of work, 0: these are now.

    ``waiting``: other live sessions that wait; ``share``: leases a session may have while others wait; ``yields``:
    leases this session is to give back as soon as their requests end; ``silent``: ms since the first failure that no
    answer through the pool has followed, whoever got it, 0: there is none; ``expired``: a session that is over and
    holds or waits, to be reclaimed, or "".
    """

    grace: bool
    free: int
    spotted: int
    leased: int
    resting: int
    known: int
    waiting: int
    share: int
    yields: int
    silent: int
    expired: str
    cold: int = 0
    benched: int = 0
    spent: int = 0
    shut: int = 0


@dataclass(frozen=True, slots=True)
class Take:
    """Reply of ``PoolScripts.take``.

    :param pauses: for each site asked for, ms for which it is paused, or after which to ask again while another session
        sees whether it still has to be; -1: this session is to see, by a request that is settled by ``ok`` if it is
        served.
    :param recalled: ids that the session holds and is to give back at once, or does not hold any more.
    :param more: permits for leases that were here already.
    :param tied: for each sticky key the id it is tied to, leased to this session or to another; "": nothing could be
        had for it yet.
    """

    standing: PoolStanding
    leases: tuple[Lease, ...]
    pauses: tuple[int, ...]
    recalled: tuple[str, ...]
    tied: tuple[str, ...]
    more: Mapping[str, Permits] = field(default_factory=dict)


def packed_ties(ties: Sequence[Tie], asks: Sequence[tuple[str, int]], namespace: str) -> list[tuple[Any, ...]]:
    """Return *ties* as the script takes them."""
    numbers = {site: number for number, (site, _) in enumerate(asks, 1)}
    secret = blake2b(namespace.encode(), digest_size=32).digest()
    return [
        (
            raw(blake2b(tie.key.encode(errors="surrogatepass"), key=secret, digest_size=16).digest()),
            0 if tie.site is None else numbers[tie.site], tie.offer, sorted(tie.avoid),
            int(tie.strict), *([(tie.own.id, raw(tie.own.body), tie.own.life)] if tie.own else ()),
        )
        for tie in ties
    ]  # fmt: skip


def read_take(
    standing: Sequence[Any], fence: bytes, ids: Sequence[bytes], records: Sequence[bytes], marks: Sequence[bytes],
    views: Sequence[bytes | None], pauses: Sequence[int], recalled: Sequence[bytes], tied: Sequence[bytes],
    account: Sequence[Any] | None = None,
) -> Take:  # fmt: skip
    """Read the answer of the script."""
    grace, now, wall, *counts, expired = standing
    told = AccountReply() if account is None else read_reply(account, now, wall)
    permits, jars = dict(told.permits), dict(zip(ids, told.jars, strict=False))
    leases = tuple(
        _lease(name.decode(), int(fence), record, packed, viewed, now, wall, permits.get(name.decode()), jars.get(name))
        for name, record, packed, viewed in zip(ids, records, marks, views or [None] * len(ids), strict=True)
    )
    return Take(
        PoolStanding(bool(grace), *(*counts, expired.decode(), told.cold, told.benched, told.spent, told.shut)),
        leases,
        tuple(pauses),
        tuple(name.decode() for name in recalled),
        tuple(name.decode() for name in tied),
        {name: permit for name, permit in permits.items() if name.encode() not in ids},
    )


def _lease(
    name: str, fence: int, record: bytes, packed: bytes, viewed: bytes | None, now: int, wall: int,
    permits: Permits | None, jar: bytes | None,
) -> Lease:  # fmt: skip
    exit_end = 19 + int(record[16:19])
    expiry = int(record[3:16])
    marks = _marks.decode(packed) if packed else {}
    rests = {site: Rest(max(0, until - now), strikes) for site, (until, strikes) in marks.items()}
    known = _views.decode(viewed) if viewed else {}
    views = {site: View(max(0, now - at) if at else None, suspect) for site, (at, suspect) in known.items()}
    return Lease(
        name, fence, record[exit_end:], record[19:exit_end].decode(), expiry - wall if expiry else None,
        int(record[1:3]), rests, views, permits, jar or b"",
    )  # fmt: skip
