"""What is known of one request on its way through leased proxies, and what it must not carry further."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

from scrapy import Request
from scrapy.exceptions import DownloadFailedError

from scrapy_lease.leases.pool.blame import Refusals
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.policy import causes
from scrapy_lease.pools import trip
from scrapy_lease.providers.owned import Owner
from scrapy_lease.providers.source import read_body

#: Shortest time (s) that a request gets, however little is left of its proxy's life.
SHORTEST = 0.1

_AUTHORIZATION = b"Proxy-Authorization"
#: Of Scrapy's HttpProxyMiddleware: the proxy that the header is for.
_AUTHORIZED = "_auth_proxy"
_TIMEOUT = "download_timeout"


@lru_cache(maxsize=1024)
def url_of(body: bytes) -> str:
    """Return the URL of a proxy, with its credentials, from the body of its lease."""
    return read_body(body).url


class Trip(trip.Trip):
    """A request's uses of leased proxies.

    ``refusals``: on which; ``owner``: the account that it goes as, if that must have no other proxy.
    """

    __slots__ = ("_is_capped", "_own_timeout", "owner", "refusals")

    def __init__(self) -> None:
        super().__init__()
        self.refusals = Refusals()
        self.owner: Owner | None = None
        #: What the request says itself of its timeout, while it is capped.
        self._own_timeout: float | None = None
        self._is_capped = False

    @property
    def was_refused(self) -> bool:
        return bool(self.refusals.ids)

    def begin(self, request: Request, use: Use, pool: str) -> None:
        """Let *request* go through the proxy of *use*, and no longer than that lives."""
        super().begin(request, use, pool)
        strip(request)
        meta, left = request.meta, use.life_left
        meta["proxy"] = url_of(use.lease.body)
        if left is not None and not 0 < (meta.get(_TIMEOUT) or 0) <= left:
            self._own_timeout = meta.get(_TIMEOUT)
            self._is_capped = True
            meta[_TIMEOUT] = max(left, SHORTEST)

    def finish(self, request: Request) -> Use | None:
        use = super().finish(request)
        if use is None:
            return None
        strip(request)
        if self._is_capped:
            self._is_capped = False
            request.meta[_TIMEOUT] = self._own_timeout
            if self._own_timeout is None:
                del request.meta[_TIMEOUT]
        return use


def clean(error: Exception, url: str) -> Exception | None:
    """Take the credentials of a proxy's *url* out of the words of *error*, and what led to it if that has them too.

    Scrapy logs an exception with its causes, and some handlers write the whole URL of the proxy.

    :returns: what is to be raised in its place, where its words cannot be changed; None: it may go on.
    """
    credentials = url.partition("://")[2].rpartition("@")[0]
    secrets = {credentials, credentials.partition(":")[2], unquote(credentials.partition(":")[2])} - {""}
    if not any(secret in str(cause) for cause in causes(error) for secret in secrets):
        return None
    error.__cause__, error.__suppress_context__ = None, True
    for secret in sorted(secrets, key=len, reverse=True):
        error.args = tuple(arg.replace(secret, "***") if isinstance(arg, str) else arg for arg in error.args)
    if any(secret in str(error) for secret in secrets):
        return DownloadFailedError(f"{type(error).__name__}, whose words hold the password of a proxy")
    return None


def strip(request: Request) -> None:
    """Take a proxy and its credentials from *request*, so that neither it nor a copy carries them to another."""
    # Past what Headers does to find a name's usual form, which this is.
    dict.pop(request.headers, _AUTHORIZATION, None)
    meta = request.meta
    meta.pop(_AUTHORIZED, None)
    meta.pop("proxy", None)
