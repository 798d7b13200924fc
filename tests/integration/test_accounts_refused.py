"""What is wrong with the settings of accounts is told before the first request, and shows no secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.helpers.members import MemberBed

pytestmark = pytest.mark.one_server

NEW, OLD = (Fernet.generate_key().decode() for _ in range(2))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LEASE_ACCOUNT_QUOTA": "-1"}, "LEASE_ACCOUNT_QUOTA = '-1'"),
        ({"LEASE_ACCOUNT_HOURS": "22"}, "LEASE_ACCOUNT_HOURS"),
        ({"LEASE_ACCOUNT_KEY": "hunter2"}, "LEASE_ACCOUNT_KEY = *** (-s) holds what is no key; make one with"),
        ({"LEASE_ACCOUNT_HANDLER": "json.dumps"}, "LEASE_ACCOUNT_HANDLER = 'json.dumps' (-s) is no class"),
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


def test_a_handler_that_raises(club: Callable[..., MemberBed]) -> None:
    """The account goes to the cold pool; the log tells what was raised where, and no secret."""
    b = club(2)
    handler = {"LEASE_ACCOUNT_HANDLER": "tests.integration.test_accounts_refused.Clumsy", "LEASE_ACCOUNT_WAIT": "0.5"}
    node = b.run(pages=2, settings={**handler, "LEASE_ACCOUNTS": json.dumps(b.accounts)})
    assert node.stats["finish_reason"] == "lease_no_accounts"
    assert "login of LEASE_ACCOUNT_HANDLER raised KeyError in test_accounts_refused.py:" in node.log
    assert "hunter2" not in node.log


class Clumsy:
    async def login(self, account: Any, fetch: Any) -> None:
        raise KeyError(account.password)
