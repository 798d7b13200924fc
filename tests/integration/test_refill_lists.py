"""Lists and gateways: what is always in a pool, whoever looks after it."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack

import pytest

from scrapy_lease.leases.pool import refill
from scrapy_lease.providers.api import checked_api
from scrapy_lease.providers.listed import checked_proxies
from scrapy_lease.providers.minted import Minted
from scrapy_lease.providers.supplies import supply_of
from tests.helpers.providers import ProviderServer
from tests.helpers.refill import POOL, Node, begin, free_in, run, source_of, until
from tests.helpers.servers import Server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns take less time than they do for users."""
    monkeypatch.setattr(refill, "TURN", 0.1)


def test_a_list_is_there_from_the_start(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a list is registered once over all sessions; what was given up comes back after a while."""
    monkeypatch.setattr(refill, "TOP_UP", (0.5, 1.0))
    listed = checked_proxies([f"http://u:s3cr3t@h:{port}" for port in range(1, 1201)])
    supply = supply_of(pool="default", namespace="test", listed=listed)

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        nodes = [await begin(stack, Node(server, stock=supply.stock)) for _ in range(2)]
        await until(lambda: sum(node.counts["refilled"] for node in nodes) == 1200)
        assert free_in(server) == 1200
        await nodes[0].drop(await nodes[0].take(3))
        assert free_in(server) == 1197
        await until(lambda: free_in(server) == 1200)

    with caplog.at_level(logging.INFO, refill.logger.name):
        run(play)
    assert caplog.text.count("has the 1200 proxies of its list") == 2
    assert "s3cr3t" not in caplog.text


def test_gateways_are_topped_up(server: Server) -> None:
    """As many ids as are wanted are there, whoever mints them; one that is given up is replaced at once."""
    gateways = checked_proxies("http://user-{session:8}:s3cr3t@gw:80").gateways

    async def play(stack: AsyncExitStack, provider: ProviderServer) -> None:
        nodes = [await begin(stack, Node(server, source_of(Minted(gateways, 600.0), target=30))) for _ in range(3)]
        await until(lambda: free_in(server) == 30)
        before = set(server.client().hkeys(POOL.key("resources")))
        leases = await nodes[1].take(4)
        await nodes[1].drop(leases)
        gone = time.monotonic()
        nodes[1].refiller.poke()
        await until(lambda: free_in(server) == 30)
        assert time.monotonic() - gone < 1
        after = set(server.client().hkeys(POOL.key("resources")))
        assert len(after) == 30
        assert len(after - before) == 4
        assert {name.decode().rpartition("#")[0] for name in after} == {"gw:80/user-{session:8}"}

    run(play)


def test_what_cannot_fill_one_pool() -> None:
    """Two sources of one pool are an error that names both."""
    listed = checked_proxies("http://u-{session}:p@gw:80")
    api = checked_api({"url": "http://h/"})
    with pytest.raises(ValueError, match="gateways in LEASE_PROXIES and LEASE_PROXY_API cannot fill one pool"):
        supply_of(pool="default", namespace="test", listed=listed, api=api)
