"""Three nodes share six accounts: the site never sees one in two nodes at once, nor a page of members without one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from tests.helpers.fleet import Node, until
from tests.helpers.members import MemberBed, Visit
from tests.helpers.servers import Server
from tests.helpers.spiders import ALL_ARE_HERE, is_long, items_of, paths_of, records_of, seeds

PAGES = 600
TOGETHER = """
from tests.helpers.members import MemberSpider

class Members(MemberSpider):
    async def start(self):
        await self.all_are_here()
        async for request in super().start():
            yield request
"""


def is_shared(visits: Iterable[Visit]) -> list[tuple[str, str, str]]:
    """Accounts that two nodes had in flight at once."""
    by_user: dict[str, list[Visit]] = {}
    for visit in sorted(visits, key=lambda each: each.hit.started):
        by_user.setdefault(visit.user, []).append(visit)
    return [
        (user, first.node, second.node)
        for user, own in by_user.items()
        for first, second in pairwise(own)
        if first.node != second.node and (not first.hit.ended or second.hit.started < first.hit.ended)
    ]


def walls(b: MemberBed) -> list[str]:
    """Pages of members that nobody asked for as a member."""
    known = {id(visit.hit) for visit in b.site.visits}
    return [hit.path for hit in b.site.hits if hit.path.startswith("/members/") and id(hit) not in known]


def under_way(b: MemberBed, node: Node) -> list[Visit]:
    """What the node has in flight."""
    return [visit for visit in b.site.visits if visit.node == node.name and not visit.hit.ended]


def start(b: MemberBed, pages: int = PAGES) -> list[Node]:
    """Start three nodes, which begin together."""
    settings = {"LOG_LEVEL": "INFO"}
    nodes = [b.crawl(f"n{number}", source=TOGETHER, pages=pages, settings=settings) for number in range(3)]
    for node in nodes:
        node.wait_for("Spider opened")
    (b.shop.folder / ALL_ARE_HERE).touch()
    return nodes


def test_no_account_is_in_two_nodes(club: Callable[..., MemberBed]) -> None:
    """Each page once; each account logs in once over all nodes, and is used as often as the others, within a tenth."""
    pages = 3000 if is_long() else 420
    # Slow enough for the nodes to be as fast as each other.
    b = club(6, latency=0.1)
    nodes = start(b, pages)
    b.shop.wait(nodes)
    assert paths_of(items_of(b.shop)) == sorted(f"/members/{number}" for number in range(pages))
    assert len(b.site.visits) == pages
    assert not is_shared(b.site.visits)
    assert not walls(b)
    assert sorted(b.site.logins) == b.users
    assert len({visit.node for visit in b.site.visits}) == 3
    uses = b.uses().values()
    assert max(uses) - min(uses) <= 0.1 * pages / 6, b.uses()


def test_ten_nodes_use_a_quota_of_three_three_times(club: Callable[..., MemberBed]) -> None:
    """One account, with an interval: no more than three pages over all, and no two of them nearer than that."""
    b = club(1)
    settings = {
        "LEASE_ACCOUNT_QUOTA": "3", "LEASE_ACCOUNT_INTERVAL": "0.5", "LEASE_ACCOUNT_WAIT": "0.6", "LEASE_WINDOW": "2",
    }  # fmt: skip
    nodes = [b.crawl(f"n{number}", source=TOGETHER, pages=30, settings=settings) for number in range(10)]
    for node in nodes:
        node.wait_for("Spider opened", 60)
    (b.shop.folder / ALL_ARE_HERE).touch()
    b.shop.wait(nodes)
    assert b.uses() == {"m0": 3}
    times = [visit.hit.started for visit in b.site.visits]
    # A request may be longer on its way than the next one.
    assert all(second - first > 0.35 for first, second in pairwise(times)), times
    assert b.site.logins == ["m0"]
    assert {node.stats["finish_reason"] for node in nodes} == {"lease_no_accounts"}
    assert len(records_of(b.client)) == 30 - 3


@pytest.mark.parametrize("seed", seeds(1))
def test_a_killed_node(club: Callable[..., MemberBed], seed: int) -> None:
    """Its accounts are used by the others within its time to live, not before, and without a login."""
    b = club(6, latency=0.1)
    nodes = start(b)
    until(lambda: len({visit.node for visit in b.site.visits}) == 3, 60, "all nodes")
    until(lambda: len(b.site.visits) > 100 + 20 * seed, 60, "some pages")
    order = nodes[seed % 3 :] + nodes[: seed % 3]
    # What a node used a moment ago may be another's by now; what it has in flight is its own.
    killed = until(lambda: next((node for node in order if under_way(b, node)), None))
    at = killed.kill().at
    own = (visit for visit in b.site.visits if visit.node == killed.name)
    mine = {visit.user for visit in own if not visit.hit.ended or visit.hit.ended > at}
    rest = [node for node in nodes if node is not killed]
    b.shop.wait(rest)
    after = [visit for visit in b.site.visits if visit.user in mine and visit.node != killed.name]
    taken = min(visit.hit.started for visit in after if visit.hit.started > at)
    assert 1.5 < taken - at < 3 * 3, taken - at
    assert not [visit for visit in is_shared(b.site.visits) if killed.name not in visit]
    assert set(paths_of(items_of(b.shop))) == {f"/members/{number}" for number in range(PAGES)}
    assert sorted(b.site.logins) == b.users
    assert not walls(b)


def test_a_frozen_node(club: Callable[..., MemberBed]) -> None:
    """SIGSTOP for 3 x TTL, then SIGCONT: it sends nothing as accounts that it has lost meanwhile; nothing is lost.

    What it had stored and not reported yet as it froze, the others fetch again.
    """
    b = club(6, latency=0.04)
    nodes = start(b)
    until(lambda: len({visit.node for visit in b.site.visits}) == 3, 60, "all nodes")
    at = time.monotonic()
    nodes[0].pause()
    time.sleep(9)
    nodes[0].resume()
    b.shop.wait(nodes)
    assert not is_shared(visit for visit in b.site.visits if visit.hit.ended)
    assert not walls(b)
    paths = Counter(paths_of(items_of(b.shop)))
    assert paths.keys() == {f"/members/{number}" for number in range(PAGES)}
    in_hand = {v.hit.path for v in b.site.visits if v.node == nodes[0].name and at - 1 < v.hit.started < at + 1}
    assert {path for path, times in paths.items() if times > 1} <= in_hand


def test_the_server_is_away_for_longer_than_a_lease(club: Callable[..., MemberBed], own_server: Server) -> None:
    """Nobody asks as anybody once the leases may be over; then both go on, and no account logs in again."""
    b = club(4, store=own_server, latency=0.05)
    nodes = [b.crawl(name, source=TOGETHER, pages=300, settings={"LOG_LEVEL": "INFO"}) for name in ("n0", "n1")]
    for node in nodes:
        node.wait_for("Spider opened")
    (b.shop.folder / ALL_ARE_HERE).touch()
    until(lambda: len(b.site.visits) > 60 and len({visit.node for visit in b.site.visits}) == 2, 30, "some pages")
    own_server.stop()
    gone = time.monotonic()
    time.sleep(5)
    back = time.monotonic()
    own_server.start()
    b.shop.wait(nodes)
    assert not [visit for visit in b.site.visits if gone + 3.2 < visit.hit.started < back]
    assert not is_shared(b.site.visits)
    assert not walls(b)
    assert sorted(b.site.logins) == b.users
    assert set(paths_of(items_of(b.shop))) == {f"/members/{number}" for number in range(300)}
