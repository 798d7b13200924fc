"""Accounts beside Scrapy's HTTP cache: what is served from it costs none of them anything, and it holds no refusal."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.helpers.members import MemberBed
from tests.helpers.spiders import items_of, paths_of

pytestmark = pytest.mark.one_server

CACHE = {"HTTPCACHE_ENABLED": "True", "HTTPCACHE_DIR": "cache"}


def pages(*numbers: int) -> str:
    return " ".join(f"/members/{number}" for number in numbers)


def test_what_is_cached_costs_no_quota(club: Callable[..., MemberBed]) -> None:
    """A second run over the same pages sends nothing and spends nothing; a new page is fetched with what is left."""
    b = club(1)
    settings = {**CACHE, "LEASE_ACCOUNT_QUOTA": "5"}
    b.run("n0", paths=pages(1, 2, 3, 4), settings=settings)
    assert b.uses() == {"m0": 4}
    node = b.run("n1", paths=pages(1, 2, 3, 4, 5), settings={**settings, "LEASE_RUN": "again"})
    assert [visit.hit.path for visit in b.site.visits[4:]] == ["/members/5"]
    assert node.stats["httpcache/hit"] == 4
    assert len(items_of(b.shop)) == 9
    assert b.site.logins == ["m0"]


def test_no_refusal_is_cached(club: Callable[..., MemberBed]) -> None:
    """Neither what a member that is logged out sees, nor what one that is banned sees: a later run gets the page."""
    b = club(3)
    b.site.bans_of = lambda user, path: user == "m1"
    verdicts = {**CACHE, "LEASE_VERDICTS": json.dumps({"403": "ban"})}
    b.run("n0", paths=pages(*range(6)), settings=verdicts)
    assert b.uses()["m1"] > 0
    b.site.log_out()
    b.run("n1", paths=pages(*range(6, 12)), settings={**verdicts, "LEASE_RUN": "more"})
    before = len(b.site.visits)
    node = b.run("n2", paths=pages(*range(12)), settings={**verdicts, "LEASE_RUN": "again"})
    assert len(b.site.visits) == before
    assert node.stats["httpcache/hit"] == 12
    items = items_of(b.shop)
    assert {item["status"] for item in items} == {200}
    assert paths_of(items[12:]) == sorted(pages(*range(12)).split())
