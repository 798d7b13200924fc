"""Leased proxies in whole crawls: what goes through which, and what is whose fault."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.helpers.fleet import until
from tests.helpers.proxied import Bed, pool_keys, urls, wasted
from tests.helpers.proxies import DIRECT, Web
from tests.helpers.spiders import dead_letters, items_of, paths_of, records_of

pytestmark = pytest.mark.one_server


def test_a_proxy_without_user_and_password(bed: Callable[..., Bed]) -> None:
    """It is used as it is: each page comes through a proxy, one request at a time on each, none directly."""
    b = bed(4, latency=0.03)
    node = b.run()
    assert b.site.paths() == sorted(f"/page/{number}" for number in range(20))
    assert b.site.peers == b.exits()
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert {item["proxy"] for item in items_of(b.shop)} == {proxy.endpoint for proxy in b.web.proxies}
    assert b.left() == {"leased": 0, "free": 4, "resting": 0, "known": 4}
    assert node.stats["lease/proxy/leased/default"] == node.stats["lease/proxy/released/default"] == 4
    assert node.stats["lease/proxy/reused/default"] == 16


def test_one_endpoint_and_four_users(bed: Callable[..., Bed]) -> None:
    """Each user, password or not, is a proxy of its own: the ban of one is not the others'; no password is shown."""
    b = bed()
    users = [("anna", "hunter2-a"), ("ben", "hunter2-b"), ("cleo", "hunter2-c"), ("token", "")]
    proxies = b.web.add(*users, exit="")
    for number, proxy in enumerate(proxies):
        proxy.exit = f"127.0.9.{number + 1}"
    b.site.banned = {proxies[1].exit}
    b.site.latency = 0.02
    node = b.run(settings={"LOG_LEVEL": "DEBUG", "LEASE_PROXY_BACKOFF": "60,60"}, pages=30)
    served = Counter(hit.peer for hit in b.site.hits)
    assert served[proxies[1].exit] <= 5
    assert min(served[proxies[number].exit] for number in (0, 2, 3)) >= 5
    assert len(items_of(b.shop)) == 30
    assert b.left()["known"] == 4
    shown = {item["proxy"] for item in items_of(b.shop)}
    assert all(len(text.partition("#")[2]) == 4 for text in shown)
    for proxy in proxies:
        assert {credentials for _, credentials in proxy.seen} == {f"{proxy.user}:{proxy.password}"}
    events = b.client.xrange("{scrapybot:0}:pool:proxy/default:events")
    for text in (node.log, str(events), (b.shop.folder / "items.jsonl").read_text()):
        assert "hunter2" not in text


def test_all_proxies_are_dead(bed: Callable[..., Bed]) -> None:
    """The crawl closes with lease_no_proxies and exit status 0; its items are in the backlog, nothing counted."""
    b = bed(3)
    for proxy in b.web.proxies:
        b.web.die(proxy)
    node = b.run(settings={"LEASE_PROXY_WAIT": "0.5", "LEASE_PROXY_BACKOFF": "60,60"}, pages=6)
    assert node.stats["finish_reason"] == "lease_no_proxies"
    assert b.site.hits == []
    records = records_of(b.client)
    assert len(records) == 6
    assert {record.attempts for record in records} == {0}
    assert {record.state for record in records} <= {"pending", "delayed"}
    assert node.stats["lease/proxy/broken/default"] == 3
    assert "has no usable proxy" in node.log


def test_all_proxies_are_leased_by_others(bed: Callable[..., Bed]) -> None:
    """Leased by others is usable: the crawl waits, and goes on when they are back."""
    b = bed(1, latency=0.5)
    first = b.crawl(name="n0", pages=12, settings={"LEASE_JOB": "a", "LEASE_PROXY_REUSE": 0})
    second = b.crawl(name="n1", pages=2, settings={"LEASE_JOB": "b", "LEASE_PROXY_WAIT": "0.3"})
    b.shop.wait([first, second])
    assert {node.stats["finish_reason"] for node in (first, second)} == {"finished"}
    assert len(b.site.hits) == 14
    assert max(hit.in_flight for hit in b.site.hits) == 1


@pytest.mark.parametrize("fault", ["refuse", "hang", 407, "dead"])
def test_after_a_fault_of_a_proxy_another_is_tried(bed: Callable[..., Bed], fault: str | int) -> None:
    """A request goes out again on another proxy, outside of RETRY_TIMES; the bad one serves few before it rests."""
    b = bed(3, latency=0.02)
    bad = b.web.proxies[0]
    if fault == "dead":
        b.web.die(bad)
    else:
        bad.mode = fault
    settings = {"RETRY_TIMES": 0, "LEASE_PROXY_BACKOFF": "60,60", "DOWNLOAD_TIMEOUT": 1, "LOG_LEVEL": "DEBUG"}
    node = b.run(settings=settings)
    assert paths_of(items_of(b.shop)) == sorted(f"/page/{number}" for number in range(20))
    assert b.site.peers == b.exits(b.web.proxies[1:])
    assert 1 <= wasted([node], bad) <= 5
    assert not [path for path, times in Counter(path for path, _ in bad.seen).items() if times > 1]
    assert node.stats["lease/items/done"] == node.stats["lease/items/leased"] == 20
    assert "lease/items/failed" not in node.stats
    assert b.left()["leased"] == 0


