"""Gateways with a place for an account, and settings of accounts: what cannot be is told before the first request."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.accounts.account import Account
from scrapy_lease.exceptions import SettingsError
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.source import resource_of
from scrapy_lease.settings import LeaseSettings

GATE = ["http://cust-{account}:hunter2@gate.example:7777"]
MINTED = ["http://cust-{session}:hunter2@gate.example:7777"]
MEMBERS = "https://shop.example/members/"


def settings_of(**values: Any) -> LeaseSettings:
    given = {"LEASE_REDIS_URL": "redis://h", "LEASE_ACCOUNTS": [{"id": "ann"}], "LEASE_PROXIES": GATE, **values}
    return LeaseSettings.from_mapping({name: value for name, value in given.items() if value is not None})


def error_of(**values: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(**values)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


def test_it_needs_accounts() -> None:
    """Without any, or with accounts switched off, nothing could stand in its place."""
    for values in ({"LEASE_ACCOUNTS": None}, {"LEASE_ACCOUNT_ENABLED": False}):
        assert "no accounts are leased; set LEASE_ACCOUNTS, or take {account} out" in error_of(**values)
    assert settings_of().pools["default"].is_owned
    assert settings_of(LEASE_ACCOUNT_ENABLED=False, LEASE_PROXY_ENABLED=False).pools == {}


POOLS = {"gate": {"proxies": GATE}}
DIRECT = {"LEASE_PROXIES": None, "LEASE_PROXY_POOLS": POOLS}


@pytest.mark.parametrize(
    ("routes", "values"),
    [
        ({MEMBERS: "gate", "*": False}, {}),
        ({MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_URLS": [MEMBERS]}),
        ({MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_URLS": [f"{MEMBERS}gold/"]}),
        ({MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_URLS": ["re:/gold/"]}),
        ({"re:/gold/": "gate", "*": False}, {"LEASE_ACCOUNT_URLS": [MEMBERS]}),
        ({MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_POOL": {f"{MEMBERS}gold/": "default", "*": False}}),
        ({"*": "gate"}, {"LEASE_ACCOUNT_URLS": [MEMBERS]}),
        ({"*": "gate", "media": "gate"}, {"LEASE_ACCOUNT_URLS": [MEMBERS, "media"]}),
        ({"*": False}, {"LEASE_ACCOUNT_POOL": False}),
    ],
)
def test_a_route_that_may_meet_an_account(routes: dict[str, Any], values: dict[str, Any]) -> None:
    """It is taken, also where only some of its requests go as accounts; what meta alone chooses nobody knows before."""
    assert settings_of(**DIRECT, LEASE_PROXY_POOL=routes, **values).pools["gate"].is_owned


@pytest.mark.parametrize(
    ("route", "routes", "values"),
    [
        ("*", {"*": "gate"}, {"LEASE_ACCOUNT_POOL": False}),
        ("media", {"media": "gate", "*": False}, {}),
        ("media", {"media": ["gate"], "*": False}, {"LEASE_ACCOUNT_POOL": {"media": False, "*": "default"}}),
        (MEMBERS, {MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_URLS": ["https://other.example/"]}),
        (MEMBERS, {MEMBERS: "gate", "*": False}, {"LEASE_ACCOUNT_POOL": {MEMBERS: False, "*": "default"}}),
        ("re:/x/", {"re:/x/": "gate", "*": False}, {"LEASE_ACCOUNT_POOL": False}),
    ],
)
def test_a_route_that_meets_none(route: str, routes: dict[str, Any], values: dict[str, Any]) -> None:
    """All that it leads there would fail, so it is refused, by its name."""
    error = error_of(**DIRECT, LEASE_PROXY_POOL=routes, **values)
    assert f"LEASE_PROXY_POOL: {route!r} leads to pool 'gate', whose gateways have an {{account}}" in error


@pytest.mark.parametrize("proxies", [MINTED, ["http://cust-{account}-{session}:p@gate.example:7777"]])
def test_ids_that_end_before_they_are_used(proxies: list[str]) -> None:
    """A lifetime that is all margin would let a pool mint for ever and use nothing."""
    assert "LEASE_PROXY_LIFETIME: ids of pool 'default' live 80% of 12 s at least" in error_of(
        LEASE_PROXIES=proxies, LEASE_PROXY_LIFETIME=12
    )
    assert settings_of(LEASE_PROXIES=proxies, LEASE_PROXY_LIFETIME=13).pools["default"].lifetime == 13


def test_kinds_of_gateways_are_not_mixed() -> None:
    """Who has a place for accounts serves nothing but these."""
    assert "has gateways with {account} beside others" in error_of(LEASE_PROXIES=[*GATE, *MINTED])


def test_a_check_is_not_made() -> None:
    """A setting that has nothing to act on is told, not silently left out."""
    (notice,) = [text for text in settings_of(LEASE_PROXY_CHECK="https://c.example/").notices if "CHECK" in text]
    assert notice.startswith("LEASE_PROXY_CHECK: pool 'default' makes its proxies for accounts")


def test_several_holders_are_told_of() -> None:
    """What an account goes through serves one session at a time, so that the others would stand still untold."""
    (notice,) = [text for text in settings_of(LEASE_ACCOUNT_HOLDERS=0).notices if "HOLDERS" in text]
    assert notice.startswith("LEASE_ACCOUNT_HOLDERS: several sessions may hold an account of pool 'default'")
    assert not [text for text in settings_of().notices if "HOLDERS" in text]
    plain = settings_of(LEASE_ACCOUNT_HOLDERS=0, LEASE_PROXIES=MINTED)
    assert not [text for text in plain.notices if "HOLDERS" in text]


@pytest.mark.parametrize("url", [*GATE, *MINTED, "http://u:{session:8}@h:1"])
def test_a_place_is_sent_to_nobody(url: str) -> None:
    """What a provider delivers, and the proxy of an account, are no gateways: nobody would fill the places."""
    with pytest.raises(ValueError, match="is a gateway, whose ids nobody would fill in") as caught:
        resource_of(Proxy(url), "ns", 0)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match="has a proxy that is a gateway") as caught:
        Account.of({"id": "ann", "proxy": url})
    assert "hunter2" not in str(caught.value)
