"""Leased accounts in whole crawls: who asks for which page, logins, and what no one else may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.helpers.fleet import until
from tests.helpers.members import PASSWORD, MemberBed, account_keys
from tests.helpers.spiders import items_of, paths_of, records_of

pytestmark = pytest.mark.one_server

KEY = "q-0y1-bcGEEwJ8mEsgS8ap17Ms9rjJyImgvbTtLXy0Y="
MIXED = """
from tests.helpers.members import MemberSpider

class Mixed(MemberSpider):
    async def start(self):
        yield self.page("/members/1")
        yield self.page("/public/1")

    async def parse(self, response):
        if "/public/" in response.url:
            await self.crawler.engine.download_async(self.page("/members/image.png"))
        yield {"path": response.url.removeprefix(self.base), "account": response.meta["lease"]["account"]}
"""


def test_each_account_logs_in_once(club: Callable[..., MemberBed]) -> None:
    """Under its lease, before its first page; one request of each account at a time, with one User-Agent."""
    b = club(3, latency=0.03)
    node = b.run(pages=30)
    items = items_of(b.shop)
    assert paths_of(items) == sorted(f"/members/{number}" for number in range(30))
    assert sorted(b.site.logins) == b.users
    assert {item["user"] for item in items} == set(b.users)
    assert all(item["account"] == item["user"] for item in items)
    assert node.stats["lease/account/logins/default"] == 3
    assert node.stats["lease/account/leased/default"] == node.stats["lease/account/released/default"] == 3
    for user in b.users:
        hits = [visit.hit for visit in b.site.visits if visit.user == user]
        assert all(first.ended <= second.started for first, second in pairwise(hits))
        assert len({hit.agent for hit in hits}) == 1


def test_nothing_of_an_account_goes_further(club: Callable[..., MemberBed]) -> None:
    """Headers and cookiejar do not come to the spider; no secret is in log, stats or items, or in a sealed store."""
    b = club(2)
    accounts = [{**each, "headers": {"X-Token": "hunter2-token"}} for each in b.accounts]
    settings = {"LEASE_ACCOUNTS": json.dumps(accounts), "LEASE_ACCOUNT_KEY": KEY}
    node = b.run(pages=6, settings=settings)
    assert {hit.headers.get("x-token") for hit in b.site.hits if hit.path.startswith("/members/")} == {"hunter2-token"}
    for item in items_of(b.shop):
        assert not {"Cookie", "X-Token"} & set(item["carried"])
        assert item["jar"] is None
    for text in (node.log, b.told()):
        for secret in (PASSWORD, "hunter2", "sid="):
            assert secret not in text


def test_the_next_holder_need_not_log_in(club: Callable[..., MemberBed]) -> None:
    """Cookies and User-Agent are kept for whoever has the account next; with other credentials they are not used."""
    b = club(1)
    b.run("n0", pages=3, settings={"LEASE_ACCOUNT_KEY": KEY, "USER_AGENT": "first"})
    b.run("n1", paths="/members/more", settings={"LEASE_ACCOUNT_KEY": KEY, "USER_AGENT": "second"})
    assert b.site.logins == ["m0"]
    last = b.site.visits[-1].hit
    assert (last.path, last.agent) == ("/members/more", "first")
    assert "page=" in last.headers["cookie"]
    changed = [{**b.accounts[0], "headers": {"X-New": "1"}}]
    settings = {"LEASE_ACCOUNT_KEY": KEY, "LEASE_ACCOUNTS": json.dumps(changed)}
    b.run("n2", paths="/members/again", settings=settings)
    assert b.site.logins == ["m0", "m0"]


def test_who_is_logged_out_logs_in_again(club: Callable[..., MemberBed]) -> None:
    """Once, and the request goes out again as the same account: no page is lost, and the spider sees no login form."""
    b = club(2, latency=0.05)
    node = b.crawl(pages=30)
    until(lambda: len(b.site.visits) > 8, 30, "some pages")
    b.site.log_out()
    b.shop.wait([node])
    assert paths_of(items_of(b.shop)) == sorted(f"/members/{number}" for number in range(30))
    assert sorted(b.site.logins) == ["m0", "m0", "m1", "m1"]
    assert "lease/account/demoted/default" not in node.stats


def test_what_is_fetched_beside_pages_has_no_account(club: Callable[..., MemberBed]) -> None:
    """Neither robots.txt nor what engine.download_async fetches, unless "media" is listed; nor pages not listed."""
    b = club(1)
    urls = json.dumps([f"{b.site.base}/members/"])
    b.run(source=MIXED, settings={"ROBOTSTXT_OBEY": "True", "LEASE_ACCOUNT_URLS": urls})
    users = {hit.path: b.site.user_of(hit) for hit in b.site.hits if hit.path != "/login"}
    assert users == {"/robots.txt": "", "/home": "m0", "/members/1": "m0", "/public/1": "", "/members/image.png": ""}
    assert {item["path"]: item["account"] for item in items_of(b.shop)} == {"/members/1": "m0", "/public/1": None}
    urls = json.dumps([f"{b.site.base}/members/", "media"])
    b.run("n1", source=MIXED, settings={"LEASE_ACCOUNT_URLS": urls, "LEASE_RUN": "again"})
    assert b.site.user_of(b.site.hits[-1]) == "m0"


def test_an_item_keeps_its_account(club: Callable[..., MemberBed]) -> None:
    """A redirect goes as the account that was redirected."""
    b = club(4, latency=0.02)
    b.run(paths=" ".join(f"/members/to/members/{number}" for number in range(20)))
    first = {visit.hit.path.rpartition("/")[2]: visit.user for visit in b.site.visits if "/to/" in visit.hit.path}
    second = {visit.hit.path.rpartition("/")[2]: visit.user for visit in b.site.visits if "/to/" not in visit.hit.path}
    assert len(first) == 20
    assert first == second
    assert len(set(first.values())) > 1


def test_a_login_that_fails(club: Callable[..., MemberBed]) -> None:
    """The account goes to the cold pool, and its request to another; the warning says why and shows no password."""
    b = club(3)
    b.site.refused = {"m1"}
    node = b.run(pages=12)
    assert len(items_of(b.shop)) == 12
    assert set(b.uses()) == {"m0", "m2"}
    assert "Account m1 goes to the cold pool: *** is wrong" in node.log
    assert PASSWORD not in node.log


def test_all_logins_fail(club: Callable[..., MemberBed]) -> None:
    """The crawl closes with lease_no_accounts and exit status 0; its items are in the backlog, nothing counted."""
    b = club(2)
    b.site.refused = set(b.users)
    node = b.run(pages=4, settings={"LEASE_ACCOUNT_WAIT": "0.5"})
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert not b.site.visits
    assert len(records_of(b.client)) == 4


def test_a_ban_is_the_accounts_where_no_proxy_is_used(club: Callable[..., MemberBed]) -> None:
    """Its pages go out again as others; after the second it is in the cold pool, and the spider sees no refusal."""
    b = club(3, latency=0.02)
    b.site.bans_of = lambda user, path: user == "m1"
    node = b.run(pages=30, settings={"LEASE_VERDICTS": json.dumps({"403": "ban"})})
    assert {item["status"] for item in items_of(b.shop)} == {200}
    assert len(items_of(b.shop)) == 30
    assert b.uses()["m1"] == 2
    assert node.stats["lease/account/demoted/default"] == 1


def test_a_page_that_is_refused_to_all(club: Callable[..., MemberBed]) -> None:
    """Three accounts that the site serves otherwise are refused it: the page is rejected, and they go on."""
    b = club(3, latency=0.02)
    b.site.bans_of = lambda user, path: path == "/members/7"
    node = b.run(pages=20, settings={"LEASE_VERDICTS": json.dumps({"403": "ban"})})
    assert len(items_of(b.shop)) == 19
    assert node.stats["lease/items/rejected"] == 1
    assert "lease/account/demoted/default" not in node.stats


@pytest.mark.parametrize("settings", [{}, {"LEASE_QUEUE": "local"}], ids=["redis", "local"])
def test_a_quota_is_exact(club: Callable[..., MemberBed], settings: dict[str, Any]) -> None:
    """Three pages each, logins and redirects to the form aside; then the crawl closes, and the rest is left."""
    b = club(2)
    chosen = {"LEASE_ACCOUNT_QUOTA": "3", "LEASE_ACCOUNT_WAIT": "0.5", **settings}
    node = b.run(pages=12, settings=chosen)
    assert b.uses() == {"m0": 3, "m1": 3}
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert b.client.hlen(account_keys().key("leases")) == 0


def test_accounts_that_need_no_login(club: Callable[..., MemberBed]) -> None:
    """Their cookies, or their headers, are enough."""
    b = club(2)
    keys = [{"id": "key", "headers": {"X-Key": "m9"}}]
    b.run(pages=10, accounts=[*b.with_cookies(), *keys])
    assert set(b.uses()) == {"m0", "m1", "m9"}
    assert not b.site.logins


def test_a_key_that_all_may_have(club: Callable[..., MemberBed]) -> None:
    """LEASE_ACCOUNT_HOLDERS = 0: two nodes use one key at once, and its quota holds over both."""
    b = club(0, latency=0.05)
    settings = {
        "LEASE_ACCOUNT_HOLDERS": "0", "LEASE_ACCOUNT_CONCURRENCY": "4", "LEASE_ACCOUNT_QUOTA": "40",
        "LEASE_ACCOUNT_WAIT": "1",
    }  # fmt: skip
    keys = [{"id": "key", "headers": {"X-Key": "m9"}}]
    nodes = [b.crawl(f"n{number}", pages=60, accounts=keys, settings=settings) for number in range(2)]
    b.shop.wait(nodes)
    assert {visit.node for visit in b.site.visits} == {"n0", "n1"}
    assert 30 <= len(b.site.visits) <= 40
    assert {node.stats["finish_reason"] for node in nodes} <= {"lease_no_accounts", "finished"}


def test_a_cookie_that_never_ends(club: Callable[..., MemberBed]) -> None:
    """Whatever end a site gives a cookie, it is kept: the next holder needs no login, and no account is left leased."""
    b = club(2)
    reply = b.site.reply
    end = b"; Path=/; Max-Age=99999999999999999999\r\n"
    b.site.reply = lambda hit, message: reply(hit, message).replace(b"; Path=/\r\n", end)
    for name in ("n0", "n1"):
        node = b.run(name, pages=10, settings={"LEASE_RUN": name})
        assert "Traceback" not in node.log
        assert not b.client.hlen(account_keys().key("leases"))
    assert len(items_of(b.shop)) == 20
    assert sorted(b.site.logins) == b.users
