"""What a request fails with that no scheduler gave, and that waited for something in vain: it cannot go back.

Scrapy logs a robots.txt that fails with a traceback, unless that is an `IgnoreRequest`, and crawls its site as one that
has none; for that file one line says so instead.
"""

from __future__ import annotations

import logging

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.exceptions import NoPermit, NoProxy

logger = logging.getLogger(__name__)


class RobotsWithoutProxy(NoProxy, IgnoreRequest):
    """A robots.txt got no proxy in time."""


class RobotsWithoutPermit(NoPermit, IgnoreRequest):
    """A robots.txt got no permit of its rate limits in time."""


def no_proxy(request: Request, reason: str) -> NoProxy:
    """Return what *request* fails with that got no proxy."""
    text = f"{request} is not fetched: {reason}"
    return RobotsWithoutProxy(_told(text)) if _is_robots(request) else NoProxy(text)


def no_permit(request: Request) -> NoPermit:
    """Return what *request* fails with that got no permit."""
    text = f"{request} is not fetched: no permit of its rate limits within LEASE_PROXY_WAIT"
    return RobotsWithoutPermit(_told(text)) if _is_robots(request) else NoPermit(text)


def _is_robots(request: Request) -> bool:
    return "dont_obey_robotstxt" in request.meta and urlparse_cached(request).path == "/robots.txt"


def _told(text: str) -> str:
    logger.warning("%s; its site is crawled as one that has none", text)
    return text
