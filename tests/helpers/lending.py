"""Who had which proxy when: by the events of the pool, and by what the site saw, which must agree."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from scrapy_lease.store.instant import Instant
from scrapy_lease.store.keys import Namespace
from tests.helpers.proxied import Bed, pool_keys
from tests.helpers.proxies import Hit

NEVER = float("inf")


@dataclass(slots=True)
class Lending:
    """A proxy was leased to a node from *began* until *ended* (of the monotonic clock, in s)."""

    id: str
    node: str
    began: float
    ended: float = NEVER


def lendings(b: Bed) -> list[Lending]:
    """What the events of the pool tell of leases, in order; proxies have no user names here."""
    offset = time.time() - time.monotonic()
    told: list[Lending] = []
    latest: dict[str, Lending] = {}
    for event, fields in b.client.xrange(pool_keys().key("events")):
        at = int(event.partition(b"-")[0]) / 1000 - offset
        what, node = fields[b"what"].decode(), fields[b"node"].decode()
        for id_ in fields[b"ids"].decode().split():
            if what in ("take", "back", "gone") and id_ in latest:
                latest.pop(id_).ended = at
            if what == "take":
                latest[id_] = Lending(id_, node, at)
                told.append(latest[id_])
    return told


def banned(b: Bed) -> set[str]:
    """The endpoints of proxies that were banned at some site."""
    events = [fields for _, fields in b.client.xrange(pool_keys().key("events")) if fields[b"what"] == b"ban"]
    return {id_ for fields in events for id_ in fields[b"ids"].decode().split()}


def unlent(b: Bed) -> list[tuple[Hit, list[Lending]]]:
    """The requests of nodes that had not leased their proxy at that moment, with the leases of that proxy."""
    by_exit: dict[str, list[Lending]] = defaultdict(list)
    exits = {proxy.endpoint: proxy.exit for proxy in b.web.proxies}
    for lending in lendings(b):
        by_exit[exits[lending.id]].append(lending)
    return [
        (hit, by_exit[hit.peer])
        for hit in list(b.site.hits)
        if not any(one.node == hit.agent and one.began <= hit.started <= one.ended for one in by_exit[hit.peer])
    ]


def shared(hits: Iterable[Hit]) -> list[tuple[Hit, Hit]]:
    """The pairs of requests of two nodes that came from one address and were under way at one time."""
    under_way: dict[str, list[Hit]] = defaultdict(list)
    pairs = []
    for hit in sorted(hits, key=lambda hit: hit.started):
        now = [other for other in under_way[hit.peer] if (other.ended or NEVER) > hit.started]
        pairs += [(other, hit) for other in now if other.agent != hit.agent]
        under_way[hit.peer] = [*now, hit]
    return pairs


def expires(b: Bed, node: str) -> float:
    """When the session of *node* is over, if it sends no more heartbeat (monotonic, s)."""
    space = Namespace("scrapybot")
    at = time.monotonic()
    clock = {name.decode(): value.decode() for name, value in b.client.hgetall(space.clock).items()}
    now = Instant.of(clock, b.client.execute_command("TIME")).lease
    (deadline,) = (
        score
        for sid, score in b.client.zrange(space.sessions, 0, -1, withscores=True)
        if b.client.hget(space.session(sid.decode()), "node") == node.encode()
    )
    return at + (deadline - now) / 1000
