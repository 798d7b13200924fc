"""Which pools, site and key a request has, and what it must not carry from one proxy to the next."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadFailedError
from scrapy.settings import Settings

from scrapy_lease.addon import PROXIES
from scrapy_lease.exceptions import SettingsError
from scrapy_lease.leases.pool.shelf import Use
from scrapy_lease.meta import RequestRefused
from scrapy_lease.pools.routing import ProxyRouter, site_of
from scrapy_lease.providers.base import Proxy
from scrapy_lease.providers.source import resource_of
from scrapy_lease.proxies.checks import check_scrapy
from scrapy_lease.proxies.trips import Trip, clean, url_of
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.stats import POOL_STATS, STATS

URL = "https://site.example/page"
PROXY = "http://user:hunter2@proxy.example:8080"


def settings_of(**values: Any) -> LeaseSettings:
    pools = {"default": {"proxies": [PROXY]}, "resi": {}, "dc": {"sticky": "domain"}}
    return LeaseSettings.from_mapping({"LEASE_REDIS_URL": "redis://h", "LEASE_PROXY_POOLS": pools, **values})


def router(**values: Any) -> ProxyRouter:
    settings = settings_of(**values)
    return ProxyRouter(settings.proxy_pool, settings.pools)


def test_meta_wins_over_the_routes() -> None:
    """meta["lease_proxy"] is a name, a list of names, or False; None says nothing."""
    ways = router(LEASE_PROXY_POOL={"*": "resi", "media": "dc"})
    for value, way in (("dc", ("dc",)), (["dc", "resi"], ("dc", "resi")), (False, None), (None, ("resi",))):
        assert ways.way_of(Request(URL, meta={"lease_proxy": value}), is_media=False) == way
    assert ways.way_of(Request(URL), is_media=True) == ("dc",)
    assert router().way_of(Request(URL), is_media=True) == ("default",)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"lease_proxy": "rezi"}, "names the pool 'rezi', which does not exist: did you mean resi?"),
        ({"lease_proxy": ["dc", "x"]}, "names the pool 'x', which does not exist; there is default, resi, dc"),
        ({"lease_proxy": 7}, "7 is neither the name of a pool"),
        ({"lease_proxy": True}, "True is neither the name of a pool"),
    ],
)
def test_meta_that_names_no_pool_is_refused(meta: dict[str, Any], said: str) -> None:
    """Such a request is not fetched: neither directly nor through some other pool."""
    with pytest.raises(RequestRefused) as caught:
        router().way_of(Request("https://u:hunter2@site.example/page", meta=meta), is_media=False)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_keys_of_requests_that_stick_together() -> None:
    """LEASE_PROXY_STICKY = "domain" gives one key to a host; meta["lease_sticky"] wins, False takes it off."""
    ways = router()
    assert ways.key_of(Request(URL), "resi") == ""
    assert ways.key_of(Request(URL), "dc") == "domain:site.example"
    own, other = (Request(URL, meta={"lease_sticky": value}) for value in ("cart", False))
    assert [ways.key_of(request, "dc") for request in (own, other)] == ["key:cart", ""]
    with pytest.raises(RequestRefused, match="must be text"):
        ways.key_of(Request(URL, meta={"lease_sticky": 7}), "resi")


def test_a_site_is_a_host_and_its_port() -> None:
    """Credentials in a URL are no part of it."""
    assert site_of(Request("https://u:p@Site.example/x")) == "site.example"
    assert site_of(Request("http://site.example:8080/x")) == "site.example:8080"


class Lease:
    """A lease as far as a trip looks at it."""

    def __init__(self, url: str = PROXY, left: float | None = None) -> None:
        self.id = "proxy.example:8080"
        self.body = resource_of(Proxy(url), "n", 0).body
        self.life_left = left


def begun(request: Request, **lease: Any) -> Trip:
    trip = Trip()
    made: Any = Lease(**lease)
    trip.begin(request, Use(made, "site.example", 1, False), "default")
    return trip


def test_nothing_of_a_proxy_stays_with_a_request() -> None:
    """What an earlier try left is gone before the next, and what this one put there is gone after it."""
    meta = {"_auth_proxy": "http://old:1", "download_timeout": 180, "mine": 1}
    request = Request(URL, headers={"Proxy-Authorization": "Basic b2xk", "X": "y"}, meta=meta)
    trip = begun(request)
    assert request.meta == {"proxy": PROXY, "download_timeout": 180, "mine": 1}
    assert "Proxy-Authorization" not in request.headers
    request.headers["Proxy-Authorization"] = "Basic bmV3"
    request.meta.update(proxy="http://proxy.example:8080", _auth_proxy="http://proxy.example:8080")
    assert trip.finish(request) is not None
    assert request.meta == {"download_timeout": 180, "mine": 1}
    assert dict(request.headers) == {b"X": [b"y"]}
    assert trip.finish(request) is None


@pytest.mark.parametrize("own", [180, 0, None])
def test_a_request_ends_before_its_proxy_does(own: float | None) -> None:
    """download_timeout is capped to what is left of the proxy's life, for this use only; 0 and none are no timeout."""
    meta = {} if own is None else {"download_timeout": own}
    request = Request(URL, meta=meta)
    trip = begun(request, left=5.0)
    assert request.meta["download_timeout"] == 5.0
    trip.finish(request)
    assert request.meta == meta
    patient = Request(URL, meta={"download_timeout": 3})
    begun(patient, left=5.0)
    assert patient.meta["download_timeout"] == 3


