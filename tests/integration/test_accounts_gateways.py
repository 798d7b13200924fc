"""Gateways with a place for an account: each account comes by an identity of its own, wherever it is used."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import until
from tests.helpers.members import MemberBed
from tests.helpers.proxied import QUICK, pool_keys
from tests.helpers.proxies import Gateway
from tests.helpers.spiders import dead_letters, items_of

pytestmark = pytest.mark.one_server

SECRET = "hunter2-of-gate"
ONE = f"http://cust-{{account}}:{SECRET}@127.0.0.1:%d"
BOTH = f"http://cust-{{account}}-{{session:8}}:{SECRET}@127.0.0.1:%d"


def settings_of(gateway: Gateway, template: str = ONE, **more: Any) -> dict[str, Any]:
    """What sends all pages through the gateway."""
    return {**QUICK, "LEASE_PROXIES": json.dumps([template % gateway.port]), "LOG_LEVEL": "DEBUG", **more}


def users_of(b: MemberBed, gateway: Gateway) -> dict[str, list[str]]:
    """Member -> the user names with which the gateway let it through, in their order."""
    names = {proxy.exit: proxy.user for proxy in gateway.proxies}
    found = defaultdict(dict)
    for visit in b.site.visits:
        found[visit.user][names[visit.hit.peer]] = None
    return {user: list(each) for user, each in sorted(found.items())}


def shared(b: MemberBed) -> list[tuple[str, str]]:
    """Identities that two nodes had in flight at once."""
    hits = sorted(b.site.hits, key=lambda hit: hit.started)
    return [
        (one.peer, other.peer)
        for number, one in enumerate(hits)
        for other in hits[number + 1 :]
        if one.peer == other.peer
        and one.headers.get("x-node") != other.headers.get("x-node")
        and (not one.ended or other.started < one.ended)
    ]


def test_each_account_has_its_own(club: Callable[..., MemberBed]) -> None:
    """The gateway sees the id of the account in the user name, the login too; a later node comes as the same one."""
    b = club(3, latency=0.02)
    gateway = b.web.add_gateway()
    node = b.run("n0", pages=30, settings=settings_of(gateway))
    b.run("n1", pages=30, settings=settings_of(gateway, LEASE_RUN="again"))
    assert users_of(b, gateway) == {f"m{number}": [f"cust-m{number}"] for number in range(3)}
    assert len(items_of(b.shop)) == 60
    assert b.site.peers <= {proxy.exit for proxy in gateway.proxies}
    brought = {credentials for proxy in gateway.proxies for _, credentials in proxy.seen}
    assert brought == {f"cust-m{number}:{SECRET}" for number in range(3)}
    ids = sorted(name.decode() for name in b.client.hkeys(pool_keys().key("resources")))
    assert [id_.partition("#")[0] for id_ in ids] == [f"127.0.0.1:{gateway.port}/cust-m{number}" for number in range(3)]
    shown = {item["proxy"] for item in items_of(b.shop)}
    assert shown == {f"127.0.0.1:{gateway.port}#{id_.partition('#')[2][:4]}" for id_ in ids}
    assert node.stats["lease/proxy/leased/default"] == 3
    events = str(b.client.xrange(pool_keys().key("events")))
    assert SECRET not in node.log + events + (b.shop.folder / "items.jsonl").read_text()


def test_an_id_is_replaced(club: Callable[..., MemberBed]) -> None:
    """With an id minted besides, one that is refused is followed by another of the same account, which stays."""
    b = club(3, latency=0.02)
    gateway = b.web.add_gateway()
    first: list[str] = []

    def bans(user: str, path: str) -> bool:
        if user == "m0" and not first:
            first.append(b.site.visits[-1].hit.peer)
        return b.site.visits[-1].hit.peer in first

    b.site.bans_of = bans
    node = b.run(pages=60, settings=settings_of(gateway, BOTH))
    assert len(items_of(b.shop)) == 60
    found = users_of(b, gateway)
    assert [len(each) for each in found.values()] == [2, 1, 1]
    assert all(name.startswith(f"cust-{user}-") and len(name) == 16 for user, names in found.items() for name in names)
    minted = [name[8:] for names in found.values() for name in names]
    listed = str(b.client.hkeys(pool_keys().key("resources"))) + str(b.client.xrange(pool_keys().key("events")))
    assert not [id_ for id_ in (*minted, SECRET) if id_ in node.log + listed]


@pytest.mark.parametrize(("template", "rule"), [(ONE, "rebind"), (BOTH, "wait")])
def test_an_identity_is_banned(club: Callable[..., MemberBed], template: str, rule: str) -> None:
    """The account gets no other: its identity rests, its pages go to others, and all are fetched."""
    b = club(3, latency=0.02)
    gateway = b.web.add_gateway()
    b.site.bans_of = lambda user, path: user == "m0"
    settings = settings_of(gateway, template, LEASE_PROXY_BACKOFF="60,60", LEASE_ACCOUNT_ON_PROXY_LOST=rule)
    node = b.run(pages=40, settings=settings)
    assert {item["user"] for item in items_of(b.shop)} == {"m1", "m2"}
    assert len(items_of(b.shop)) == 40
    assert [len(each) for each in users_of(b, gateway).values()] == [1, 1, 1]
    assert b.uses()["m0"] <= 12
    assert node.stats["lease/proxy/banned/default"] == node.stats["lease/account/cooled/default"] == 1


def test_the_gateway_knows_no_such_user(club: Callable[..., MemberBed]) -> None:
    """A 407 to one account is its identity's: that rests for all sites, and nobody goes directly."""
    b = club(3, latency=0.02)
    gateway = b.web.add_gateway()
    gateway.unknown = {"cust-m0"}
    node = b.run(pages=30, settings=settings_of(gateway, LEASE_PROXY_BACKOFF="60,60"))
    assert {item["user"] for item in items_of(b.shop)} == {"m1", "m2"}
    assert len(items_of(b.shop)) == 30
    assert b.site.peers <= {proxy.exit for proxy in gateway.proxies}
    assert node.stats["elapsed_time_seconds"] < 15, "who had the account did not wait for its proxy in vain"


