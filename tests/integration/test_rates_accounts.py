"""Rate limits of leased accounts: each has its own, and a pause that a site asks one for is that one's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.helpers.members import MemberBed
from tests.helpers.spiders import items_of

pytestmark = pytest.mark.one_server


def test_each_account_has_its_limit(club: Callable[..., MemberBed]) -> None:
    """Three accounts at 5 in 30 seconds and 15 pages: all go in one window, as none of them a sixth."""
    b = club(3)
    time.sleep(max(0.0, 30 - time.time() % 30 if time.time() % 30 > 15 else 0))
    node = b.run(pages=15, settings={"LEASE_RATE_LIMITS": json.dumps({"account": "5/30 seconds"})})
    assert b.uses() == dict.fromkeys(b.users, 5)
    hits = [visit.hit for visit in b.site.visits]
    assert hits[-1].started - hits[0].started < 14
    assert node.stats["lease/rate/granted/account"] == 15


@pytest.mark.parametrize("limits", [{}, {"LEASE_RATE_LIMITS": json.dumps({"account": "1000/second"})}])
def test_a_pause_is_the_accounts(club: Callable[..., MemberBed], limits: dict[str, str]) -> None:
    """The one that is asked to wait rests; the others go on at once, and the spider sees no 429."""
    b = club(3, latency=0.02)
    b.site.status = 429
    b.site.bans_of = lambda user, path: user == "m1"
    node = b.run(pages=40, settings=limits)
    assert {item["status"] for item in items_of(b.shop)} == {200}
    assert len(items_of(b.shop)) == 40
    assert b.uses()["m1"] == 1
    assert node.stats["lease/account/cooled/default"] == 1
    assert "lease/account/demoted/default" not in node.stats
