"""What a crawl refuses to start with: one line that says everything, exit status 1, nothing fetched."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.helpers.fleet import ROOT, Fleet, Node
from tests.helpers.relay import Relay
from tests.helpers.servers import Server, reserve_port

pytestmark = pytest.mark.one_server

#: One page; what it says of leases comes from outside.
SPIDER = """
import scrapy
class Shopper(scrapy.Spider):
    name = "shopper"
    {attributes}
    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [base + "/product/1"]
    def parse(self, response):
        yield {{"url": response.url}}
"""

RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[([\w.-]+)\] (\w+): (.*)$", re.MULTILINE)


def spider(attributes: str = "") -> str:
    """The source of a spider with *attributes* in its class."""
    return SPIDER.format(attributes=attributes)


def refusal(shop: Fleet, node: Node, *, within: float = 20.0) -> str:
    """Wait for *node* to refuse and return its one error; checks what every refusal has in common."""
    assert node.wait(within) == 1, node.log
    error = only_error(node)
    assert not shop.hits(), "something was fetched"
    return error


def only_error(node: Node) -> str:
    """The one error record, whoever's: asyncio does not say it again with a traceback. Twisted does, on its reactor."""
    log = node.log.partition("[twisted] CRITICAL")[0]
    errors = [(name, text) for name, level, text in RECORD.findall(log) if level in ("ERROR", "CRITICAL")]
    assert len(errors) == 1, log
    assert errors[0][0].startswith("scrapy_lease")
    assert "Traceback" not in log
    return errors[0][1]


def refused(shop: Fleet, source: str = "", *, settings: Mapping[str, Any] = {}, url: str = "", **arguments: Any) -> str:
    """Run a spider that must refuse to start, and return its one error."""
    return refusal(shop, shop.run("refused", source or spider(), settings=settings, url=url, **arguments))


@pytest.fixture
def old_server() -> Iterator[str]:
    """The URL of a process that answers INFO like an old server."""
    command = [sys.executable, "-m", "tests.helpers.old_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        yield f"redis://127.0.0.1:{int(process.stdout.readline())}/0"
        process.kill()


WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown": (
        {"settings": {"LEASE_WINDOWS": "3"}},
        ("LEASE_WINDOWS", "'3'", "did you mean LEASE_WINDOW?"),
    ),
    "cmdline": (
        {"settings": {"LEASE_TTL": "soon"}},
        ("LEASE_TTL", "'soon'", "(-s)", "allowed:", '"auto"'),
    ),
    "argument": (
        {"lease_queue": "rabbit"},
        ("LEASE_QUEUE", "'rabbit'", "spider attribute lease_queue", '"redis"'),
    ),
    "custom": (
        {"source": spider("custom_settings = {'LEASE_START': 'all'}")},
        ("LEASE_START", "'all'", '"each"'),
    ),
    "attribute": (
        {"source": spider("lease_item_attempts = 'often'")},
        ("LEASE_ITEM_ATTEMPTS", "'often'", "spider attribute lease_item_attempts"),
    ),
    "reactor": (
        {"settings": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}},
        ("TWISTED_REACTOR", "SelectReactor", "asyncio"),
    ),
    "scheme": (
        {"url": "http://127.0.0.1/"},
        ("LEASE_REDIS_URL", "http://127.0.0.1/", "no URL of a store"),
    ),
    "port": (
        {"url": "redis://:hush@127.0.0.1:port/0"},
        ("LEASE_REDIS_URL", "redis://:***@127.0.0.1", "port"),
    ),
    "job": (
        {"settings": {"LEASE_JOB": "{country}"}},
        ("LEASE_JOB", "country", "which this spider lacks"),
    ),
}


def test_a_wrong_setting(fleet: Callable[..., Fleet]) -> None:
    """A wrong value or an unknown name stops the crawl, however it was given; the error says what is allowed."""
    shop = fleet(products=1)
    for name, (way, _) in WAYS.items():
        shop.run(name, **{"source": spider(), **way})
    for node, (_, words) in zip(shop.nodes, WAYS.values(), strict=True):
        error = refusal(shop, node)
        for word in words:
            assert word in error, f"{word} is not in {error}"
        assert "hush" not in node.log


