"""What an entry of a feed says: the request that scrapy-redis makes of the same bytes."""

from __future__ import annotations

import json
from typing import Any

from scrapy import FormRequest, Request

from scrapy_lease.exceptions import LeaseError


class EntryError(LeaseError):
    """An entry of a feed of which no request can be made."""


def request_from_data(data: bytes, encoding: str) -> Request:
    """Return the request of an entry: a plain URL, or a JSON object.

    Of an object, ``url``, ``method`` (GET) and ``meta`` are those of the request; everything else is form data: the
    query of the URL, the body of a POST.

    :raises EntryError: it is neither.
    :raises ValueError: what it says makes no request; also TypeError and UnicodeDecodeError.
    """
    text = data.decode(encoding)
    try:
        said = json.loads(text)
    except ValueError:
        return FormRequest(text, dont_filter=True)
    if not isinstance(said, dict):
        raise EntryError("it is JSON, but no object with a url")
    return _of_object(said)


def _of_object(said: dict[str, Any]) -> Request:
    url, method, meta = said.pop("url", None), said.pop("method", "GET"), said.pop("meta", {})
    if not url:
        raise EntryError("it is a JSON object without a url")
    return FormRequest(url, method=method.upper(), meta=meta, formdata=said, dont_filter=True)
