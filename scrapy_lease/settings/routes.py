"""LEASE_PROXY_POOL: which requests go through which pool.

A route is a URL prefix, ``re:`` and a regular expression, ``media`` (whatever ``engine.download_async`` fetches) or
``*`` (what no other takes). The first one that takes a request counts. One that can take nothing is refused: who
wrote it meant some requests, and those would go another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from w3lib.url import safe_url_string

DEFAULT_POOL = "default"
MEDIA, REST, EXPRESSION = "media", "*", "re:"

#: Names of pools, the next after each ban; None: none, the request goes as Scrapy sends it.
Way = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Routes:
    """LEASE_PROXY_POOL, read.

    :param urls: prefix, or compiled expression, of a URL -> way, in order.
    :param media: the way of ``engine.download_async``; ``()``: as other requests.
    :param rest: the way of all else.
    """

    urls: tuple[tuple[str | re.Pattern[str], Way], ...]
    media: Way
    rest: Way

    @property
    def names(self) -> set[str]:
        """The pools that are named."""
        ways = (*(way for _, way in self.urls), self.media, self.rest)
        return {name for way in ways for name in way or ()}

    def way_of(self, url: str, *, is_media: bool) -> Way:
        """Return the pools for a request of *url*, None for none."""
        if is_media and self.media != ():
            return self.media
        for pattern, way in self.urls:
            if takes(pattern, url):
                return way
        return self.rest


def takes(pattern: str | re.Pattern[str], url: str) -> bool:
    """Does a route take *url*? A prefix that is a host alone takes that host and no other that begins like it."""
    if not isinstance(pattern, str):
        return pattern.search(url) is not None
    if not url.startswith(pattern):
        return False
    return "/" in pattern.partition("://")[2] or url[len(pattern) : len(pattern) + 1] in ("", "/", "?", "#", ":")


def checked_routes(value: Any) -> Routes:
    """Return LEASE_PROXY_POOL, as text or as Python has it, read; raise ValueError saying what is wrong with it."""
    if isinstance(value, Routes):
        return value
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is no JSON ({error})") from None
    if not isinstance(value, Mapping):
        return Routes((), (), checked_way(value))
    if not value:
        raise ValueError("is an empty mapping: nothing would be sent")
    urls: list[tuple[str | re.Pattern[str], Way]] = []
    for key, target in value.items():
        if key not in (MEDIA, REST):
            pattern = checked_pattern(key)
            _refuse_hidden(key, pattern, urls)
            urls.append((pattern, _way_for(key, target)))
    media = _way_for(MEDIA, value[MEDIA]) if MEDIA in value else ()
    rest = _way_for(REST, value[REST]) if REST in value else (DEFAULT_POOL,)
    return Routes(tuple(urls), media, rest)


def checked_way(value: Any) -> Way:
    """Return the pools that *value* names: a name, a list of names, or False; raise ValueError for anything else."""
    if value is False or value in ("False", "false"):
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{value!r} is neither the name of a pool, nor a list of names, nor False")
    return tuple(names)


def _way_for(key: str, target: Any) -> Way:
    try:
        return checked_way(target)
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from None


def checked_pattern(key: Any, others: str = f'"{MEDIA}" or "{REST}"') -> str | re.Pattern[str]:
    """Return the pattern of a route; raise ValueError for what can take no URL.

    :param others: what else it might have been, for the error.
    """
    if not isinstance(key, str):
        raise ValueError(f"{key!r} is no route")
    if key.startswith(EXPRESSION):
        try:
            return re.compile(key.removeprefix(EXPRESSION))
        except re.error as error:
            raise ValueError(f"{key!r} is no regular expression ({error})") from None
    if not is_prefix(key):
        raise ValueError(
            f"{key!r} can match nothing: a route is the begin of a URL (https://host/…), re: and a regular "
            f"expression, {others}"
        )
    # As Scrapy writes the URL of a request.
    return safe_url_string(key)


def is_prefix(key: str) -> bool:
    """Can a URL that is fetched over HTTP begin like this?"""
    try:
        parts = urlsplit(key)
        has_port = parts.port != 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and has_port and not re.search(r"[\s#*]", key)


def _refuse_hidden(key: str, pattern: str | re.Pattern[str], before: list[tuple[str | re.Pattern[str], Way]]) -> None:
    if isinstance(pattern, str) and (other := next(hiding(pattern, before), None)) is not None:
        raise ValueError(f"{key!r} can match nothing: {other!r} stands before it and takes all of it; put it first")
    if any(pattern == known for known, _ in before):
        raise ValueError(f"{key!r} stands there twice")


def hiding(prefix: str, before: list[tuple[str | re.Pattern[str], Way]]) -> Iterator[str]:
    """Yield the prefixes of *before* that take all that *prefix* takes."""
    yield from (other for other, _ in before if isinstance(other, str) and takes(other, prefix))
