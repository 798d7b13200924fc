"""What unit tests of spiders and pipelines need: responses as a leased crawl gives them, without a crawl or a store.

::

    response = respond("https://shop.example/7", "<h1>Tea</h1>", item="sku-7", fence=3)
    items = list(MySpider().parse(response))
    with processing(response):
        MyPipeline().process_item(items[0])  # lease_of(item) tells item "sku-7" and fence 3
    assert is_completed(response)  # for spiders that await scrapy_lease.complete(response)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scrapy import Request
from scrapy.http import Headers, Response, TextResponse
from scrapy.responsetypes import responsetypes
from scrapy.utils.python import to_unicode
from scrapy.utils.request import fingerprint
from w3lib.encoding import http_content_type_encoding

from scrapy_lease.meta import ITEM, digest_of, write_record
from scrapy_lease.public import rehearsals, rehearsed

__all__ = ["is_completed", "processing", "respond"]

_Headers = Mapping[str, Any] | Iterable[tuple[str, Any]]


def respond(
    url: str,
    body: str | bytes | dict[str, Any] | list[Any] = "",
    *,
    item: str | None = None,
    fence: int = 1,
    proxy: str | None = None,
    account: str | None = None,
    session: str = "test",
    status: int = 200,
    headers: _Headers | None = None,
    request: Request | None = None,
) -> Response:
    """Return the response that a callback gets for a page fetched under a lease.

    :param url: of the response; of its request too, unless *request* is given.
    :param body: text, bytes, or a dict or list that becomes JSON.
    :param item: the item key as ``response.meta["lease"]`` tells it; by default that of a request without one.
    :param fence: of two pages of one item the later has the greater.
    :param proxy: in the form shown to people: ``10.0.0.1:8080#a1b2``.
    :param account: its id.
    :param session: the id of the crawl's session.
    :param headers: of the response. Without a Content-Type the body tells it: JSON, XML, HTML, plain text.
    :param request: what was sent, where its meta, cb_kwargs or method matter; it becomes ``response.request``.
    :returns: a HtmlResponse, JsonResponse, XmlResponse, TextResponse or, for what is no text, a Response.
    """
    request = Request(url) if request is None else request
    key = item or request.meta.get(ITEM) or digest_of(fingerprint(request).hex()).hex()
    write_record(request.meta, item=key, fence=fence, session=session, proxy=proxy, account=account)
    rehearsals[request] = False
    return _response(url, body, status, Headers(headers or {}), request)


@contextmanager
def processing(response: Response) -> Iterator[None]:
    """Let `scrapy_lease.lease_of` tell, inside of the ``with`` block, the lease of *response*.

    In a crawl Scrapy's own way from page to pipeline tells it; a test that calls a pipeline or a callback says it here.

    :raises ValueError: `respond` did not make the response.
    """
    token = rehearsed.set(_request_of(response))
    try:
        yield
    finally:
        rehearsed.reset(token)


def is_completed(response: Response) -> bool:
    """Tell whether ``scrapy_lease.complete`` was awaited for *response*, or for a copy of it.

    :raises ValueError: `respond` did not make the response.
    """
    return rehearsals[_request_of(response)]


def _request_of(response: Response) -> Request:
    request = response.request
    if request is None or request not in rehearsals:
        raise ValueError(f"{response} was not made by scrapy_lease.testing.respond")
    return request


def _response(url: str, body: Any, status: int, headers: Headers, request: Request) -> Response:
    if b"Content-Type" not in headers and (guessed := _guess(body)) is not None:
        headers[b"Content-Type"] = guessed
    if not isinstance(body, str | bytes):
        body = json.dumps(body, ensure_ascii=False)
    encoded: dict[str, Any] = {}
    if isinstance(body, str):
        encoding = http_content_type_encoding(to_unicode(headers[b"Content-Type"] or b"", "latin-1")) or "utf-8"
        body, encoded = body.encode(encoding), {"encoding": encoding}
    kind = responsetypes.from_args(headers=headers, url=url, body=body)
    if not issubclass(kind, TextResponse):
        encoded = {}
    return kind(url, status=status, headers=headers, body=body, request=request, **encoded)


def _guess(body: Any) -> bytes | None:
    """Return the Content-Type that a server would send with *body*; None for bytes, which Scrapy looks into."""
    if isinstance(body, bytes):
        return None
    if not isinstance(body, str) or _is_json(body):
        return b"application/json; charset=utf-8"
    start = body.lstrip()
    if start.startswith("<?xml"):
        return b"application/xml; charset=utf-8"
    return b"text/html; charset=utf-8" if start.startswith("<") else b"text/plain; charset=utf-8"


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False
