"""From which pools a request takes what it goes with, which site it is for, and which key keeps it on one resource."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scrapy import Request
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.meta import RequestRefused
from scrapy_lease.payload.wire import shown_url
from scrapy_lease.settings.account_values import Pages
from scrapy_lease.settings.pools import PoolSettings
from scrapy_lease.settings.routes import Routes, Way, checked_way
from scrapy_lease.settings.sources import did_you_mean

#: Keys of ``request.meta``: pools (a name, a list of names, False), and what keeps requests on one proxy.
PROXY, ACCOUNT, STICKY = "lease_proxy", "lease_account", "lease_sticky"


def site_of(request: Request) -> str:
    """Return the site of *request*: its host, with the port where it names one."""
    netloc: str = urlparse_cached(request).netloc
    return netloc if "@" not in netloc else netloc.rpartition("@")[2]


class Router:
    """Routes requests as a setting and their meta say.

    :param meta: the key of ``request.meta`` that wins over the setting.
    :param pools: the names of all there are.
    :ivar owned: the pools whose resources are made for what a request goes as: nobody else has a use for them.
    """

    owned: frozenset[str] = frozenset()

    def __init__(self, meta: str, routes: Routes, pools: Collection[str]) -> None:
        self._meta = meta
        self._routes = routes
        self._pools = pools
        self._only: Way = routes.rest if not routes.urls and routes.media == () else ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {', '.join(sorted(self._pools))}>"

    def way_of(self, request: Request, *, is_media: bool) -> Way:
        """Return the pools of *request*, the next after each ban; None: it goes without.

        :param is_media: no scheduler handed it out.
        :raises RequestRefused: its meta names what is no pool.
        """
        value = request.meta.get(self._meta)
        if value is not None:
            return self._chosen(request, value)
        return self._only if self._only != () else self._routes.way_of(request.url, is_media=is_media)

    def has_way(self, request: Request, *, is_media: bool) -> bool:
        """Does *request* go with something, or does its meta name what is no pool?"""
        try:
            return self.way_of(request, is_media=is_media) is not None
        except RequestRefused:
            return True

    def key_of(self, request: Request, name: str, owner: str = "") -> str:
        """Return the key that keeps requests on one resource of a pool, "" for none.

        :param owner: the key of what else the request goes with.
        :raises RequestRefused: its meta says something that is no text.
        """
        return ""

    def _chosen(self, request: Request, value: object) -> Way:
        try:
            way = checked_way(value)
        except ValueError as error:
            raise refused(request, f'meta["{self._meta}"]: {error}') from None
        for name in way or ():
            if name not in self._pools:
                near = did_you_mean(name, self._pools) or f"; there is {', '.join(self._pools)}"
                raise refused(request, f'meta["{self._meta}"] names the pool {name!r}, which does not exist{near}')
        return way


class ProxyRouter(Router):
    """Routes as LEASE_PROXY_POOL says, and keeps requests on one proxy as LEASE_PROXY_STICKY does."""

    def __init__(self, routes: Routes, pools: Mapping[str, PoolSettings]) -> None:
        super().__init__(PROXY, routes, pools)
        self._sticky = {name: pool.sticky for name, pool in pools.items()}
        self.owned = frozenset(name for name, pool in pools.items() if pool.is_owned)

    def key_of(self, request: Request, name: str, owner: str = "") -> str:
        value = request.meta.get(STICKY)
        if value is None and owner:
            return owner
        if value is None:
            return f"domain:{site_of(request)}" if self._sticky[name] == "domain" else ""
        if value is False:
            return ""
        if not isinstance(value, str) or not value:
            raise refused(request, f'meta["{STICKY}"] is {value!r}; it must be text that is not empty, or False')
        return f"key:{value}"


class AccountRouter(Router):
    """Routes as LEASE_ACCOUNT_POOL says, of the pages of LEASE_ACCOUNT_URLS.

    What no scheduler gave (media, robots.txt) goes without an account, unless one of these lists it.
    """

    def __init__(self, routes: Routes, pages: Pages | None, pools: Collection[str]) -> None:
        super().__init__(ACCOUNT, routes, pools)
        self._pages = pages or Pages(has_media=routes.media != ())

    def way_of(self, request: Request, *, is_media: bool) -> Way:
        if request.meta.get(ACCOUNT) is None and not self._pages.has(request.url, is_media=is_media):
            return None
        return super().way_of(request, is_media=is_media)


def refused(request: Request, fault: str) -> RequestRefused:
    """Return the error of a request that must not be fetched as it is."""
    return RequestRefused(f"{shown_url(request.url)}: {fault}")
