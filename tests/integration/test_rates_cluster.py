"""Rate limits on a server in cluster mode: each script keeps to keys of one slot, or the server refuses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet, until
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl
from tests.integration.test_rates import PRODUCTS, limits, rates

pytestmark = pytest.mark.server


def test_limits_of_several_keys(fleet: Callable[..., Fleet], make_server: Callable[..., Server]) -> None:
    """Two dimensions, one with two limits: what is sent has permits of all, no more than allowed, and no call fails."""
    server = make_server(config={"cluster-enabled": "yes"})
    client = server.client()
    client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    shop = fleet(url=server.url, products=12)
    until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    node = crawl(shop, "n0", PRODUCTS, settings=limits(ip="100/minute", api=["50/second", "8/hour"]), number="12")
    shop.wait_for_hits(8)
    node.terminate()
    shop.wait([node])
    assert len(shop.hits("/product/")) == 8
    assert [rates(node, dimension)["granted"] for dimension in ("ip", "api")] == [8, 8]
    assert node.stats.get("lease/store/errors", 0) == 0
    assert {name for name, entry in server.info("errorstats").items() if "SLOT" in name.upper()} == set()
