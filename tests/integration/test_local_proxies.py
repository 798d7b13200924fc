"""The example project's local proxies, and what is counted of the addresses that the shop saw."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from example.addresses import Addresses
from example.hits import ABORTED, Hit
from tests.helpers.fleet import Fleet, until
from tests.helpers.local_proxies import LocalProxies

pytestmark = pytest.mark.one_server


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, "", products=9) as shop:
        yield shop


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[LocalProxies]:
    with LocalProxies(3, folder=tmp_path) as proxies:
        yield proxies


def test_each_has_an_address_of_its_own(shop: Fleet, proxies: LocalProxies) -> None:
    """The shop sees each proxy come from its exit address; the page is the shop's, and nothing tells of the proxy."""
    answers = [proxies.get(number, f"{shop.base}/product/{number}") for number in (1, 2, 3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert all(f'data-sku="SKU-00000{number}"' in answer.text for number, answer in enumerate(answers, 1))
    assert [hit.client for hit in shop.hits()] == proxies.exits
    assert len(set(proxies.exits)) == 3
    assert proxies.file is not None
    assert proxies.file.read_text().split() == proxies.urls


def test_a_form_is_forwarded(shop: Fleet, proxies: LocalProxies) -> None:
    """A request with a body, and the cookie and redirect of its answer, pass through."""
    with requests.Session() as browser:
        browser.proxies = {"http": proxies.urls[0]}
        answer = browser.post(f"{shop.base}/login", {"user": "ann", "password": "secret"}, timeout=10)
    assert '<h1 id="user">ann</h1>' in answer.text
    assert {hit.client for hit in shop.hits()} == {proxies.exits[0]}


def test_a_tunnel_is_opened(shop: Fleet, proxies: LocalProxies) -> None:
    """CONNECT joins both ends, from the proxy's address, until one of them leaves."""
    proxy, site = urlsplit(proxies.urls[1]), urlsplit(shop.base)
    with socket.create_connection((proxy.hostname, proxy.port), timeout=10) as tunnel, tunnel.makefile("rb") as answers:
        tunnel.sendall(f"CONNECT {site.netloc} HTTP/1.1\r\nHost: {site.netloc}\r\n\r\n".encode())
        assert answers.readline() == b"HTTP/1.1 200 Connection established\r\n"
        assert answers.readline() == b"\r\n"
        tunnel.sendall(f"GET /product/1 HTTP/1.1\r\nHost: {site.netloc}\r\nConnection: close\r\n\r\n".encode())
        assert b"SKU-000001" in answers.read()
    assert [hit.client for hit in shop.hits()] == [proxies.exits[1]]


@pytest.mark.parametrize(("mode", "status", "text"), [("ban", 403, "Forbidden"), ("page", 200, "Are you human?")])
def test_a_ban_is_answered_in_the_sites_place(
    shop: Fleet, proxies: LocalProxies, mode: str, status: int, text: str
) -> None:
    """A banned proxy answers 403, or 200 with a page of its own, and asks the shop nothing; ok lets it serve again."""
    proxies.tell(1, mode)
    answer = proxies.get(1, f"{shop.base}/product/1")
    assert (answer.status_code, text in answer.text) == (status, True)
    assert proxies.get(2, f"{shop.base}/product/1").status_code == 200
    proxies.tell(1, "ok")
    assert "SKU-000001" in proxies.get(1, f"{shop.base}/product/1").text
    assert proxies.asked(1) == {mode: 1, "ok": 1}
    assert len(shop.hits()) == 2


def test_one_that_hangs_never_answers(shop: Fleet, proxies: LocalProxies) -> None:
    """It takes the request, and holds it until the client leaves."""
    proxies.tell(1, "hang")
    with pytest.raises(requests.ReadTimeout):
        requests.get(f"{shop.base}/product/1", proxies={"http": proxies.urls[0]}, timeout=0.3)
    assert (proxies.asked(1), shop.hits()) == ({"hang": 1}, [])


def test_one_that_dies_cuts_what_it_does(shop: Fleet, proxies: LocalProxies) -> None:
    """Its requests end, at the shop too, and connections are refused until it is told to be ok, at the same port."""
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(proxies.get, 1, f"{shop.base}/slow/1?s=30")
        shop.wait_for_hits(1, "/slow/")
        proxies.tell(1, "die")
        assert isinstance(slow.exception(5), requests.ConnectionError)
    until(lambda: shop.hits()[0].status == ABORTED, 5, "the shop to notice")
    with pytest.raises(requests.ConnectionError):
        proxies.get(1, f"{shop.base}/product/1")
    proxies.tell(1, "ok")
    assert proxies.get(1, f"{shop.base}/product/1").status_code == 200


def test_a_client_that_leaves_is_noticed_by_the_site(shop: Fleet, proxies: LocalProxies) -> None:
    """No request outlives its client behind a proxy: what is in flight at the shop is what somebody waits for."""
    with pytest.raises(requests.ReadTimeout):
        requests.get(f"{shop.base}/slow/1?s=30", proxies={"http": proxies.urls[0]}, timeout=0.3)
    until(lambda: shop.hits()[0].status == ABORTED, 5, "the shop to notice")


def test_a_password_is_asked_for_and_kept_from_the_site(shop: Fleet) -> None:
    """Without the right user and password: 407. They are the proxy's affair: the shop gets no header of them."""
    with LocalProxies(1, "--user=ann", "--password=p@:w") as proxies:
        assert proxies.get(1, f"{shop.base}/product/1").status_code == 200
        bare = proxies.urls[0].replace("ann:p%40%3Aw@", "")
        assert bare != proxies.urls[0]
        for wrong in (bare, proxies.urls[0].replace("%40", "")):
            refused = requests.get(f"{shop.base}/product/1", proxies={"http": wrong}, timeout=10)
            assert refused.status_code == 407
        assert proxies.asked(1) == {"ok": 1, "refused": 2}
    assert len(shop.hits()) == 1


def test_what_is_no_request_is_refused(proxies: LocalProxies) -> None:
    """A page of the proxy itself, and what is no HTTP at all, get a 400; the next request is served."""
    proxy = urlsplit(proxies.urls[0])
    for text in ("GET / HTTP/1.1\r\n\r\n", "hello\r\n\r\n", "GET https://a.test/ HTTP/1.1\r\n\r\n"):
        with socket.create_connection((proxy.hostname, proxy.port), timeout=10) as client:
            client.sendall(text.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_site_that_is_away_is_a_502(proxies: LocalProxies) -> None:
    """A site that refuses the connection is told as such: the proxy itself is there."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert proxies.get(1, f"http://127.0.0.1:{nobody.getsockname()[1]}/").status_code == 502


def test_sigterm_ends_them() -> None:
    """They end at once and in order, whatever they do."""
    proxies = LocalProxies(2)
    proxies.tell(1, "hang")
    with ThreadPoolExecutor(1) as threads:
        threads.submit(proxies.get, 1, "http://127.0.0.1:9/")
        until(lambda: proxies.asked(1) == {"hang": 1}, 5, "the request")
        started = time.monotonic()
        assert proxies.stop() == 0
        assert time.monotonic() - started < 5


def test_the_log_shows_two_nodes_on_one_address(shop: Fleet, proxies: LocalProxies) -> None:
    """Two clients that share a proxy, and one that goes past it, are seen by the shop: the count is not blind."""
    slow = f"{shop.base}/slow/1?s=0.5"
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda node: proxies.get(1, slow, headers={"X-Node": node}), ("a", "b")))
    requests.get(slow, timeout=10)
    counted = Addresses.of(shop.hits(), proxies.exits)
    assert (counted.shared, counted.most, counted.direct) == ({proxies.exits[0]}, 2, 1)
    assert not counted.is_right


@pytest.mark.slow
def test_the_example_spider_gets_all_through_what_works(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """s05_proxies on two nodes, with proxies that are banned, dead, or hang: each product once, none past a proxy."""
    shop = fleet(products=40, latency=0.1)
    with LocalProxies(6, "--user=ann", "--password=s3cret", folder=tmp_path) as proxies:
        for number, mode in enumerate(("ban", "die", "hang"), 1):
            proxies.tell(number, mode)
        settings = {"LEASE_PROXIES": proxies.file, "DOWNLOAD_TIMEOUT": 3}
        nodes = [shop.crawl(name, "s05_proxies", settings=settings) for name in ("a", "b")]
        shop.wait(nodes)
        counted = Addresses.of(shop.hits(), proxies.exits)
        asked = proxies.asked(1)
    assert shop.verdict().is_right
    assert counted.is_right
    assert counted.used == set(proxies.exits[3:])
    assert 1 <= asked["ban"] <= 5
    assert not [node for node in nodes if "s3cret" in node.log]


def hit(client: str, node: str, started: float, ended: float | None) -> Hit:
    return Hit(0, "/", client, "shop", node, started, 0.0, ended, None if ended is None else 200)


EXITS = ("127.0.1.1", "127.0.1.2")


@pytest.mark.parametrize(
    ("hits", "shared", "most", "direct"),
    [
        pytest.param([hit("127.0.1.1", "a", 1, 2), hit("127.0.1.1", "b", 2, 3)], set(), 1, 0, id="one after the other"),
        pytest.param([hit("127.0.1.1", "a", 1, 3), hit("127.0.1.2", "b", 2, 3)], set(), 1, 0, id="each its own"),
        pytest.param([hit("127.0.1.1", "a", 1, 3), hit("127.0.1.1", "a", 2, 3)], set(), 2, 0, id="one node, two"),
        pytest.param([hit("127.0.1.1", "a", 1, 3), hit("127.0.1.1", "b", 2, 4)], {"127.0.1.1"}, 2, 0, id="shared"),
        pytest.param([hit("127.0.1.2", "a", 1, None), hit("127.0.1.2", "b", 9, 10)], {"127.0.1.2"}, 2, 0, id="endless"),
        pytest.param([hit("127.0.0.1", "a", 1, 3), hit("127.0.0.1", "b", 2, 3)], set(), 0, 2, id="direct"),
        pytest.param([], set(), 0, 0, id="nothing"),
    ],
)  # fmt: skip
def test_shared_addresses_are_counted(hits: list[Hit], shared: set[str], most: int, direct: int) -> None:
    """An address is shared while two nodes have requests in flight on it; whatever comes from elsewhere is direct."""
    counted = Addresses.of(hits, EXITS)
    assert (counted.shared, counted.most, counted.direct) == (shared, most, direct)
    assert counted.used == {hit.client for hit in hits} & set(EXITS)
    assert counted.is_right == (most <= 1 and not direct)
