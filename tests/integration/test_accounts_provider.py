"""Accounts that a provider delivers: what it does wrong costs a line of the log, and what is right counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scrapy_lease import Account
from tests.helpers.members import FORM, PASSWORD, MemberBed, account_keys
from tests.helpers.servers import Server
from tests.helpers.spiders import items_of

pytestmark = pytest.mark.one_server

ANSWERS, CALLS = Path("answers.json"), Path("calls.txt")
RAISE, NO_LIST = "raise", None


class Provider:
    """LEASE_ACCOUNT_PROVIDER: gives the answers of a file, one after the other, and none after them."""

    async def fetch(self, count: int) -> Any:
        calls = CALLS.read_text().splitlines() if CALLS.exists() else []
        CALLS.write_text("\n".join([*calls, str(count)]))
        answers = json.loads(ANSWERS.read_text())
        answer = answers[len(calls)] if len(calls) < len(answers) else []
        if answer == RAISE:
            raise ValueError(f"the key is {PASSWORD}")
        return [Account(**each) if len(calls) % 2 else each for each in answer] if answer else answer


def answers(b: MemberBed, *given: Any) -> dict[str, Any]:
    """Let the provider answer so; returns the settings of crawls."""
    (b.shop.folder / ANSWERS).write_text(json.dumps(given))
    return {**FORM, "LEASE_ACCOUNT_PROVIDER": "tests.integration.test_accounts_provider.Provider"}


def calls(b: MemberBed) -> int:
    """How often it was asked."""
    return len((b.shop.folder / CALLS).read_text().splitlines())


def crawl(b: MemberBed, name: str, settings: dict[str, Any], **arguments: Any) -> Any:
    """Run a crawl that has no list of accounts."""
    node = b.crawl(name, accounts=[], settings=settings, **arguments)
    b.shop.wait([node])
    return node


def test_what_is_wrong_with_some_is_told_and_the_others_are_used(club: Callable[..., MemberBed]) -> None:
    """Fewer than were asked for, some twice, some that are no accounts: a line for each kind, with no secret in it."""
    b = club(2)
    m0, m1 = b.accounts
    wrong = [{**m0, "id": "two words"}, {**m1, "pasword": PASSWORD}, {**m1, "headers": {"X": f"{PASSWORD}\n"}}, 7]
    node = crawl(b, "n0", answers(b, [m0, m0, *wrong, m1]), pages=10)
    assert len(items_of(b.shop)) == 10
    assert set(b.uses()) == {"m0", "m1"}
    assert calls(b) == 1
    assert node.stats["lease/account/refilled/default"] == 2
    for told in ("account 3 of those delivered has no id", "account 4 of those delivered has 'pasword'", "account 6"):
        assert told in node.log
    assert PASSWORD not in node.log


def test_a_provider_that_fails_is_asked_again(club: Callable[..., MemberBed]) -> None:
    """It raises, gives no list, and delivers then: requests wait for it, and what it raised is not shown."""
    b = club(1)
    node = crawl(b, "n0", answers(b, NO_LIST, RAISE, [], b.accounts), pages=3)
    assert len(items_of(b.shop)) == 3
    assert calls(b) == 4
    assert "fetch() returned a NoneType instead of a list of accounts" in node.log
    assert "it raised ValueError in test_accounts_provider.py:" in node.log
    assert PASSWORD not in node.log


def test_the_daily_refill_asks_it_for_more(club: Callable[..., MemberBed], make_server: Callable[..., Server]) -> None:
    """Once a local day, whichever crawl comes first: what it delivers then is used beside what was there."""

    today = datetime.now(UTC).replace(hour=0, minute=0, second=0)
    server = make_server(clock=True)

    def set_clock(hours: float) -> None:
        server.set_clock((today + timedelta(hours=hours)).timestamp() - time.time())

    set_clock(12)
    b = club(3, store=server, latency=0.05)
    m0, m1, m2 = b.accounts
    settings = answers(b, [m0], [m1, m0], [m2])
    crawl(b, "n0", settings, pages=4)
    assert (calls(b), b.uses()) == (1, {"m0": 4})
    # Shortly before 04:00 of the next day, shortly after it, and late that day.
    for name, hours, asked in (("n1", 27.99, 1), ("n2", 28.01, 2), ("n3", 47, 2)):
        set_clock(hours)
        crawl(b, name, {**settings, "LEASE_RUN": name}, pages=8)
        assert calls(b) == asked, name
    assert set(b.uses()) == {"m0", "m1"}
    assert b.client.hlen(account_keys().key("resources")) == 2
