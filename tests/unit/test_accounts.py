"""What an account is, how it is read, stored and hidden, and what its cookies are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from scrapy import Request
from scrapy.http import Response

from scrapy_lease.accounts.account import Account
from scrapy_lease.accounts.cookies import Cookies
from scrapy_lease.accounts.culprits import reset_after
from scrapy_lease.accounts.listed import checked_accounts
from scrapy_lease.accounts.sealing import Sealer, WrongKey, account_of, checked_key, resource_of
from scrapy_lease.settings.account_values import checked_pages

WHOLE = {
    "id": "ann", "cookies": {"sid": "hunter2-cookie"}, "headers": {"Authorization": "hunter2-header"},
    "username": "ann", "password": "hunter2-password", "proxy": "http://u:hunter2-proxy@10.0.0.1:8000",
}  # fmt: skip
ANN = Account.of(WHOLE)
KEYS = [Fernet.generate_key().decode() for _ in range(2)]


def test_nothing_of_an_account_is_shown_but_its_id() -> None:
    """Neither its repr nor a text that it hides itself in."""
    assert repr(ANN) == "<Account ann>"
    text = " ".join((ANN.password, ANN.proxy, *ANN.headers.values(), "hunter2-cookie"))
    assert "hunter2" not in ANN.hide(text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ann", "is a str, not a dict"),
        ({"password": "hunter2"}, "has no id"),
        ({"id": "an n"}, "has no id"),
        ({"id": "ann", "pasword": "hunter2"}, "has 'pasword', which is no field"),
        ({"id": "ann", "cookies": "sid=hunter2"}, "has cookies that are neither"),
        ({"id": "ann", "cookies": {"s;d": "hunter2"}}, "has a cookie that cannot be one"),
        ({"id": "ann", "cookies": [{"name": "sid"}]}, "has a cookie without name and value"),
        (
            {"id": "ann", "cookies": [{"name": "a", "value": "hunter2", "httponly": True}]},
            "has a cookie with 'httponly'",
        ),
        ({"id": "ann", "headers": {"X-Key": "hunter2\r\nX: 1"}}, "has a header that cannot be one"),
        ({"id": "ann", "password": 7}, "has a password that is no text"),
        ({"id": "ann", "proxy": "http://u:hunter2@host"}, "has a proxy that has no port"),
    ],
)
def test_what_can_be_none_is_refused(given: Any, said: str) -> None:
    """The text says why, and shows no value."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Account.of(given)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_list_of_accounts(tmp_path: Path) -> None:
    """As such, as JSON, or a file of JSON lines with comments; faults are told with where they stand."""
    rows = [WHOLE, {"id": "ben"}]
    file = tmp_path / "accounts.jsonl"
    file.write_text("# mine\n\n" + "\n".join(map(json.dumps, rows)))
    for value in (rows, json.dumps(rows), str(file)):
        assert [account.id for account in checked_accounts(value)] == ["ann", "ben"]
    with pytest.raises(ValueError, match=r"entry 2 has an id that stands there twice; entry 3 is a int, not a dict"):
        checked_accounts([{"id": "a"}, {"id": "a"}, 3])
    file.write_text("{hunter2")
    with pytest.raises(ValueError, match=r"^line 1 is no JSON object$"):
        checked_accounts(str(file))
    for value, said in (([], "names no account"), ("/nowhere", "neither a JSON list nor a file"), (7, "is a int")):
        with pytest.raises(ValueError, match=said):
            checked_accounts(value)


def test_what_is_stored_is_sealed() -> None:
    """With a key nobody reads it; with the same one, or the old one among several, it is whole again."""
    old, new = KEYS
    body = resource_of(ANN, Sealer(old)).body
    assert b"hunter2" not in body
    assert b"ann" not in body
    for key in (old, f"{new},{old}", f"{old},{new}"):
        assert account_of(body, Sealer(key)) == ANN
    for key in (new, ""):
        with pytest.raises(WrongKey, match="LEASE_ACCOUNT_KEY"):
            account_of(body, Sealer(key))
    plain = resource_of(ANN, Sealer()).body
    assert account_of(plain, Sealer(old)) == account_of(plain, Sealer()) == ANN


def test_a_key_is_checked() -> None:
    """One that is none is refused, also among several, and the text tells how to make one."""
    assert checked_key(f"{KEYS[0]}, {KEYS[1]}") == ",".join(KEYS)
    for value in ("hunter2", f"{KEYS[0]},hunter2", ""):
        with pytest.raises(ValueError, match=r"make one with: python -c") as caught:
            checked_key(value)
        assert "hunter2" not in str(caught.value)


