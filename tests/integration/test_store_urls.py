"""Every way to name a store, by whole crawls."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_lease.store.embedded import status
from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server


def crawls(shop: Fleet) -> Node:
    node = shop.crawl("a")
    shop.wait(timeout=20)
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    return node


@pytest.mark.parametrize("way", ["tls", "unix"])
def test_a_server(fleet: Callable[..., Fleet], make_server: Callable[..., Server], way: str) -> None:
    """TLS with an authority of one's own, and a unix socket; the password in the URL is shown nowhere."""
    server = make_server("redis" if way == "tls" else "valkey", tls=way == "tls", unix=way == "unix",
                         config={"requirepass": "s3/cr:et@#"})  # fmt: skip
    shop = fleet(url=server.url, products=10)
    node = crawls(shop)
    server.kill()
    refused = shop.crawl("b")
    assert refused.wait(15) == 1
    assert "LEASE_REDIS_URL" in refused.log
    for log in (node.log, refused.log):
        assert "s3" not in log


def test_a_server_without_trust(fleet: Callable[..., Fleet], make_server: Callable[..., Server]) -> None:
    """A certificate that nobody vouches for refuses, with the reason."""
    server = make_server("redis", tls=True)
    shop = fleet(url=server.url.partition("?")[0], products=1)
    node = shop.crawl("a")
    assert node.wait(15) == 1
    assert "certificate verify failed" in node.log
    assert not shop.hits()


def test_a_server_that_asks_for_a_certificate(fleet: Callable[..., Fleet], make_server: Callable[..., Server]) -> None:
    """A certificate and key named in the URL are shown to a server that asks for them; without, the crawl refuses."""
    server = make_server("redis", tls=True)
    server.client().config_set("tls-auth-clients", "yes")
    shop = fleet(url=server.url, products=10)
    refused = shop.crawl("b")
    assert refused.wait(15) == 1
    assert "LEASE_REDIS_URL" in refused.log
    shop.nodes.remove(refused)
    own = "&".join(
        f"ssl_{part}file={server.directory / f'server.{ending}'}" for part, ending in (("cert", "crt"), ("key", "key"))
    )
    shop.url = f"{server.url}&{own}"
    crawls(shop)


@pytest.mark.parametrize(("option", "status"), [("", 1), ("&ssl_check_hostname=false", 0)])
def test_a_certificate_for_another_host(
    fleet: Callable[..., Fleet], make_server: Callable[..., Server], option: str, status: int
) -> None:
    """A server that its certificate does not name is refused, unless the URL says that it may be."""
    server = make_server("redis", tls=True)
    shop = fleet(url=server.url.replace("127.0.0.1", "localhost", 1) + option, products=1)
    node = shop.crawl("a")
    assert node.wait(20) == status, node.log
    assert ("ostname mismatch" in node.log) == bool(status)


def test_two_crawls_share_an_embedded_server(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """Started at once they get one server; one is killed, the other goes on with it, and the last stops it."""
    home = tmp_path / "lease"
    shop = fleet(url=f"embedded://{home}", products=300, latency=0.25)
    nodes = [shop.crawl("a"), shop.crawl("b")]
    until(lambda: {hit.node for hit in shop.hits("/product/")} == {"a", "b"}, 20, "both to crawl")
    kill = nodes[0].kill()
    shop.wait(nodes[1:], timeout=30)
    verdict = shop.verdict(kill)
    assert not verdict.lost
    assert verdict.twice == verdict.excused
    again = shop.crawl("c")
    shop.wait([again], timeout=20)
    assert again.stats["finish_reason"] in ("finished", "lease_all_done")
    assert shop.verdict(kill).twice == verdict.twice


def test_an_embedded_server_is_killed(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """The crawls that share it start it again, one of them, and go on: nothing lost, nothing fetched twice."""
    home = tmp_path / "lease"
    shop = fleet(url=f"embedded://{home}", products=300, latency=0.25)
    nodes = [shop.crawl("a"), shop.crawl("b")]
    until(lambda: {hit.node for hit in shop.hits("/product/")} == {"a", "b"}, 20, "both to crawl")
    before = status(home).pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(lambda: status(home).pid not in (None, before), 10, "another server")
    shop.wait(timeout=30)
    verdict = shop.verdict()
    assert not verdict.lost
    assert not verdict.twice
    for node in nodes:
        assert node.log.count(" went away ") <= 1
        assert " ERROR: " not in node.log
