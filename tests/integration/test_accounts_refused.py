"""What is wrong with the settings of accounts is told before the first request, and shows no secret."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.helpers.members import MemberBed, account_keys
from tests.helpers.spiders import records_of

pytestmark = pytest.mark.one_server

HERE = "tests.integration.test_accounts_refused"
NEW, OLD = (Fernet.generate_key().decode() for _ in range(2))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LEASE_ACCOUNT_QUOTA": "-1"}, "LEASE_ACCOUNT_QUOTA = '-1'"),
        ({"LEASE_ACCOUNT_HOURS": "22"}, "LEASE_ACCOUNT_HOURS"),
        ({"LEASE_ACCOUNT_KEY": "hunter2"}, "LEASE_ACCOUNT_KEY = *** (-s) holds what is no key; make one with"),
        ({"LEASE_ACCOUNT_HANDLER": "json.dumps"}, "LEASE_ACCOUNT_HANDLER = 'json.dumps' (-s) is no class"),
        (
            {"LEASE_ACCOUNT_HANDLER": f"{HERE}.Plain"},
            "leads to Plain, whose login is not async",
        ),
        (
            {"LEASE_ACCOUNT_HANDLER": f"{HERE}.Waiting"},
            "leads to Waiting, whose apply is async",
        ),
        ({"LEASE_ACCOUNTS": '[{"id": "ann", "pasword": "hunter2"}]'}, "entry 1 has 'pasword', which is no field"),
        ({"LEASE_ACCOUNT_POOL": "gold"}, "LEASE_ACCOUNT_POOL names the pool 'gold', which does not exist"),
        ({"COOKIES_ENABLED": "False"}, "COOKIES_ENABLED = False: accounts are leased"),
        (
            {"LEASE_ACCOUNTS": '[{"id": "a", "proxy": "http://u:hunter2@h:1"}]', "HTTPPROXY_ENABLED": "False"},
            "HTTPPROXY_ENABLED = False",
        ),
    ],
)
def test_what_is_wrong_stops_the_crawl(club: Callable[..., MemberBed], settings: dict[str, Any], said: str) -> None:
    """Exit status 1, one error that names the setting and what is allowed, and nothing is fetched."""
    b = club(1)
    node = b.crawl(settings=settings)
    assert node.wait(30) == 1
    assert said in node.log
    assert "hunter2" not in node.log
    assert not b.site.hits


def test_another_key_is_refused(club: Callable[..., MemberBed]) -> None:
    """So is none, where the store's accounts are sealed; with both keys, the old one first or last, all goes on."""
    b = club(1)
    b.run(pages=2, settings={"LEASE_ACCOUNT_KEY": OLD})
    for number, (key, status) in enumerate(
        (({"LEASE_ACCOUNT_KEY": NEW}, 1), ({}, 1), ({"LEASE_ACCOUNT_KEY": f"{OLD},{NEW}"}, 0))
    ):
        node = b.crawl(f"n{number}", pages=2, settings={**key, "LEASE_RUN": f"{number}"})
        assert node.wait(30) == status, node.log
        assert ("LEASE_ACCOUNT_KEY" in node.log) == bool(status)
    b.run("n8", pages=2, settings={"LEASE_ACCOUNT_KEY": f"{NEW},{OLD}", "LEASE_RUN": "8"})
    assert b.site.logins == ["m0"]
    b.run("n9", pages=2, settings={"LEASE_ACCOUNT_KEY": NEW, "LEASE_RUN": "9"})


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("Clumsy", "login of LEASE_ACCOUNT_HANDLER raised KeyError in test_accounts_refused.py:"),
        ("Careless", "apply of LEASE_ACCOUNT_HANDLER raised KeyError in test_accounts_refused.py:"),
        ("Talkative", "login of LEASE_ACCOUNT_HANDLER returned a str that is no dict of headers"),
    ],
)
def test_a_handler_that_is_wrong(club: Callable[..., MemberBed], handler: str, said: str) -> None:
    """The account goes to the cold pool, its page to others; the log tells what was wrong where, and no secret."""
    b = club(2)
    named = {"LEASE_ACCOUNT_HANDLER": f"{HERE}.{handler}", "LEASE_ACCOUNT_WAIT": "0.3"}
    node = b.run(pages=2, settings=named)
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert node.stats["lease/account/demoted/default"] == 2
    for user in b.users:
        assert f"Account {user} goes to the cold pool: {said}" in node.log
    assert "hunter2" not in node.log
    assert not b.site.hits
    assert len(records_of(b.client)) == 2


def test_a_login_that_hangs_does_not_keep_the_crawl(club: Callable[..., MemberBed]) -> None:
    """SIGTERM ends it at once: what waits for the login goes back, and nothing is held against the account."""
    b = club(1)
    settings = {"LEASE_ACCOUNT_HANDLER": f"{HERE}.Sleepy"}
    node = b.crawl(pages=2, settings=settings)
    node.wait_for("account m0 sleeps")
    at = time.monotonic()
    node.terminate()
    assert node.wait(10) == 0
    assert time.monotonic() - at < 3
    assert len(records_of(b.client)) == 2
    assert b.client.zscore(account_keys().key("free"), "m0") is not None


class Clumsy:
    async def login(self, account: Any, fetch: Any) -> None:
        raise KeyError(account.password)


class Careless:
    def apply(self, request: Any, account: Any) -> None:
        request.headers["X-Key"] = account.password
        request.headers["X-Other"] = account.headers["X-Other"]


class Talkative:
    async def login(self, account: Any, fetch: Any) -> str:
        return account.password


class Sleepy:
    async def login(self, account: Any, fetch: Any) -> None:
        logging.info("account %s sleeps", account.id)
        await asyncio.sleep(60)


class Plain:
    def login(self, account: Any, fetch: Any) -> None:
        return None


class Waiting:
    async def apply(self, request: Any, account: Any) -> None:
        request.headers["X-Key"] = account.password
