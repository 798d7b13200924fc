"""Crawls over the turn of a day: who waits for quotas goes on with the next day, and not before."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime

import pytest

from tests.helpers.fleet import until
from tests.helpers.members import MemberBed, account_keys
from tests.helpers.servers import Server
from tests.helpers.spiders import items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

#: A short wait of what is held ready, and of an item: neither may end because of the quota.
PATIENT = {"LEASE_ACCOUNT_WAIT": "quota", "LEASE_ACCOUNT_QUOTA": "3", "LEASE_MAX_HOLD": "2"}
#: Pages of two pools, as many of each.
ZONES = """
from tests.helpers.members import MemberSpider

class Zones(MemberSpider):
    async def start(self):
        for number in range(4):
            for pool in ("default", "tokyo"):
                yield self.page(f"/members/{pool}-{number}", meta={"lease_account": pool, "download_slot": pool})
"""


def set_clock(server: Server, moment: str) -> float:
    """Let it be so late at the server; returns what the monotonic clock shows."""
    server.set_clock(datetime.fromisoformat(moment).timestamp() - time.time())
    return time.monotonic()


def rests_at(b: MemberBed, number: int, seconds: float = 2.5) -> None:
    """That many pages of members are fetched soon, and no more as long as is watched."""
    until(lambda: len(b.site.visits) >= number, 20, f"{number} pages")
    time.sleep(seconds)
    assert len(b.site.visits) == number


def test_the_backlog_is_held_until_the_day_turns(
    club: Callable[..., MemberBed], make_server: Callable[..., Server]
) -> None:
    """Two nodes wait with all that is left, lose and fail nothing, and go on when it is midnight at the server."""
    server = make_server(clock=True)
    set_clock(server, "2026-12-05 12:00Z")
    b = club(2, store=server)
    nodes = [b.crawl(name, pages=10, settings=PATIENT) for name in ("n0", "n1")]
    rests_at(b, 6)
    midnight = set_clock(server, "2026-12-05 23:59:57Z") + 3
    b.shop.wait(nodes)
    first, after = b.site.visits[:6], b.site.visits[6:]
    assert Counter(visit.user for visit in first) == {"m0": 3, "m1": 3}
    assert max(Counter(visit.user for visit in after).values()) <= 3
    assert midnight - 0.2 < after[0].hit.started < midnight + 3
    assert paths_of(items_of(b.shop)) == sorted(f"/members/{number}" for number in range(10))
    total: Counter[str] = Counter()
    for node in nodes:
        assert node.stats["finish_reason"] == "finished"
        total.update({name: value for name, value in node.stats.items() if name.startswith("lease/items/")})
    assert total["lease/items/done"] == 10
    assert not total["lease/items/failed"] + total["lease/items/dead"]


def test_each_pool_has_the_days_of_its_zone(club: Callable[..., MemberBed], make_server: Callable[..., Server]) -> None:
    """Of a day in which clocks are changed the quota lasts 25 hours, while another pool's is new."""
    server = make_server(clock=True)
    set_clock(server, "2026-10-25 12:00Z")
    b = club(0, store=server)
    berlin, tokyo = ({"id": user, "cookies": {"sid": b.site.admit(user)}} for user in ("berlin", "tokyo"))
    pools = {"tokyo": {"accounts": [tokyo], "timezone": "Asia/Tokyo"}}
    settings = {"LEASE_TIMEZONE": "Europe/Berlin", "LEASE_ACCOUNT_QUOTA": "2", "LEASE_ACCOUNT_POOLS": json.dumps(pools)}
    node = b.crawl(source=ZONES, accounts=[berlin], settings={**PATIENT, **settings})
    rests_at(b, 4, 1.0)
    assert b.uses() == {"berlin": 2, "tokyo": 2}
    set_clock(server, "2026-10-25 22:59:30Z")
    rests_at(b, 6)
    assert b.uses() == {"berlin": 2, "tokyo": 4}
    set_clock(server, "2026-10-25 23:00:00Z")
    b.shop.wait([node])
    assert b.uses() == {"berlin": 4, "tokyo": 4}


def test_who_waits_for_the_day_can_be_ended(club: Callable[..., MemberBed]) -> None:
    """SIGTERM ends the crawl at once, and what it waited for is in the backlog."""
    b = club(1)
    node = b.crawl(pages=6, settings=PATIENT)
    rests_at(b, 3, 1)
    at = time.monotonic()
    node.terminate()
    assert node.wait(10) == 0
    assert time.monotonic() - at < 3
    assert node.stats["finish_reason"] == "shutdown"
    assert len(records_of(b.client)) == 3
    assert b.client.hlen(account_keys().key("leases")) == 0


def test_who_waits_for_seconds_closes_after_five_times_as_long(club: Callable[..., MemberBed]) -> None:
    """A pool whose quotas are used up is of no use to it; what is left stays in the backlog."""
    b = club(1)
    node = b.run(pages=6, settings={**PATIENT, "LEASE_ACCOUNT_WAIT": "0.6"})
    ended = time.monotonic()
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert 3.0 <= ended - b.site.visits[-1].hit.ended < 9
    assert len(b.site.visits) == len(records_of(b.client)) == 3
