"""Addresses, identities, lists, gateways, limits: what is read, what is refused, and that no secret is ever shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.identity import identity, shown
from scrapy_lease.providers.limits import checked_buy_limit, parse_limit
from scrapy_lease.providers.listed import Listed, checked_proxies
from scrapy_lease.providers.minted import Minted, parse_gateway

SECRET = "s3cr3t-W0rd"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("HTTPS://Proxy.Example:443/", "https://proxy.example:443"),
        ("socks5://u:p@h:1080", "socks5://u:p@h:1080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("u:p@h:1", "http://u:p@h:1"),
        ("h:1:u:p:q", "http://u:p%3Aq@h:1"),
        ("http://u:p@ss/w#rd@h:1", "http://u:p%40ss%2Fw%23rd@h:1"),
        ("http://u%40x:p%2Fq@h:1", "http://u%40x:p%2Fq@h:1"),
        ("http://token@h:1", "http://token:@h:1"),
        ("http://token:@h:1", "http://token:@h:1"),
        ("http://:p@h:1", "http://:p@h:1"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    """Each usual way to write a proxy is read, and written as a URL whose user name and password are encoded once."""
    assert parse_address(text).url == url
    assert parse_address(url).url == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (f"http://u:{SECRET}@h", "has no port"),
        (f"http://u:{SECRET}@h:port", "has a port that is no number"),
        (f"http://u:{SECRET}@h:0", "has a port that is no number"),
        (f"http://u:{SECRET}@h:65536", "has a port that is no number"),
        (f"http://u:{SECRET}@h:\u0661", "has a port that is no number"),
        (f"http://u:{SECRET}@:80", "has no host name"),
        (f"http://u:{SECRET}@h:80/path", "has a port that is no number"),
        (f"ftp://u:{SECRET}@h:80", "has another scheme than http, https, socks5"),
        (f"{SECRET}://h", "has another scheme than http, https, socks5"),
        (f"http://u:{SECRET} @h:80", "holds a space or control character"),
        (f"http://u:{SECRET}%0d%0aHost:x@h:80", "in user name or password"),
        (f"http://u:{SECRET}@[::1:80", "has no port"),
    ],
)
def test_what_is_no_address(text: str, reason: str) -> None:
    """The error says what is wrong and shows nothing of it."""
    with pytest.raises(ValueError, match=reason) as caught:
        parse_address(text)
    assert SECRET not in str(caught.value)


credentials = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Z"]), max_size=8)


@given(credentials, credentials)
def test_a_url_says_what_the_address_says(user: str, password: str) -> None:
    """Whatever user name and password hold, the URL gives them back unchanged."""
    at = Address("http", "h", 1, user, password)
    assert parse_address(at.url) == at


def test_identities() -> None:
    """Each user and password of an endpoint is a proxy, the scheme makes none; another namespace has other digests."""
    names = {identity(f"http://{who}h:1", "ns") for who in ("", "a@", "b@", "a:p@", "b:p@", "a:q@")}
    assert len(names) == 6
    assert identity("http://h:1", "ns") == "h:1"
    assert identity("http://a:p@h:1", "ns") == identity("socks5://a:p@H:1", "ns")
    first, second = (identity("http://a:p@h:1", space) for space in ("ns", "other"))
    assert first.startswith("h:1/a#")
    assert len(first) == len("h:1/a#") + 8
    assert first != second
    assert identity("http://a:p@h:1", "ns") == "h:1/a#" + first[-8:]


def test_shown_forms() -> None:
    """Logs show endpoint and four digits; three users of one endpoint look different, and no user is shown."""
    ids = [identity(f"http://{user}:p@h:1", "ns") for user in ("one", "two", "a/b#c")]
    forms = [shown(name) for name in ids]
    assert len(set(forms)) == 3
    assert all(form.startswith("h:1#") and len(form) == 8 for form in forms)
    assert shown("h:1") == "h:1"


@given(credentials, credentials)
def test_an_identity_can_be_one(user: str, password: str) -> None:
    """Ids hold no blank and no control character, whatever the user name does; the password is in none."""
    name = identity(Address("http", "h", 1, user, "=" + password + SECRET), "ns")
    assert name.isprintable()
    assert not any(letter.isspace() for letter in name)
    assert SECRET not in name
    assert shown(name).count("#") == 1


def test_reprs_show_no_secrets() -> None:
    """Nothing that holds a password shows it when it is printed."""
    url = f"http://user:{SECRET}@h:1"
    shown_ones = [parse_address(url), Proxy(url), checked_proxies([url]), Proxy(SECRET)]
    gateways = checked_proxies([f"http://u-{{session}}:{SECRET}@h:1"])
    shown_ones += [gateways, Minted(gateways.gateways, 600)]
    assert all(SECRET not in repr(thing) and "h:1" in repr(thing) for thing in shown_ones if thing != Proxy(SECRET))
    assert SECRET not in repr(Proxy(SECRET))


# Lists


@pytest.mark.parametrize(
    "value",
    [
        ["http://h:1", "u:p@h:2", "http://h:1"],
        ("http://h:1", "u:p@h:2"),
        "http://h:1, http://u:p@h:2",
        '["http://h:1", "u:p@h:2"]',
    ],
)
def test_lists(value: str | list[str]) -> None:
    """A list, or one written in a string, is read; what comes twice counts once."""
    assert [at.url for at in checked_proxies(value).proxies] == ["http://h:1", "http://u:p@h:2"]


def test_a_file(tmp_path: Path) -> None:
    """One proxy a line; comments, blank lines, a byte order mark and other line ends do not matter."""
    path = tmp_path / "proxies.txt"
    path.write_bytes(b"\xef\xbb\xbf# ours\r\n\r\nhttp://h:1  # the first\r\n  h:2:u:p#q\r\n")
    assert [at.url for at in checked_proxies(str(path)).proxies] == ["http://h:1", "http://u:p%23q@h:2"]


def test_a_bad_file(tmp_path: Path) -> None:
    """Each bad line is named by its number, without what stands there; five are enough."""
    path = tmp_path / "proxies.txt"
    path.write_text("\n".join(["# c", "h:1", f"http://u:{SECRET}@h", "h:2", *([f"ftp://u:{SECRET}@h:1"] * 6)]))
    with pytest.raises(ValueError, match=r"^line 3 has no port.*; line 5 has another scheme.*; and 2 more$") as caught:
        checked_proxies(str(path))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "names no proxy"),
        ("", "nor a file that can be read"),
        ("/nowhere/proxies.txt", "nor a file that can be read: No such file"),
        ("[", "JSON"),
        ({"a": 1}, "is a dict"),
        ([1], "entry 1 is a int"),
        (["http://h:1", "http://u-{session}:p@h:2"], "a pool of its own"),
    ],
)
def test_what_is_no_list(value: object, reason: str) -> None:
    """The error says what was given and what is allowed."""
    with pytest.raises(ValueError, match=reason):
        checked_proxies(value)  # type: ignore[arg-type]


# Gateways


def fetched(minted: Minted, count: int) -> list[Proxy]:
    """What one fetch gives."""
    return asyncio.run(minted.fetch(count))


def test_minted_ids() -> None:
    """Each fetch gives ids that were never there before, of the length asked for, with most of the lifetime."""
    listed = checked_proxies(["http://user-{session:8}-x:pw-{session}@gw:80"])
    assert isinstance(listed, Listed)
    proxies = fetched(Minted(listed.gateways, 600.0), 50)
    addresses = [proxy.address for proxy in proxies]
    sessions = {at.user.removeprefix("user-").removesuffix("-x") for at in addresses}
    assert len(sessions) == 50
    assert all(len(name) == 8 and at.password.startswith("pw-") for name, at in zip(sessions, addresses, strict=True))
    assert all(at.password.removeprefix("pw-").startswith(at.user[5:13]) for at in addresses)
    assert all(480 <= (proxy.lifetime or 0) <= 600 for proxy in proxies)


def test_a_minted_id_is_a_secret() -> None:
    """The identity of a minted proxy shows the place of the id, not the id, and tells the ids apart."""
    gateways = checked_proxies("http://user-{session:8}:pw@gw:80").gateways
    proxies = fetched(Minted(gateways, 600.0), 50)
    names = {identity(proxy.address, "ns", shown_user=proxy.shown_user) for proxy in proxies}
    assert len(names) == 50
    assert {name.rpartition("#")[0] for name in names} == {"gw:80/user-{session:8}"}


def test_gateways_take_turns() -> None:
    """Several gateways are minted for in turn."""
    gateways = checked_proxies(["http://u-{session}:p@one:1", "http://u-{session}:p@two:1"]).gateways
    assert [proxy.address.host for proxy in fetched(Minted(gateways, 600.0), 4)] == ["one", "two", "one", "two"]


@pytest.mark.parametrize(
    "place", ["{session:5}", "{session:65}", "{session:x}", "{sessions}", "{account:8}", "{session"]
)
def test_what_is_no_place(place: str) -> None:
    """Braces that are no place for an id, or for one of a length that cannot be, are an error without the password."""
    with pytest.raises(ValueError, match=r"^has (braces|a place)") as caught:
        parse_gateway(f"http://u-{place}:{SECRET}@h:1")
    assert SECRET not in str(caught.value)


# Limits


@pytest.mark.parametrize(
    ("text", "most", "window"),
    [
        ("400/minute", 400, 60_000),
        ("50 per second", 50, 1000),
        ("100/5 minutes", 100, 300_000),
        ("1 / 500ms", 1, 500),
        ("100000/day", 100_000, 86_400_000),
        (" 7 per 2 hours ", 7, 7_200_000),
    ],
)
def test_limits(text: str, most: int, window: int) -> None:
    """A number for each unit of time, or several, in each of the usual forms."""
    assert parse_limit(text)[:3] == (most, window, False)


@pytest.mark.parametrize("text", ["", "400", "0/minute", "1/0 minutes", "-1/minute", "1/week", "1.5/day", "9/999 days"])
def test_what_is_no_limit(text: str) -> None:
    """The error shows the text and the units there are."""
    with pytest.raises(ValueError, match="units are ms, second, minute, hour, day"):
        parse_limit(text)


@pytest.mark.parametrize(
    "value", [["400/minute", "9/day", "500/60 seconds"], "400/minute, 9/day", '["400/minute","9/day"]']
)
def test_buy_limits(value: str | list[str]) -> None:
    """Several limits in a list or a string; of two for one window the lower holds."""
    assert [limit.text for limit in checked_buy_limit(value)] == ["400/minute", "9/day"]


@pytest.mark.parametrize("value", [5, [5], "[", {"a": 1}])
def test_what_is_no_list_of_limits(value: object) -> None:
    """Anything else is an error; none at all is no limit."""
    with pytest.raises(ValueError, match="list"):
        checked_buy_limit(value)  # type: ignore[arg-type]
    assert checked_buy_limit(None) == checked_buy_limit([]) == ()
