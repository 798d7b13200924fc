"""The ready-made provider: an HTTP address that answers with proxies, in JSON or as lines of text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout
from yarl import URL

from scrapy_lease.leases.pool.complaints import Complaints
from scrapy_lease.providers.address import Address, address, parse_address
from scrapy_lease.providers.api import Api
from scrapy_lease.providers.base import Batch, ProviderError, Proxy
from scrapy_lease.providers.fields import lookup
from scrapy_lease.providers.moments import end_of

logger = logging.getLogger(__name__)

#: Seconds for one call, and for connecting.
TIMEOUT = ClientTimeout(total=30.0, connect=10.0)
#: Bytes of an answer that are read.
LARGEST = 8 << 20
#: Seconds of a Retry-After that are obeyed.
LONGEST_WAIT = 900.0
#: Where providers say in words what is wrong.
_WORDS = ("message", "msg", "error", "errmsg", "error_message", "reason", "detail", "info")


class HttpProvider:
    """See the module's docstring."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._complaints = Complaints(logger, f"The proxy provider {api.shown}")

    def __repr__(self) -> str:
        return f"<HttpProvider {self._api.shown}>"

    async def fetch(self, count: int) -> Batch:
        """Ask once for *count* proxies, or for as many as may be asked for at once.

        :raises ProviderError: nothing came; what was bought all the same is said by its ``is_spent``.
        """
        api = self._api
        count = min(count, api.max_count or count)
        entries = self._entries(await self._get(api.url.replace("{count}", str(count))))
        proxies = []
        for number, entry in enumerate(entries, 1):
            try:
                proxies.append(self._proxy(entry))
            except ValueError as error:
                self._complaints.tell(str(error), f"entry {number} of its answer {error}; left out")
        return Batch(proxies, len(entries))

    async def _get(self, url: str) -> str:
        # What is encoded already must stay so: signed URLs are compared byte by byte.
        target = URL(url, encoded=url.isascii() and url.isprintable() and " " not in url)
        try:
            async with ClientSession(timeout=TIMEOUT) as session, session.get(target, headers=self._api.headers) as got:
                if got.status >= 400:
                    raise _refusal(got.status, got.headers.get("Retry-After", ""))
                body = bytearray()
                async for chunk in got.content.iter_any():
                    body += chunk
                    if len(body) > LARGEST:
                        raise ProviderError(f"its answer has more than {LARGEST >> 20} MiB", is_spent=True)
        except ClientConnectorError as error:
            raise ProviderError(f"{self._api.shown} cannot be reached: {error.strerror or 'no such host'}") from None
        except TimeoutError:
            raise ProviderError(f"{self._api.shown} gave no answer within {TIMEOUT.total:g} s", is_spent=True) from None
        except ClientError as error:
            # Its words may have the URL in them, with all that is secret there.
            text = f"the conversation with {self._api.shown} broke off ({type(error).__name__})"
            raise ProviderError(text, is_spent=True) from None
        return body.decode("utf-8-sig", "replace")

    def _entries(self, text: str) -> Sequence[Any]:
        if self._api.format == "text":
            return [line for line in map(str.strip, text.splitlines()) if line]
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            raise ProviderError(f"the answer of {self._api.shown} is no JSON", is_spent=True) from None
        self._check_ok(answer)
        try:
            entries = lookup(answer, self._api.items)
        except LookupError:
            entries = None
        if isinstance(entries, list):
            return entries
        if isinstance(entries, Mapping) and self._api.items:
            return [entries]
        where = f"at {self._api.items!r} " if self._api.items else ""
        raise ProviderError(
            f"the answer of {self._api.shown} has {where}no list of proxies{self._words_of(answer)}", kind="no list"
        )

    def _check_ok(self, answer: Any) -> None:
        if self._api.ok is None:
            return
        path, wanted = self._api.ok
        try:
            found = lookup(answer, path)
        except LookupError:
            found = None
        if found != wanted and str(found).lower() != str(wanted).lower():
            raise ProviderError(
                f"the answer of {self._api.shown} has at {path!r} {self._masked(str(found))!r} instead of {wanted!r}"
                f"{self._words_of(answer)}",
                kind=f"not ok: {found}"[:80],
            )

    def _proxy(self, entry: Any) -> Proxy:
        api = self._api
        at = self._address(entry)
        user, password = (field.text(entry) if field else "" for field in (api.user, api.password))
        if user or password:
            at = address(at.scheme, at.host, at.port, user, password)
        expires, lifetime = end_of(api.expires.read(entry) if api.expires else None, api.expires_unit, api.timezone)
        if expires is None and lifetime is None:
            lifetime = api.lifetime
        exit = api.exit.text(entry) if api.exit else ""
        return Proxy(at.url, exit, expires, api.shown, lifetime)

    def _address(self, entry: Any) -> Address:
        api = self._api
        if api.host is not None and api.port is not None:
            host = api.host.text(entry)
            is_bare = ":" in host and not host.startswith("[")
            return address("http", f"[{host}]" if is_bare else host, api.port.text(entry))
        if api.endpoint is not None:
            return parse_address(api.endpoint.text(entry))
        if not isinstance(entry, str):
            raise ValueError("is no text: LEASE_PROXY_API must name 'host' and 'port', or 'endpoint'")
        return parse_address(entry)

    def _words_of(self, answer: Any) -> str:
        """Return what the answer says for people, without what is secret of the question."""
        words = [answer.get(name) for name in _WORDS] if isinstance(answer, Mapping) else []
        text = next((word for word in words if isinstance(word, str) and word.strip()), "")
        return f": {self._masked(' '.join(text.split()))}" if text else ""

    def _masked(self, text: str) -> str:
        api, parts = self._api, urlsplit(self._api.url)
        secrets = [value for _, value in parse_qsl(parts.query)] + list(api.headers.values())
        secrets += [part for value in api.headers.values() for part in value.split()]
        secrets += [parts.username or "", parts.password or ""]
        secrets += [field.literal for field in (api.user, api.password) if field and field.literal]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) > 3:
                text = text.replace(secret, "***")
        return text[:120]


def _refusal(status: int, retry_after: str) -> ProviderError:
    wait = min(float(retry_after), LONGEST_WAIT) if retry_after.isdecimal() else 0.0
    return ProviderError(f"it answers with status {status}", wait=wait)