def test_a_wrong_setting_from_the_environment(fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    """What settings read from the environment is text, and is parsed and checked like the rest."""
    monkeypatch.setenv("TIMEOUT", "never")
    source = "import os" + spider("custom_settings = {'LEASE_STORE_TIMEOUT': os.environ['TIMEOUT']}")
    error = refused(fleet(products=1), source)
    for word in ("LEASE_STORE_TIMEOUT", "'never'", "allowed:"):
        assert word in error


def test_nobody_listens(fleet: Callable[..., Fleet]) -> None:
    """A store that cannot be reached at the start refuses at once and says which URL it was."""
    port, holder = reserve_port()
    with holder:
        shop = fleet(products=1)
        began = time.monotonic()
        error = refused(shop, url=f"redis://user:hush@127.0.0.1:{port}/0")
    assert time.monotonic() - began < 8
    assert "LEASE_REDIS_URL" in error
    assert f"redis://user:***@127.0.0.1:{port}/0" in error
    assert "Connection refused" in error
    assert "hush" not in shop.nodes[0].log


def test_a_store_that_says_nothing(fleet: Callable[..., Fleet], relay: Relay) -> None:
    """A store that accepts and never answers refuses within LEASE_STORE_TIMEOUT."""
    relay.freeze()
    shop = fleet(products=1)
    began = time.monotonic()
    error = refused(shop, settings={"LEASE_STORE_TIMEOUT": "1"}, url=relay.url)
    assert time.monotonic() - began < 9
    assert "LEASE_REDIS_URL" in error
    assert "no answer within 1 s" in error
    assert "LEASE_STORE_TIMEOUT" in error


@pytest.mark.each_server
@pytest.mark.parametrize("given", ["", "default:hush@", ":hush@"])
def test_a_wrong_password(fleet: Callable[..., Fleet], make_server: Callable[..., Server], given: str) -> None:
    """A wrong or a missing password refuses, and no password is shown."""
    server = make_server(config={"requirepass": "s3cret"})
    shop = fleet(products=1)
    error = refused(shop, url=f"redis://{given}127.0.0.1:{server.port}/0")
    assert "LEASE_REDIS_URL" in error
    assert "password" in error
    assert "hush" not in shop.nodes[0].log


@pytest.mark.each_server
def test_a_server_that_evicts(fleet: Callable[..., Fleet], make_server: Callable[..., Server]) -> None:
    """A server that may throw leases away refuses, and the error says what to set."""
    server = make_server(config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    error = refused(fleet(products=1), url=server.url)
    for word in ("LEASE_REDIS_URL", "allkeys-lru", "set maxmemory-policy noeviction"):
        assert word in error


def test_an_old_server(fleet: Callable[..., Fleet], old_server: str) -> None:
    """A server older than 6.2 refuses. None is at hand: a process that only answers INFO says that it is one."""
    error = refused(fleet(products=1), url=old_server)
    for word in ("LEASE_REDIS_URL", old_server, "6.0.16", "use 6.2 or later"):
        assert word in error


def test_another_shard_count(fleet: Callable[..., Fleet], server: Server) -> None:
    """A namespace made with another number of shards refuses."""
    server.client().hset("{shelves:0}:clock", "shards", 64)
    error = refused(fleet(products=1), settings={"LEASE_NAMESPACE": "shelves"})
    for word in ("LEASE_NAMESPACE", "'shelves'", "64 shards"):
        assert word in error


def test_live_sessions_that_are_configured_otherwise(fleet: Callable[..., Fleet]) -> None:
    """Sessions of one job agree on what an item is: who differs is refused, the others go on."""
    shop = fleet(products=1)
    standing = shop.run("standing", spider(), settings={"LEASE_QUEUE_IDLE": "-1"})
    shop.wait_for_hits(1)
    keyed = spider("def lease_item_key(self, request): return request.url")
    other = shop.run("other", keyed)
    assert other.wait(15) == 1, other.log
    error = only_error(other)
    for word in ("'shopper'", "LEASE_ITEM_KEY=fingerprint", "LEASE_ITEM_KEY=spider", "LEASE_JOB"):
        assert word in error
    assert standing.is_running
    standing.terminate()
    assert standing.wait(10) == 0
    assert len(shop.hits()) == 1
