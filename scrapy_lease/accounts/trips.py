"""What is known of one request that goes with leased accounts, and what it must not carry further."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.http import Headers

from scrapy_lease.accounts.profile import Profile
from scrapy_lease.leases.pool.options import Judgement
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.policy import Verdict
from scrapy_lease.pools import trip
from scrapy_lease.proxies.trips import strip

_JAR = "cookiejar"
_NONE: Any = object()


class Trip(trip.Trip):
    """A request's uses of leased accounts.

    ``profile``: who it goes as; ``generation``: of the login at which it began; ``verdict``: on its answer;
    ``judgement``: with which its use ends when the answer has passed the cookies; ``sent_at``: clock time (s), or 0;
    ``refusals``: accounts that were refused this URL -> did its site serve them before?
    """

    __slots__ = ("_headers", "_jar", "generation", "judgement", "profile", "refusals", "sent_at", "verdict")

    def __init__(self) -> None:
        super().__init__()
        self.profile: Profile | None = None
        self.generation = 0
        self.verdict: Verdict | None = None
        self.judgement: Judgement | None = None
        self.sent_at = 0.0
        self.refusals: dict[str, bool] = {}
        #: Headers that the account changed -> what was there before; None before it did.
        self._headers: dict[bytes, list[bytes] | None] | None = None
        self._jar: Any = _NONE

    @property
    def is_bound(self) -> bool:
        """Does it go through a proxy of the account's own?"""
        return self.profile is not None and bool(self.profile.account.proxy)

    def begin(self, request: Request, use: Use, pool: str) -> None:
        super().begin(request, use, pool)
        self.verdict = self.judgement = None
        self.sent_at = 0.0

    def dress(self, request: Request, profile: Profile) -> None:
        """Let *request* go as *profile*."""
        self._headers, self._jar = dress(request, profile)
        self.profile, self.generation = profile, profile.generation

    def finish(self, request: Request) -> Use | None:
        use = super().finish(request)
        profile, self.profile = self.profile, None
        if profile is not None:
            assert self._headers is not None
            _undress(request, self._headers, self._jar)
            if profile.account.proxy:
                strip(request)
        return use


def dress(request: Request, profile: Profile) -> tuple[dict[bytes, list[bytes] | None], Any]:
    """Let *request* go as *profile*; return the headers that were there before, and the cookiejar.

    What the handler raises passes through, and leaves the request as it was.
    """
    headers, jar = request.headers, request.meta.get(_JAR, _NONE)
    before = {name: [*values] for name, values in dict.items(headers)}
    try:
        profile.mark(request)
    except BaseException:
        request.headers = Headers(before, encoding=request.encoding)
        raise
    request.meta[_JAR] = profile.key
    changed = {name: before.get(name) for name, values in dict.items(headers) if before.get(name) != values}
    # Scrapy's CookiesMiddleware sets that one.
    changed[b"Cookie"] = before.get(b"Cookie")
    if profile.account.proxy:
        strip(request)
        request.meta["proxy"] = profile.account.proxy
    return changed, jar


def _undress(request: Request, headers: dict[bytes, list[bytes] | None], jar: Any) -> None:
    for name, values in headers.items():
        if values is None:
            request.headers.pop(name, None)
        else:
            request.headers.setlist(name, values)
    if jar is _NONE:
        request.meta.pop(_JAR, None)
    else:
        request.meta[_JAR] = jar