def test_whose_answer_it_is(bed: Callable[..., Bed]) -> None:
    """401, 404, 451 and 500 are the site's: no proxy is blamed, Scrapy does with them what it does."""
    b = bed(2)
    paths = " ".join(f"/status/{status}/x" for status in (401, 404, 451, 500)) + " /page/1"
    node = b.run(paths=paths, settings={"LEASE_ITEM_ATTEMPTS": 1})
    hits = Counter(hit.path for hit in b.site.hits)
    assert hits == {"/status/401/x": 1, "/status/404/x": 1, "/status/451/x": 1, "/status/500/x": 2, "/page/1": 1}
    assert not [name for name in node.stats if name.startswith(("lease/proxy/banned", "lease/proxy/broken"))]
    assert (node.stats["lease/items/rejected"], node.stats["lease/items/done"]) == (3, 1)
    (letter,) = dead_letters(b.client)
    assert letter["reason"] == "target"
    assert b.left() == {"leased": 0, "free": 2, "resting": 0, "known": 2}


def test_the_limits_of_the_site_still_count(bed: Callable[..., Bed]) -> None:
    """Two at once per domain with six proxies are two; a delay stays a delay. With few proxies theirs count as well."""
    b = bed(6, latency=0.05)
    b.run(settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert most_at_once(b) == 2
    b.site.hits.clear()
    slow = {"DOWNLOAD_DELAY": 0.2, "RANDOMIZE_DOWNLOAD_DELAY": "False", "LEASE_RUN": "slow"}
    b.run(name="n1", settings=slow, pages=6)
    starts = sorted(hit.started for hit in b.site.hits)
    assert min(later - sooner for sooner, later in pairwise(starts)) > 0.15
    b.site.hits.clear()
    few = {"LEASE_PROXIES": urls(b.web.proxies[:2]), "LEASE_PROXY_CONCURRENCY": 2, "LEASE_RUN": "few"}
    b.run(name="n2", settings={**few, "LEASE_NAMESPACE": "other"})
    assert max(hit.in_flight for hit in b.site.hits) == 2
    assert most_at_once(b) == 4


def most_at_once(b: Bed) -> int:
    """The most requests that the site had under way at one time."""
    moments = [(hit.started, 1) for hit in b.site.hits] + [(hit.ended, -1) for hit in b.site.hits]
    under_way = most = 0
    for _, step in sorted(moments):
        under_way += step
        most = max(most, under_way)
    return most


def test_a_ban_page_that_is_a_200(bed: Callable[..., Bed]) -> None:
    """LEASE_POLICY calls it a ban: it reaches neither the spider nor the HTTP cache; another proxy gets the page."""
    b = bed(3)
    bad = b.web.proxies[0]
    b.site.banned = {bad.exit}
    b.site.ban = (200, b"<html><h1>Are you a robot?</h1></html>")
    (b.shop.folder / "policy.py").write_text(
        "class Policy:\n"
        "    def judge(self, request, response, exception):\n"
        "        return 'ban' if response is not None and 'robot' in response.text else None\n"
    )
    settings = {
        "LEASE_POLICY": "policy.Policy",
        "HTTPCACHE_ENABLED": "True",
        "HTTPCACHE_DIR": str(b.shop.folder / "cache"),
    }
    node = b.run(settings=settings)
    assert len(items_of(b.shop)) == 20
    assert bad.endpoint not in {item["proxy"] for item in items_of(b.shop)}
    assert node.stats["httpcache/store"] == 20
    assert not [path for path in (b.shop.folder / "cache").rglob("response_body") if b"robot" in path.read_bytes()]
    assert node.stats["lease/proxy/banned/default"] >= 1
    assert sum(hit.peer == bad.exit for hit in b.site.hits) <= 5


def test_a_page_that_is_refused_to_everybody(bed: Callable[..., Bed]) -> None:
    """A 403 through proxies that serve other pages is the page's: rejected, and no proxy is banned for it."""
    b = bed(4)
    b.site.bans = lambda peer, path: path == "/page/7"
    node = b.run(settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 4})
    assert len(items_of(b.shop)) == 19
    assert node.stats["lease/items/rejected"] == 1
    assert 3 <= sum(hit.path == "/page/7" for hit in b.site.hits) <= 6
    assert "lease/proxy/banned/default" not in node.stats
    assert b.left() == {"leased": 0, "free": 4, "resting": 0, "known": 4}