def test_the_url_of_a_lease() -> None:
    """It is what the provider gave, credentials and all."""
    assert url_of(resource_of(Proxy(PROXY, provider="x"), "n", 0).body) == PROXY


def test_an_error_that_goes_on_holds_no_password() -> None:
    """Scrapy logs an exception and its causes: what has the credentials in it is written anew, all else is left."""
    cause = ValueError(f"407, url={PROXY!r}")
    error = DownloadFailedError(f"407, message='x', url={PROXY!r}")
    error.__cause__ = cause
    assert clean(error, PROXY) is None
    assert str(error) == "407, message='x', url='http://***@proxy.example:8080'"
    assert error.__cause__ is None
    other = DownloadFailedError("lost")
    other.__cause__ = cause = ValueError("reset")
    clean(other, PROXY)
    assert other.__cause__ is cause
    clean(other, "http://proxy.example:8080")
    assert str(other) == "lost"


def test_an_error_of_other_arguments_holds_no_password() -> None:
    """Where the words are more than its arguments, another goes on in its place."""
    error = clean(OSError(7, f"cannot connect to {PROXY}", "hunter2.txt"), PROXY)
    assert isinstance(error, DownloadFailedError)
    assert str(error) == "OSError, whose words hold the password of a proxy"


def scrapy_settings(**values: Any) -> Settings:
    return Settings({"DOWNLOADER_MIDDLEWARES": dict(PROXIES["DOWNLOADER_MIDDLEWARES"]), **values})


HTTPX = "scrapy.core.downloader.handlers._httpx.HttpxDownloadHandler"


def test_scrapy_must_use_what_is_leased() -> None:
    """Without its HttpProxyMiddleware no credentials reach a proxy: refused, by the setting that takes it out."""
    pools = settings_of().pools
    check_scrapy(scrapy_settings(), pools)
    with pytest.raises(SettingsError, match="HTTPPROXY_ENABLED = False"):
        check_scrapy(scrapy_settings(HTTPPROXY_ENABLED=False), pools)
    out = {"scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": None}
    with pytest.raises(SettingsError, match="HttpProxyMiddleware is taken out"):
        check_scrapy(scrapy_settings(DOWNLOADER_MIDDLEWARES=out), pools)


def test_socks_needs_the_handler_that_speaks_it() -> None:
    """The others would ask a SOCKS server for HTTP, or for nothing at all."""
    pools = settings_of(LEASE_PROXY_POOLS={"default": {"proxies": ["socks5://proxy.example:1080"]}}).pools
    with pytest.raises(SettingsError, match=r"pool 'default' has socks5:// proxies"):
        check_scrapy(scrapy_settings(), pools)
    check_scrapy(scrapy_settings(DOWNLOAD_HANDLERS={"http": HTTPX, "https": HTTPX}), pools)
    gated = type("Gated", (), {"original": HTTPX})
    check_scrapy(scrapy_settings(DOWNLOAD_HANDLERS={"http": gated, "https": gated}), pools)


def test_every_stat_of_a_pool_has_a_name_of_its_own() -> None:
    """Stats of pools carry the pool behind their name and are none of the fixed ones."""
    assert set(POOL_STATS) == {"proxy", "account", "rate"}
    assert not {f"{kind}/{name}" for kind, names in POOL_STATS.items() for name in names} & STATS.keys()
