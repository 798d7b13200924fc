"""Tells the shop which node asks, so that its log can be read node by node."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


def node_of(crawler: Crawler) -> str:
    """The name of this node: LEASE_NODE, else the host's name."""
    return str(crawler.settings.get("LEASE_NODE") or socket.gethostname())


class NodeHeader:
    """Sets the header ``X-Node`` of every request that is about to be sent."""

    def __init__(self, node: str) -> None:
        self.node = node

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(node_of(crawler))

    def process_request(self, request: Request) -> None:
        # Overwritten, never defaulted: a request taken over may carry the header of the node that died.
        request.headers["X-Node"] = self.node
