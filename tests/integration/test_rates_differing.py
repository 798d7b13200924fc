"""Live sessions that limit the same otherwise, and what people see of what waits."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.helpers.fleet import Fleet, Node, until
from tests.helpers.servers import Server
from tests.helpers.spiders import crawl
from tests.integration.cli_tool import Tool
from tests.integration.test_rates import PRODUCTS


def start(shop: Fleet, name: str, limits: dict[str, Any], **settings: str) -> Node:
    """A crawl of its own job; it fetches all products, whatever others have fetched."""
    chosen = {"LEASE_RATE_LIMITS": json.dumps(limits), "LEASE_JOB": name, **settings}
    return crawl(shop, name, PRODUCTS, settings=chosen, number=str(shop.products))


def test_the_strictest_holds_whatever_its_window_and_rule(fleet: Callable[..., Fleet], server: Server) -> None:
    """50 a second by site here, 6 in 2 s by an expression there: both keep to both, until the stricter one has left."""
    shop = fleet(server.url, products=600)
    loose = start(shop, "loose", {"api": "50/second"})
    shop.wait_for_hits(20)
    strict = start(shop, "strict", {"api": {"re:/product/": "6/2 seconds"}, "ip": "1/hour"}, LEASE_NODE_IP="10.0.0.9")
    loose.wait_for("Another live session limits 'api' otherwise")
    strict.wait_for("Another live session limits 'api' otherwise")
    began = time.time() + 1
    time.sleep(7)
    both = [hit.epoch for hit in shop.hits("/product/") if hit.epoch > began]
    assert both
    assert max(Counter(int(moment // 2) for moment in both).values()) <= 7
    strict.terminate()
    strict.wait(20)
    before = len(shop.hits("/product/"))
    until(lambda: len(shop.hits("/product/")) > before + 50, 20, "the one that is alone again to go on")
    loose.terminate()
    loose.wait(20)
    assert "'ip' otherwise" not in loose.log


def test_what_waits_for_permits_is_shown(fleet: Callable[..., Fleet], server: Server) -> None:
    """Requests by dimension, and the seconds until some may go on; nothing once the crawl has ended."""
    shop = fleet(server.url, products=40)
    node = start(shop, "n0", {"api": "2/hour", "domain": "1000/second"})
    tool = Tool(server.url, "scrapybot")
    shop.wait_for_hits(2)

    def causes() -> dict[str, Any]:
        (job,) = tool("status", "--why", "--json").json["jobs"]
        return {each["cause"]: each for each in job["why"]}

    until(lambda: causes().get("rate/api", {"seconds": 0})["seconds"], what="the seconds, which the store tells")
    found = causes()["rate/api"]
    assert 20 <= found["requests"] <= 38
    assert 0 < found["seconds"] <= 3602
    assert "rate/domain" not in causes()
    assert "rate/api" in tool("status", "--why").stdout
    node.terminate()
    node.wait(20)
    assert "rate/api" not in causes()
