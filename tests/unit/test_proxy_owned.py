"""Identities of accounts at gateways: who has which, what is shown of them, and ids that cannot stand there."""

from __future__ import annotations

from collections import Counter
from urllib.parse import unquote

import pytest

from scrapy_lease.leases.pool.ties import STRICT
from scrapy_lease.providers.address import parse_address
from scrapy_lease.providers.listed import checked_proxies
from scrapy_lease.providers.owned import Owned, Owner
from scrapy_lease.providers.source import read_body

SECRET = "hunter2"
ONE = f"http://cust-{{account}}:{SECRET}@gw:80"
BOTH = f"http://cust-{{account}}-{{session:8}}:{SECRET}@gw:80"


def owned_of(*urls: str, namespace: str = "ns", encoding: str = "latin-1") -> Owned:
    return Owned(checked_proxies(list(urls)).gateways, namespace, 600.0, encoding)


def owner(account: str, *, keeps: bool = False) -> Owner:
    return Owner("default", account, keeps)


def url_of(owned: Owned, account: str, *, keeps: bool = False) -> str:
    return read_body(owned.make(owner(account, keeps=keeps)).body).url


@pytest.mark.parametrize("keeps", [False, True])
def test_every_node_makes_the_same(keeps: bool) -> None:
    """Of the account's id alone: one identity, without an end, tied for ever, whatever the rule for lost proxies."""
    nodes = [owned_of(ONE), owned_of(ONE)]
    made = {node.make(owner("ann", keeps=keeps)) for node in nodes}
    assert len(made) == 1
    (own,) = made
    assert (own.life, read_body(own.body).url) == (0, f"http://cust-ann:{SECRET}@gw:80")
    (key,) = {node.key_of(owner("ann", keeps=keeps)) for node in nodes}
    assert key.startswith(STRICT)
    assert own.id != owned_of(ONE).make(owner("ben")).id


def test_an_id_is_minted_besides() -> None:
    """Another one each time, which lives most of the lifetime; the key is that of the account, and is tied loosely."""
    owned = owned_of(BOTH)
    made = [owned.make(owner("ann")) for _ in range(20)]
    assert len({own.id for own in made}) == 20
    assert all(480_000 <= own.life <= 600_000 for own in made)
    users = {parse_address(read_body(own.body).url).user for own in made}
    assert {user[:9] + user[17:] for user in users} == {"cust-ann-"}
    assert not owned.key_of(owner("ann")).startswith(STRICT)


def test_an_id_is_minted_for_ever() -> None:
    """Where an account must never have another address, its id has no end."""
    owned = owned_of(BOTH)
    assert owned.make(owner("ann", keeps=True)).life == 0
    assert owned.key_of(owner("ann", keeps=True)).startswith(STRICT)


@pytest.mark.parametrize("account", ["a@b.example", "a/b", "a%2Fb", "a#b", "a?b", "a{session}", "ä", "a+b=c"])
def test_any_id_is_quoted(account: str) -> None:
    """The gateway gets the id as it is, whatever a URL makes of its characters; none of them is a place again."""
    url = url_of(owned_of(ONE), account)
    assert parse_address(url).user == f"cust-{account}"
    assert unquote(url.partition("//")[2].partition(":")[0]) == f"cust-{account}"
    assert (parse_address(url).host, parse_address(url).password) == ("gw", SECRET)


def test_an_id_in_the_password() -> None:
    """It may stand there too, with a colon in it; the accounts are told apart by what is shown."""
    owned = owned_of(f"http://cust:{SECRET}-{{account}}@gw:80")
    assert parse_address(url_of(owned, "a:b")).password == f"{SECRET}-a:b"
    assert {owned.make(owner(name)).id.partition("#")[0] for name in "xy"} == {"gw:80/cust~x", "gw:80/cust~y"}


def test_what_is_shown() -> None:
    """Whose identity it is, with a digest; no password, no minted id, and no secret of a gateway in a key or a repr."""
    for template, shown in ((ONE, "gw:80/cust-ann"), (BOTH, "gw:80/cust-ann-{session:8}")):
        owned = owned_of(template)
        own = owned.make(owner("ann"))
        name, _, digest = own.id.partition("#")
        assert (name, len(digest)) == (shown, 8)
        minted = parse_address(read_body(own.body).url).user[9:]
        for text in (own.id, owned.key_of(owner("ann")), repr(owned)):
            assert SECRET not in text
            assert not minted or minted not in text


def test_the_digest_is_the_namespaces() -> None:
    """As with other proxies: in another namespace, and with another password, it is another proxy and another key."""
    ones = [owned_of(ONE), owned_of(ONE, namespace="other"), owned_of(ONE.replace(SECRET, "x"))]
    assert len({one.make(owner("ann")).id for one in ones}) == 3
    assert len({one.key_of(owner("ann")) for one in ones}) == 3


def test_several_gateways() -> None:
    """Accounts are spread over them, the same on every node in whatever order; one more moves only its own share."""
    urls = [f"http://cust-{{account}}:{SECRET}@gw{number}:80" for number in range(3)]
    names = [f"m{number}" for number in range(300)]

    def hosts(*templates: str) -> list[str]:
        owned = owned_of(*templates)
        return [parse_address(url_of(owned, name)).host for name in names]

    before = hosts(*urls)
    assert min(Counter(before).values()) > 60
    assert hosts(*reversed(urls)) == before
    after = hosts(*urls, f"http://cust-{{account}}:{SECRET}@gw9:80")
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"gw9"}


@pytest.mark.parametrize(
    ("template", "account", "encoding", "reason"),
    [
        (ONE, "a:b", "latin-1", "has a colon"),
        (ONE, "анна", "latin-1", "has letters that HTTPPROXY_AUTH_ENCODING (latin-1)"),
        (ONE, "анна", "utf-8", ""),
        (ONE, "ann", "latin-1", ""),
        (f"http://cust:{SECRET}-{{account}}@gw:80", "a:b", "latin-1", ""),
    ],
)
def test_an_id_that_cannot_stand_there(template: str, account: str, encoding: str, reason: str) -> None:
    """It is told, not sent: the gateway would read another user name, or none."""
    found = owned_of(template, encoding=encoding).unfit(owner(account))
    assert bool(found) == bool(reason)
    assert found.startswith(reason)
