"""Sites that ask for a pause (429, Retry-After): who waits for how long, and what nobody else sees of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import pytest

from tests.helpers.fleet import Node
from tests.helpers.proxied import PAGES, Bed
from tests.helpers.spiders import crawl, items_of, paths_of

pytestmark = pytest.mark.one_server

FAR = {"LEASE_RATE_LIMITS": json.dumps({"api": "1000/second"})}


def start(b: Bed, name: str = "n0", **options: Any) -> Node:
    settings = {**FAR, **options.pop("settings", {})}
    return crawl(b.shop, name, PAGES, base=b.site.base, settings=settings, **options)


def limit(b: Bed, seconds: float, **headers: str) -> None:
    """Let the site answer with 429 from the third request on, for so long."""
    b.site.ban, b.site.ban_headers = (429, b""), headers
    b.site.bans = lambda peer, path: len(b.site.hits) > 2 and time.monotonic() < b.site.hits[2].started + seconds


def quiet(b: Bed) -> float:
    """The longest time, in s, between two hits."""
    times = [hit.started for hit in b.site.hits]
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_pause_lasts_as_long_as_the_site_says(bed: Callable[..., Bed], form: str) -> None:
    """Both forms: eight answers at once are one pause; all pages are there in the end, and no fault is counted."""
    b = bed()
    value = "3" if form == "seconds" else formatdate(time.time() + 25, usegmt=True)
    limit(b, 1.5, Retry_After=value)
    settings = {"LEASE_RATE_RETRY_AFTER_MAX": "3" if form == "date" else "60", "RETRY_TIMES": "0"}
    node = start(b, settings=settings, pages=20)
    b.shop.wait([node])
    assert 2.5 < quiet(b) < 6
    assert paths_of(items_of(b.shop)) == sorted(f"/page/{number}" for number in range(20))
    assert node.stats["lease/items/done"] == 20
    assert "retry/count" not in node.stats


@pytest.mark.parametrize("value", ["-5", "0", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_nonsense_is_a_pause_of_our_own(bed: Callable[..., Bed], value: str) -> None:
    """Neither a hot loop nor a doubling for each of eight answers: five seconds."""
    b = bed()
    limit(b, 1.5, Retry_After=value)
    b.shop.wait([start(b, pages=12)])
    assert 3.5 < quiet(b) < 9
    assert len(b.site.hits) <= 12 + 8


def test_other_hosts_of_the_address_pause_too(bed: Callable[..., Bed]) -> None:
    """One that was not asked itself hears of it within a second; one with another address goes on."""
    b = bed()
    limit(b, 600, Retry_After="30")
    same = {"LEASE_NODE_IP": "10.0.0.1", "LEASE_JOB": "same"}
    first = start(b, "asked", settings=same, pages=20)
    first.wait_for("joins run")
    while len(b.site.hits) < 4:
        time.sleep(0.05)
    time.sleep(1.5)
    before = len(b.site.hits)
    hearing = start(b, "hears", settings={**same, "LEASE_JOB": "hears"}, pages=20)
    other = start(b, "other", settings={"LEASE_NODE_IP": "10.0.0.2", "LEASE_JOB": "other"}, pages=20)
    hearing.wait_for("joins run")
    other.wait_for("joins run")
    time.sleep(3)
    agents = [hit.agent for hit in b.site.hits[before:]]
    assert "other" in agents
    assert agents.count("hears") <= 16
    assert "asked" not in agents
    for node in (first, hearing, other):
        node.terminate()
    for node in (first, hearing, other):
        assert node.wait(15) == 0
