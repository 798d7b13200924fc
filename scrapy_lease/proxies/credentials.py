"""Credentials on their way into download handlers that want them in the URL of the proxy.

Scrapy quotes them there for a path, so a slash in a user name or password stays one, and ends the host. The httpx
handler hands them on to httpcore, which tells at DEBUG, Scrapy's default, with which it signs in at a SOCKS proxy.
"""

from __future__ import annotations

import logging

from scrapy import Request
from scrapy.core.downloader.handlers import DownloadHandlerProtocol

_NAME = "_extract_proxy_url_with_creds"
_TELLTALES = ("httpcore2.socks", "httpcore.socks")


def mend(handler: DownloadHandlerProtocol) -> None:
    """Let *handler*, if it is one of these, quote slashes too, and log no password."""
    original = getattr(handler, _NAME, None)
    if original is None:
        return
    for name in _TELLTALES:
        logging.getLogger(name).addFilter(_is_no_trace)

    def extract(request: Request) -> str | None:
        url = original(request)
        return None if url is None else quoted(url)

    setattr(handler, _NAME, extract)


def quoted(url: str) -> str:
    """Return the URL of a proxy with no slash in its credentials."""
    scheme, _, rest = url.partition("://")
    credentials, at, endpoint = rest.rpartition("@")
    return f"{scheme}://{credentials.replace('/', '%2F')}{at}{endpoint}"


def _is_no_trace(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