def test_a_gateway(bed: Callable[..., Bed]) -> None:
    """Each id is a proxy of its own; one that is banned is replaced by a new one, and no id is shown."""
    b = bed(latency=0.02)
    gateway = b.web.add_gateway()
    b.site.bans = lambda peer, path: peer in [proxy.exit for proxy in gateway.proxies[:2]]
    url = f"http://cust-{{session:8}}:hunter2@127.0.0.1:{gateway.port}"
    settings = {"LEASE_PROXIES": json.dumps([url]), "LEASE_PROXY_SESSIONS": 3, "LOG_LEVEL": "DEBUG"}
    node = b.run(settings=settings)
    assert len(items_of(b.shop)) == 20
    banned = [proxy for proxy in gateway.proxies if proxy.exit in {proxy.exit for proxy in gateway.proxies[:2]}]
    assert max(len(proxy.seen) for proxy in banned) <= 5
    assert node.stats["lease/proxy/banned/default"] == 2
    assert len(gateway.proxies) >= 3
    ids = [proxy.user.removeprefix("cust-") for proxy in gateway.proxies]
    assert all(len(id_) == 8 for id_ in ids)
    keys = str([b.client.hkeys(pool_keys().key(part)) for part in ("resources", "leases")])
    events = str(b.client.xrange(pool_keys().key("events")))
    for text in (node.log, keys, events, (b.shop.folder / "items.jsonl").read_text()):
        assert not [id_ for id_ in (*ids, "hunter2") if id_ in text]


PROVIDER = """
from scrapy_lease.providers.base import Proxy

class Provider:
    async def fetch(self, count):
        return [Proxy(url) for url in URLS[:count]]
"""


@pytest.mark.each_server
def test_a_provider_and_its_buy_limit(bed: Callable[..., Bed]) -> None:
    """Proxies come from a class of the user's, and no more than the limit allows over all nodes."""
    b = bed(6, latency=0.05)
    (b.shop.folder / "provider.py").write_text(f"URLS = {urls(b.web.proxies)}\n{PROVIDER}")
    pool = {"provider": "provider.Provider", "buy_limit": "3/day", "batch": 2}
    settings = {"LEASE_PROXY_POOLS": json.dumps({"default": pool})}
    nodes = [b.crawl(name=f"n{number}", settings=settings, pages=30) for number in range(2)]
    b.shop.wait(nodes)
    assert b.site.paths() == sorted(f"/page/{number}" for number in range(30))
    assert b.site.peers <= b.exits(b.web.proxies[:3])
    assert max(hit.in_flight for hit in b.site.hits) == 1


TWO_SITES = """
class Two(ShopSpider):
    other = ""

    async def start(self):
        for number in range(40):
            yield self.page(f"/page/{number}", priority=-number)
            yield Request(f"{self.other}/page/{number}", priority=-number)
"""


def test_a_site_that_bans_all(bed: Callable[..., Bed]) -> None:
    """At most half of the pool is banned for one site; then the site is paused, and others are served all the time."""
    b = bed(8, latency=0.01)
    b.site.bans = lambda peer, path: True
    with Web(latency=0.01) as other:
        base = other.site.base.replace("127.0.0.1", "localhost")
        node = b.crawl(TWO_SITES, other=base, settings={"LEASE_PROXY_BACKOFF": "60,60"})
        until(lambda: len(other.site.hits) == 40, 30, "the pages of the other site")
        until(lambda: quiet_for(b, 2.0), 30, "the pause of the site")
        assert other.site.peers <= b.exits()
        node.terminate()
        assert node.wait(20) == 0
    assert 1 <= b.client.zcard(pool_keys().key("benched")) <= 4
    assert len(b.site.hits) <= 40
    assert b.left() == {"leased": 0, "free": 8, "resting": 0, "known": 8}


def quiet_for(b: Bed, seconds: float) -> bool:
    """Has the site seen nothing for so long?"""
    return time.monotonic() - b.site.hits[-1].started > seconds


@pytest.mark.each_server
def test_two_nodes_never_use_one_address_at_once(bed: Callable[..., Bed]) -> None:
    """Whatever one node has leased, no other sends through; all of it is shared out and used."""
    b = bed(3, latency=0.05)
    nodes = [b.crawl(name=f"n{number}", pages=60) for number in range(2)]
    b.shop.wait(nodes)
    assert b.site.paths() == sorted(f"/page/{number}" for number in range(60))
    assert max(hit.in_flight for hit in b.site.hits) == 1
    assert {hit.agent for hit in b.site.hits} == {"n0", "n1"}
    assert DIRECT not in b.site.peers


def test_settings_under_which_nothing_goes_out(bed: Callable[..., Bed]) -> None:
    """Where Scrapy would leave the proxies aside, the crawl refuses: one error, exit status 1, nothing fetched."""
    b = bed(1)
    for settings in ({"HTTPPROXY_ENABLED": "False"}, {"LEASE_PROXY_POOL": "resi"}):
        node = b.crawl(name=f"n{len(settings)}{next(iter(settings))}", settings=settings)
        assert node.wait(30) == 1
        (error,) = [line for line in node.log.splitlines() if "[scrapy_lease." in line and " ERROR: " in line]
        assert f"{next(iter(settings))} " in error
    assert b.site.hits == []