@pytest.mark.parametrize("template", [ONE, BOTH])
def test_a_node_is_killed(club: Callable[..., MemberBed], template: str) -> None:
    """The others come as its accounts by the same identities: none is at two nodes at once, and none changes."""
    b = club(4, latency=0.1)
    gateway = b.web.add_gateway()
    nodes = [b.crawl(f"n{number}", pages=160, settings=settings_of(gateway, template)) for number in range(2)]
    until(lambda: len({visit.node for visit in b.site.visits if visit.hit.ended}) == 2, 60, "both nodes")
    killed = nodes[0].kill()
    b.shop.wait(nodes[1:])
    assert {item["path"] for item in items_of(b.shop)} == {f"/members/{number}" for number in range(160)}
    assert not shared(b)
    assert [len(each) for each in users_of(b, gateway).values()] == [1, 1, 1, 1]
    first = {visit.user for visit in b.site.visits if visit.node == "n0"}
    after = {visit.user for visit in b.site.visits if visit.node == "n1" and visit.hit.started > killed.at + 1.5}
    assert first <= after


NOBODY = """
from tests.helpers.members import MemberSpider

class Nobody(MemberSpider):
    async def start(self):
        yield self.page("/members/1", priority=9)
        yield self.page("/page/2", meta={"lease_account": False})

    async def parse(self, response):
        yield {"path": response.url.removeprefix(self.base)}
        try:
            await self.crawler.engine.download_async(self.page("/page/image"))
        except Exception as error:
            yield {"path": "image", "error": f"{type(error).__name__}: {error}"}
"""


def test_what_goes_as_no_account(club: Callable[..., MemberBed]) -> None:
    """Media fail with NoProxy, a page is a dead letter as others that fail; the gateway sees neither."""
    b = club(1)
    gateway = b.web.add_gateway()
    b.run(source=NOBODY, settings=settings_of(gateway, LEASE_ITEM_ATTEMPTS="1"))
    assert [item["path"] for item in items_of(b.shop)] == ["/members/1", "image"]
    (error,) = [item["error"] for item in items_of(b.shop) if "error" in item]
    assert error.startswith("NoProxy: ")
    assert "it goes as no account, and the gateways of pool 'default' have an {account}" in error
    (letter,) = dead_letters(b.client)
    assert "it goes as no account" in letter["reason"] + letter["trace"]
    assert {hit.path for hit in b.site.hits} == {"/login", "/home", "/members/1"}
    assert {credentials for proxy in gateway.proxies for _, credentials in proxy.seen} == {f"cust-m0:{SECRET}"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LEASE_ACCOUNT_ENABLED": "False"}, "LEASE_PROXIES: the gateways of pool 'default' have an {account}"),
        ({"LEASE_ACCOUNT_POOL": "False"}, "LEASE_PROXY_POOL: '*' leads to pool 'default', whose gateways have an {acc"),
        ({"ROBOTSTXT_OBEY": "True"}, "LEASE_PROXY_POOL: robots.txt is asked for as no account (ROBOTSTXT_OBEY)"),
        ({"LEASE_ACCOUNTS": '[{"id": "a:b"}]'}, "LEASE_ACCOUNTS: the id of account 'a:b' has a colon"),
    ],
)
def test_what_can_never_be_stops_the_crawl(club: Callable[..., MemberBed], settings: dict[str, Any], said: str) -> None:
    """Exit status 1 before the first request, one error that says which setting, and no secret of the gateway."""
    b = club(1)
    gateway = b.web.add_gateway()
    node = b.crawl(accounts=[{"id": "m0"}], settings=settings_of(gateway, **settings))
    assert node.wait(30) == 1
    assert said in node.log
    assert SECRET not in node.log
    assert not gateway.proxies


def test_two_nodes_take_turns(club: Callable[..., MemberBed]) -> None:
    """One account goes from node to node: by the same identity on both, and never in flight on two at once."""
    b = club(1, latency=0.03)
    gateway = b.web.add_gateway()
    nodes = [b.crawl(f"n{number}", pages=120, settings=settings_of(gateway)) for number in range(2)]
    b.shop.wait(nodes)
    assert len(items_of(b.shop)) == 120
    assert users_of(b, gateway) == {"m0": ["cust-m0"]}
    assert len({visit.node for visit in b.site.visits}) == 2
    assert not shared(b)


def test_what_a_killed_node_had(club: Callable[..., MemberBed]) -> None:
    """What it had in flight keeps its identity from others for its time to live; then they come as the same ones."""
    b = club(2, latency=0.3)
    gateway = b.web.add_gateway()
    killed = b.crawl("n0", pages=30, settings=settings_of(gateway))
    until(lambda: sum(visit.user == "m0" for visit in b.site.visits) > 2, 30, "some pages")
    other = b.crawl("n1", pages=30, settings=settings_of(gateway))
    other.wait_for("Spider opened")
    at = killed.kill().at
    b.shop.wait([other])
    after = [visit.hit.started for visit in b.site.visits if visit.node == "n1"]
    assert 1.5 < min(after) - at < 9
    assert [len(each) for each in users_of(b, gateway).values()] == [1, 1]
    assert len({item["path"] for item in items_of(b.shop)}) == 30
