"""Leased accounts through leased proxies, and whose fault it is when something fails between them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.fleet import until
from tests.helpers.members import MemberBed
from tests.helpers.proxied import QUICK
from tests.helpers.spiders import items_of, records_of

pytestmark = pytest.mark.one_server


def peers(b: MemberBed) -> dict[str, set[str]]:
    """The addresses from which each member came."""
    found = defaultdict(set)
    for visit in b.site.visits:
        found[visit.user].add(visit.hit.peer)
    return dict(found)


def exits(b: MemberBed) -> set[str]:
    return {proxy.exit for proxy in b.web.proxies}


def test_an_account_keeps_its_address(club: Callable[..., MemberBed]) -> None:
    """One for each, its login too, on whichever node it is; and none goes directly."""
    b = club(3, proxies=5, latency=0.02)
    b.run("n0", pages=30)
    first = peers(b)
    assert set(first) == set(b.users)
    assert all(len(each) == 1 for each in first.values())
    assert len(set.union(*first.values())) == 3
    b.run("n1", pages=30, settings={"LEASE_RUN": "again"})
    assert peers(b) == first
    assert b.site.peers <= exits(b)
    logins = [hit.peer for hit in b.site.hits if hit.path == "/login"]
    assert set(logins) == set.union(*first.values())


@pytest.mark.parametrize("rule", ["rebind", "wait"])
def test_the_address_of_an_account_is_lost(club: Callable[..., MemberBed], rule: str) -> None:
    """rebind: it goes on from another and stays there; wait: it never comes from another, and its pages are others'."""
    b = club(2, proxies=4, latency=0.02)
    settings = {**QUICK, "LEASE_ACCOUNT_ON_PROXY_LOST": rule, "LEASE_PROXY_WAIT": "2", "LEASE_PROXY_BACKOFF": "60,60"}
    node = b.crawl(pages=60, settings=settings)
    until(lambda: len(peers(b)) == 2, 30, "both members")
    before = peers(b)
    (gone,) = before["m0"]
    b.web.die(next(proxy for proxy in b.web.proxies if proxy.exit == gone))
    if rule == "wait":
        until(lambda: len(items_of(b.shop)) >= 40, 60, "most pages")
        node.terminate()
        assert node.wait(30) == 0
        assert peers(b) == before
        return
    b.shop.wait([node])
    assert len(items_of(b.shop)) == 60
    assert len(peers(b)["m0"]) == 2
    assert peers(b)["m1"] == before["m1"]


def test_a_proxy_of_its_own(club: Callable[..., MemberBed]) -> None:
    """It is in no pool: all that the account does goes through it, and nothing else; its password is not shown."""
    b = club(2, proxies=2, latency=0.02)
    (own,) = b.web.add(("ann", "hunter2"))
    pool = json.dumps([proxy.url for proxy in b.web.proxies if proxy is not own])
    accounts = [{**b.accounts[0], "proxy": own.url}, b.accounts[1]]
    settings = {"LEASE_PROXIES": pool, "LEASE_ACCOUNTS": json.dumps(accounts)}
    node = b.run(pages=20, settings=settings)
    assert peers(b)["m0"] == {own.exit}
    assert own.exit not in peers(b)["m1"]
    assert {credentials for _, credentials in own.seen} == {"ann:hunter2"}
    assert "hunter2" not in node.log + str(items_of(b.shop))


def test_its_own_proxy_is_dead(club: Callable[..., MemberBed]) -> None:
    """The account rests, its pages go to others, and none goes directly; no password is in the log."""
    b = club(2)
    (own,) = b.web.add(("ann", "hunter2"))
    b.web.die(own)
    b.web.proxies.clear()
    accounts = [{**each, "proxy": own.url} if each["id"] == "m0" else each for each in b.accounts]
    node = b.run(pages=10, settings={"LEASE_ACCOUNTS": json.dumps(accounts)})
    assert set(peers(b)) == {"m1"}
    assert len(items_of(b.shop)) == 10
    assert "hunter2" not in node.log


@pytest.mark.parametrize("fault", ["status 500", "status 451", "proxy 407", "proxy dead", "proxy hangs"])
def test_a_fault_of_others_is_no_accounts(club: Callable[..., MemberBed], fault: str) -> None:
    """Site and proxy have faults of their own: no account is demoted or cools, and nobody logs in anew."""
    b = club(2, proxies=4, latency=0.01)
    what, _, how = fault.partition(" ")
    if what == "proxy":
        for proxy in b.web.proxies[:2]:
            if how == "dead":
                b.web.die(proxy)
            else:
                proxy.mode = "hang" if how == "hangs" else int(how)
        paths = " ".join(f"/members/{number}" for number in range(30))
    else:
        paths = " ".join(f"/members/status/{how}/{number}" for number in range(30))
        b.site.bans_of = lambda user, path: "/status/" in path
        b.site.status = int(how)
    settings = {**QUICK, "DOWNLOAD_TIMEOUT": "1", "LEASE_ITEM_ATTEMPTS": "1", "RETRY_TIMES": "0"}
    node = b.run(paths=paths, settings=settings)
    assert b.uses().total() >= 30
    assert not {name for name in node.stats if "account/demoted" in name or "account/cooled" in name}
    assert sorted(b.site.logins) == b.users


def test_three_addresses_refused_one_account(club: Callable[..., MemberBed]) -> None:
    """While others are served, it is the account: it goes to the cold pool, and its pages are fetched by others."""
    b = club(3, proxies=8, latency=0.02)
    b.site.bans_of = lambda user, path: user == "m0"
    settings: dict[str, Any] = {**QUICK, "LEASE_PROXY_BACKOFF": "1,1"}
    node = b.run(pages=60, settings=settings)
    assert len(items_of(b.shop)) == 60
    assert {item["user"] for item in items_of(b.shop)} == {"m1", "m2"}
    assert node.stats["lease/account/demoted/default"] == 1
    assert not records_of(b.client)


def test_three_addresses_refused_the_only_account_here(club: Callable[..., MemberBed]) -> None:
    """Where no other is refused it is the account: before half of the proxies rest and the site is paused."""
    b = club(1, proxies=6, latency=0.02)
    b.site.bans_of = lambda user, path: True
    node = b.run(pages=20, settings={"LEASE_ACCOUNT_WAIT": "1"})
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert node.stats["lease/account/demoted/default"] == 1
    assert node.stats["lease/proxy/banned/default"] == 2
    assert len(b.site.visits) <= 6


def test_an_address_that_serves_others_refused_one_account(club: Callable[..., MemberBed]) -> None:
    """Before and after it served another account there: it is the account, and neither address nor site pays for it."""
    b = club(3, proxies=1, latency=0.02)
    b.site.bans_of = lambda user, path: user == "m0"
    node = b.run(pages=40)
    assert len(items_of(b.shop)) == 40
    assert {item["user"] for item in items_of(b.shop)} == {"m1", "m2"}
    assert node.stats["lease/account/demoted/default"] == 1
    assert sum(visit.user == "m0" for visit in b.site.visits) <= 8
