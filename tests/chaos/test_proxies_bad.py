"""Proxies and sites that go wrong, in whole crawls of several nodes: what is fetched, what is wasted, who is blamed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Node, until
from tests.helpers.lending import banned, shared, unlent
from tests.helpers.proxied import Bed, pool_keys, urls, wasted
from tests.helpers.proxies import BAN_PAGE
from tests.helpers.spiders import dead_letters, is_long, items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

#: What rests does so to the end of the crawl.
RESTS = {"LEASE_PROXY_BACKOFF": "60,60", "DOWNLOAD_TIMEOUT": "1"}
POLICY = """
class Policy:
    def judge(self, request, response, exception):
        return "ban" if response is not None and "robot" in response.text else None
"""
NODES = 3 if is_long() else 2
PAGES = 400 if is_long() else 90


def pages(number: int = PAGES) -> list[str]:
    return [f"/page/{page}" for page in range(number)]


def crawl(b: Bed, **options: object) -> list[Node]:
    """Crawl with all nodes until they have ended by themselves."""
    nodes = [b.crawl(name=f"n{number}", **options) for number in range(NODES)]
    b.shop.wait(nodes)
    return nodes


def judge(b: Bed, done: list[str]) -> None:
    """These pages are done; nothing came directly, nor through what another node had."""
    assert set(paths_of(items_of(b.shop))) == set(done)
    assert not shared(b.site.hits)
    assert not unlent(b)
    assert b.site.peers <= b.exits()
    assert dead_letters(b.client) == []


@pytest.mark.parametrize("fault", ["mixed", *(["refuse", "hang", "ban", "dead"] if is_long() else [])])
def test_a_third_of_the_pool_is_bad(bed: Callable[..., Bed], fault: str) -> None:
    """All items are done without one attempt counted; each bad proxy wastes at most 5 requests before it rests."""
    b = bed(9, latency=0.05)
    bad = b.web.proxies[::3]
    faults = dict(zip(bad, ["refuse", "hang", "ban"] if fault == "mixed" else [fault] * 3, strict=True))
    for proxy, kind in faults.items():
        if kind == "ban":
            b.site.banned.add(proxy.exit)
        elif kind == "dead":
            b.web.die(proxy)
        else:
            proxy.mode = kind
    nodes = crawl(b, pages=PAGES, settings={**RESTS, "LOG_LEVEL": "DEBUG"})
    judge(b, pages())
    counts = [wasted(nodes, proxy) for proxy in bad]
    broken = sum(node.stats.get("lease/proxy/broken/default", 0) for node in nodes)
    assert 1 <= min(counts) <= max(counts) <= 5
    assert broken == sum(kind == "dead" for kind in faults.values())
    assert banned(b) == {proxy.endpoint for proxy, kind in faults.items() if kind != "dead"}
    assert sum(node.stats.get("lease/items/failed", 0) for node in nodes) == 0
    assert b.left()["leased"] == 0


@pytest.mark.parametrize(
    ("fault", "why"), [("dead", "connection refused"), ("refuse", "connection lost"), ("hang", "no answer in time")]
)
def test_all_are_dead(bed: Callable[..., Bed], fault: str, why: str) -> None:
    """All nodes close with lease_no_proxies and say why; all items are in the backlog, and good proxies end them.

    However often a rest ends meanwhile, and whether connections are refused, closed or never answered.
    """
    b = bed(6)
    dead, good = b.web.proxies[:3], b.web.proxies[3:]
    for proxy in dead:
        if fault == "dead":
            b.web.die(proxy)
        else:
            proxy.mode = fault
    settings = {"LEASE_PROXY_WAIT": "0.8", "LEASE_PROXY_BACKOFF": "0.5,1", "DOWNLOAD_TIMEOUT": "1"}
    began = time.monotonic()
    nodes = crawl(b, pages=PAGES, settings={**settings, "LEASE_PROXIES": urls(dead)})
    assert {node.stats["finish_reason"] for node in nodes} == {"lease_no_proxies"}
    assert any(f"× {why}" in line for node in nodes for line in node.log.splitlines() if "has had no usable" in line)
    assert time.monotonic() - began < 20
    assert b.site.hits == []
    records = records_of(b.client)
    assert len(records) == PAGES
    assert {(record.attempts, record.deaths) for record in records} == {(0, 0)}
    assert {record.state for record in records} <= {"pending", "delayed"}
    b.run(name="heir", pages=PAGES, settings={**RESTS, "LEASE_PROXIES": urls(good)})
    judge(b, pages())
    assert b.site.peers <= b.exits(good)


def test_all_are_leased_by_others(bed: Callable[..., Bed]) -> None:
    """Who finds all leased for longer than 5 x LEASE_PROXY_WAIT waits, and goes on when they are free."""
    b = bed(2)
    long_ones = [f"/slow/4/{number}" for number in range(2)]
    holder = b.crawl(paths=" ".join(long_ones), settings={"LEASE_JOB": "long", "DOWNLOAD_TIMEOUT": 20})
    until(lambda: len(b.site.hits) == 2)
    waiter = b.crawl(name="n1", pages=20, settings={"LEASE_JOB": "short", "LEASE_PROXY_WAIT": "0.3"})
    b.shop.wait([holder, waiter])
    assert {node.stats["finish_reason"] for node in (holder, waiter)} == {"finished"}
    judge(b, long_ones + pages(20))
    first = min(hit.started for hit in b.site.hits if hit.agent == "n1")
    assert first - max(hit.ended for hit in b.site.hits if hit.agent == "n0") < 5


@pytest.mark.parametrize("how", ["a page", *(["a status"] if is_long() else [])])
def test_a_page_that_is_refused_to_all(bed: Callable[..., Bed], how: str) -> None:
    """Banned proxies and a page that nobody gets, both told by a page that is a 200 or by a status: each is blamed.

    No ban reaches the spider, the page is rejected, and only the banned proxies rest.
    """
    b = bed(8, latency=0.05)
    bad = b.web.proxies[::4]
    exits = b.exits(bad)
    refused = {f"/page/{page}" for page in range(20, PAGES, 50)}
    b.site.ban = (200, BAN_PAGE) if how == "a page" else (403, b"")
    b.site.bans = lambda peer, path: peer in exits or path in refused
    (b.shop.folder / "policy.py").write_text(POLICY)
    nodes = crawl(b, pages=PAGES, settings={**RESTS, "LEASE_POLICY": "policy.Policy", "LOG_LEVEL": "DEBUG"})
    judge(b, [path for path in pages() if path not in refused])
    assert sum(node.stats.get("lease/items/rejected", 0) for node in nodes) == len(refused)
    assert banned(b) == {proxy.endpoint for proxy in bad}
    assert max(wasted(nodes, proxy) for proxy in bad) <= 5
    assert b.left() == {"leased": 0, "free": 8, "resting": 0, "known": 8}


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_only_what_is_refused_to_all_is_left(bed: Callable[..., Bed], at_once: int) -> None:
    """A node that never had a page of the site tells all the same that it is the URLs, and the crawl ends.

    However few are tried at once: each is, before any is tried again.
    """
    b = bed(6, latency=0.05)
    refused = {f"/page/{page}" for page in range(40, 44)}
    b.site.bans = lambda peer, path: path in refused
    b.run(pages=40, settings=RESTS)
    assert b.site.peers == b.exits()
    settings = {"LEASE_JOB": "rest", "CONCURRENT_REQUESTS_PER_DOMAIN": at_once, "LOG_LEVEL": "DEBUG"}
    node = b.run(name="n1", paths=" ".join(sorted(refused)), settings={**RESTS, **settings})
    assert node.stats["finish_reason"] == "finished"
    assert node.stats["lease/items/rejected"] == len(refused)
    assert "lease/items/done" not in node.stats


def test_the_only_page_is_refused_from_the_start(bed: Callable[..., Bed]) -> None:
    """Nobody can tell whether it is the page or the site: it is seldom asked for, and done when it is served."""
    b = bed(4, latency=0.02)
    b.site.bans = lambda peer, path: True
    node = b.crawl(pages=1, settings={"LEASE_PROXY_BACKOFF": "4,4", "LEASE_PROXY_WAIT": "1"})
    until(lambda: b.client.hlen(pool_keys().key("sites")))
    tries = len(b.site.hits)
    time.sleep(2)
    assert tries == len(b.site.hits) <= 6
    b.site.bans = lambda peer, path: False
    b.shop.wait([node])
    judge(b, pages(1))


def test_a_site_that_bans_all_for_a_while(bed: Callable[..., Bed]) -> None:
    """It is paused, with at most half of the pool resting for it, and probed; when it serves again the crawl ends."""
    b = bed(8, latency=0.02)
    settings = {"LEASE_PROXY_BACKOFF": "0.5,2", "LEASE_PROXY_WAIT": "5"}
    nodes = [b.crawl(name=f"n{number}", pages=PAGES, settings=settings) for number in range(NODES)]
    until(lambda: len(b.site.hits) > PAGES // 4)
    b.site.bans = lambda peer, path: True
    began, length = time.monotonic(), 20 if is_long() else 4
    benched = []
    while time.monotonic() < began + length:
        time.sleep(0.1)
        benched.append(b.client.zcard(pool_keys().key("benched")))
    b.site.bans = lambda peer, path: False
    ended = time.monotonic()
    b.shop.wait(nodes)
    judge(b, pages())
    tries = [hit for hit in b.site.hits if began < hit.started < ended]
    late = [hit for hit in tries if hit.started > began + length / 2]
    assert 1 <= max(benched) <= 4
    assert len(late) <= length
    assert b.left() == {"leased": 0, "free": 8, "resting": 0, "known": 8}
