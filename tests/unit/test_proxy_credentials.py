"""What download handlers do with the credentials of a proxy that want them in its URL."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scrapy import Request
from scrapy.core.downloader.handlers._base_streaming import BaseStreamingDownloadHandler

from scrapy_lease.proxies.credentials import mend


class Handler:
    """A handler whose method of that name is Scrapy's."""

    _proxy_auth_encoding = "utf-8"
    _extract_proxy = staticmethod(BaseStreamingDownloadHandler._extract_proxy)
    _extract_proxy_url_with_creds = BaseStreamingDownloadHandler._extract_proxy_url_with_creds


def test_slashes_are_quoted() -> None:
    """A user name or a password may have them: the host of the proxy stays its host."""
    handler: Any = Handler()
    mend(handler)
    headers = {"Proxy-Authorization": b"Basic Yi9lbjpwYS9zcw=="}
    request = Request("http://site.example/", headers=headers, meta={"proxy": "http://proxy.example:8080"})
    assert handler._extract_proxy_url_with_creds(request) == "http://b%2Fen:pa%2Fss@proxy.example:8080"


@pytest.mark.parametrize("name", ["httpcore2.socks", "httpcore.socks"])
def test_the_trace_of_socks_is_not_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has the password. What is no trace is logged as before."""
    mend(Handler())  # type: ignore[arg-type]
    with caplog.at_level(logging.DEBUG, logger=name):
        logging.getLogger(name).debug("setup_socks5_connection.started auth=(b'anna', b'hunter2')")
        logging.getLogger(name).warning("closed")
    assert [record.message for record in caplog.records] == ["closed"]