def sent(cookies: Cookies, url: str) -> bytes | None:
    request = Request(url)
    cookies.meet(request)
    cookies.jar.add_cookie_header(request)
    return request.headers.get("Cookie")


@pytest.mark.parametrize("host", ["shop.example", "127.0.0.1:8000", "localhost"])
def test_given_cookies_go_to_each_host_once(host: str) -> None:
    """Those without a domain go to whichever host is asked; what the site changes is not changed back."""
    cookies = Cookies(Account("a", {"sid": "1"}))
    assert sent(cookies, f"http://{host}/") == b"sid=1"
    for cookie in cookies.jar:
        cookie.value = "2"
    assert sent(cookies, f"http://{host}/next") == b"sid=2"
    assert sent(cookies, "http://other.example/") == b"sid=1"


def test_a_cookie_with_a_domain_stays_there() -> None:
    """So does one with a path, and one that is secure."""
    given = [
        {"name": "a", "value": "1", "domain": ".shop.example"},
        {"name": "b", "value": "2", "domain": "shop.example", "path": "/in"},
        {"name": "c", "value": "3", "domain": "shop.example", "secure": True},
    ]
    cookies = Cookies(Account("a", given))
    assert sent(cookies, "http://www.shop.example/") == b"a=1"
    assert sent(cookies, "http://shop.example/in") in (b"b=2; a=1", b"a=1; b=2")
    assert b"c=3" in (sent(cookies, "https://shop.example/") or b"")
    assert sent(cookies, "http://other.example/") is None


def test_cookies_are_kept_whole() -> None:
    """Cookies, login, its headers and the User-Agent; with other credentials none of it counts."""
    sealer = Sealer(KEYS[0])
    cookies = Cookies(ANN)
    sent(cookies, "http://shop.example/")
    cookies.is_logged_in, cookies.agent, cookies.headers = True, "browser", {"X-Token": "t"}
    stored = cookies.sealed(sealer)
    assert b"hunter2" not in stored
    again = Cookies.restored(ANN, stored, sealer)
    assert (again.is_logged_in, again.agent, again.headers) == (True, "browser", {"X-Token": "t"})
    assert not again.meet(Request("http://shop.example/"))
    assert sent(again, "http://shop.example/") == b"sid=hunter2-cookie"
    changed = Cookies.restored(Account.of({**WHOLE, "password": "other"}), stored, sealer)
    assert (changed.is_logged_in, changed.agent, len(changed.jar)) == (False, "", 0)


def test_a_login_that_is_over_leaves_what_was_given() -> None:
    """The cookies of the account's own are there again; those of the login are not."""
    cookies = Cookies(Account("a", [{"name": "device", "value": "1", "domain": "shop.example"}]))
    cookies.is_logged_in = True
    sent(cookies, "http://shop.example/")
    jar = cookies.jar
    cookies.start_anew()
    assert not cookies.is_logged_in
    assert cookies.jar is jar
    assert sent(cookies, "http://shop.example/") == b"device=1"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, 30),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "7.5"}, 7.5),
        ({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "30"}, 0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, 0),
        ({"X-RateLimit-Remaining": "0"}, 0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1600000000"}, 0),
        ({}, 0),
    ],
)
def test_reset_headers(headers: dict[str, str], seconds: float) -> None:
    """Seconds until more is allowed, where nothing is left; a moment that has passed is no wait."""
    assert reset_after(Response("http://shop.example/", headers=headers)) == seconds


def test_pages_that_have_an_account() -> None:
    """All, or those listed; what is fetched beside pages only where "media" is listed."""
    listed = checked_pages(["https://shop.example/in/", r"re:\.pdf$"])
    assert listed.has("https://shop.example/in/1", is_media=False)
    assert listed.has("https://else.example/a.pdf", is_media=False)
    assert not listed.has("https://shop.example/", is_media=False)
    assert not listed.has("https://shop.example/in/1", is_media=True)
    assert checked_pages("media, https://shop.example/in/").has("https://shop.example/in/1", is_media=True)
    for wrong, said in (
        (["shop.example"], "can match nothing"),
        ([], "is no list"),
        (["re:("], "no regular expression"),
    ):
        with pytest.raises(ValueError, match=said):
            checked_pages(wrong)
