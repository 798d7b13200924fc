"""Through which pools a request goes, which site it is for, and which key keeps it on one proxy."""

from __future__ import annotations

from collections.abc import Mapping

from scrapy import Request
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.meta import RequestRefused
from scrapy_lease.payload.wire import shown_url
from scrapy_lease.settings.pools import PoolSettings
from scrapy_lease.settings.routes import Routes, Way, checked_way
from scrapy_lease.settings.sources import did_you_mean

#: Keys of ``request.meta``: pools (a name, a list of names, False), and what keeps requests on one proxy.
PROXY, STICKY = "lease_proxy", "lease_sticky"


def site_of(request: Request) -> str:
    """Return the site of *request*: its host, with the port where it names one."""
    netloc: str = urlparse_cached(request).netloc
    return netloc if "@" not in netloc else netloc.rpartition("@")[2]


class Router:
    """Routes requests as LEASE_PROXY_POOL and their meta say.

    :param pools: all there are, by name.
    """

    def __init__(self, routes: Routes, pools: Mapping[str, PoolSettings]) -> None:
        self._routes = routes
        self._pools = pools
        self._only: Way = routes.rest if not routes.urls and routes.media == () else ()

    def __repr__(self) -> str:
        return f"<Router to {', '.join(sorted(self._pools))}>"

    def way_of(self, request: Request, *, is_media: bool) -> Way:
        """Return the pools of *request*, the next after each ban; None: it goes directly.

        :param is_media: no scheduler handed it out.
        :raises RequestRefused: its meta names what is no pool.
        """
        value = request.meta.get(PROXY)
        if value is not None:
            return self._chosen(request, value)
        return self._only if self._only != () else self._routes.way_of(request.url, is_media=is_media)

    def key_of(self, request: Request, name: str) -> str:
        """Return the key that keeps requests on one proxy of a pool, "" for none.

        :raises RequestRefused: its meta says something that is no text.
        """
        value = request.meta.get(STICKY)
        if value is None:
            return f"domain:{site_of(request)}" if self._pools[name].sticky == "domain" else ""
        if value is False:
            return ""
        if not isinstance(value, str) or not value:
            raise _refused(request, f'meta["{STICKY}"] is {value!r}; it must be text that is not empty, or False')
        return f"key:{value}"

    def _chosen(self, request: Request, value: object) -> Way:
        try:
            way = checked_way(value)
        except ValueError as error:
            raise _refused(request, f'meta["{PROXY}"]: {error}') from None
        for name in way or ():
            if name not in self._pools:
                near = did_you_mean(name, self._pools) or f"; there is {', '.join(self._pools)}"
                raise _refused(request, f'meta["{PROXY}"] names the pool {name!r}, which does not exist{near}')
        return way


def _refused(request: Request, fault: str) -> RequestRefused:
    return RequestRefused(f"{shown_url(request.url)}: {fault}")
