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
from tests.helpers.spiders import items_of

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
    b.run(pages=30, settings=settings_of(gateway, LEASE_PROXY_BACKOFF="60,60"))
    assert {item["user"] for item in items_of(b.shop)} == {"m1", "m2"}
    assert len(items_of(b.shop)) == 30
    assert b.site.peers <= {proxy.exit for proxy in gateway.proxies}


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
