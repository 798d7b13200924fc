"""The sections of leased proxies and of verdicts."""

from __future__ import annotations

from scrapy_lease.settings.base import Section, setting
from scrapy_lease.settings.proxy_values import (
    VERDICTS,
    WORDS,
    Amount,
    ApiOptions,
    BuyLimit,
    CheckUrl,
    PolicyClass,
    PoolTable,
    ProviderClass,
    ProxyList,
    Routing,
    Sticky,
    VerdictTable,
)
from scrapy_lease.settings.values import Count, PositiveSeconds, Seconds, Waits

_WORDS = ", ".join(f'"{word}"' for word in WORDS)


class ProxySettings(Section):
    """Proxies"""

    proxy_enabled: bool = setting(
        True,
        "Off: no proxies are leased, requests go as without scrapy-lease; values are still checked.",
        allowed="True or False",
    )
    proxies: ProxyList = setting(
        None,
        "The proxies of the pool `default`: URLs, or a file with one a line. `http://` and `https://`, and `socks5://` "
        "with Scrapy's httpx handler. A user name or password with `{session}` or `{session:8}` in it makes a gateway, "
        "of which `LEASE_PROXY_SESSIONS` ids are in use at a time; one with `{account}` gives each leased account an "
        "identity of its own.",
        allowed="a list of proxy URLs, or the path of a file",
        shown_default="–",
    )
    proxy_provider: ProviderClass = setting(
        None,
        "Where the proxies of the pool `default` come from: a class with `async fetch(count) -> list[Proxy]`.",
        allowed="a class, or its dotted path",
        shown_default="–",
    )
    proxy_api: ApiOptions = setting(
        None,
        "The same for an HTTP API that lists proxies: `url` (with `{count}`), `format`, `items`, `host` and `port` or "
        "`endpoint`, `user`, `password`, `exit`, `expires`, `lifetime`, `ok`, `headers`, `max_count`, `calls`.",
        allowed="a dict",
        shown_default="–",
    )
    proxy_pools: PoolTable = setting(
        None,
        "More pools by name. Each takes the settings of this section from `LEASE_PROXIES` to `LEASE_PROXY_WAIT`, in "
        'lower case and without prefix: `{"resi": {"api": {…}, "concurrency": 2}}`. Where it does not say how its '
        "proxies are used, the top level does. One that names no source is filled with `scrapy-lease proxies add`.",
        allowed="a dict of dicts",
        shown_default="–",
    )
    proxy_pool: Routing = setting(
        "default",
        "Which requests go through which pool. A mapping: the begin of a URL, `re:` and a regular expression, "
        '`"media"` (what `engine.download_async` fetches) or `"*"` (all else; without it the pool `default`) to the '
        "name of a pool, a list of names (the next after each ban) or `False` (directly). The first that matches "
        'counts. `meta["lease_proxy"]` wins.',
        allowed="the name of a pool, a list of names, False, or a mapping to these",
    )
    proxy_sessions: Count = setting(
        100, "Ids of a gateway that are in use at a time.", allowed="a whole number from 1", unit="ids"
    )
    proxy_lifetime: PositiveSeconds = setting(
        600, "How long an id of a gateway lives.", allowed="a number above 0", unit="seconds"
    )
    proxy_concurrency: Count = setting(
        1, "Requests in flight on one leased proxy.", allowed="a whole number from 1", unit="requests"
    )
    proxy_reuse: Amount = setting(
        0,
        "Requests after which a proxy is given back; 0: while it is good.",
        allowed="a whole number from 0",
        unit="requests",
    )
    proxy_keep: Seconds = setting(
        10, "How long an idle proxy stays with the node.", allowed="a number from 0", unit="seconds"
    )
    proxy_batch: Count = setting(20, "Proxies asked of a provider at a time.", allowed="a whole number from 1")
    proxy_min_free: Amount = setting(
        10, "Free proxies below which more are asked for.", allowed="a whole number from 0"
    )
    proxy_buy_limit: BuyLimit = setting(
        None,
        'Proxies taken from a provider at most, over all hosts: `["400/minute", "100000/day"]`.',
        allowed='a limit like "400/minute", or a list of them',
        shown_default="–",
    )
    proxy_check: CheckUrl = setting(
        None,
        "A URL that is fetched through a new proxy before it is taken in.",
        allowed="an http:// or https:// URL",
        shown_default="–",
    )
    proxy_check_timeout: PositiveSeconds = setting(
        10, "How long that may take.", allowed="a number above 0", unit="seconds"
    )
    proxy_margin: Seconds = setting(
        10,
        "Time before a proxy expires in which no request starts on it; a request's `download_timeout` is capped to "
        "what is left of its life.",
        allowed="a number from 0",
        unit="seconds",
    )
    proxy_backoff: Waits = setting(
        (30, 3600),
        "First and longest rest of a banned proxy for that site, and of a broken one for all, doubling, jittered.",
        allowed="two numbers above 0, the first not the larger: (30, 3600) or 30,3600",
        unit="seconds",
    )
    proxy_retries: Amount = setting(
        5,
        "How often a request goes out again on another proxy, outside of `RETRY_TIMES`, before its item goes back to "
        "the backlog.",
        allowed="a whole number from 0",
    )
    proxy_sticky: Sticky = setting(
        None,
        '`"domain"`: one proxy for all requests to a host. `"account"`: one for all of a leased account, which is so '
        'in any case. `meta["lease_sticky"]`, any text, wins: same text, same proxy.',
        allowed='"domain" or "account"',
        shown_default="–",
    )
    proxy_sticky_ttl: PositiveSeconds = setting(
        86400, "How long that is remembered.", allowed="a number above 0", unit="seconds"
    )
    proxy_grace: Seconds = setting(
        0,
        "Time for which the proxies of a dead session serve nobody, for what it may still have in flight.",
        allowed="a number from 0",
        unit="seconds",
    )
    proxy_wait: PositiveSeconds = setting(
        60,
        "How long a request waits for a proxy before it goes back to the backlog. A pool with nothing usable for five "
        "times as long closes the crawl with `lease_no_proxies`; what others hold is usable.",
        allowed="a number above 0",
        unit="seconds",
    )


class VerdictSettings(Section):
    """Verdicts"""

    verdicts: VerdictTable = setting(
        dict,
        "What a status says of an answer that came through a leased proxy or to a leased account, laid over the "
        "defaults; `None` takes one out. 403 is a `ban` by default only where a proxy is used. A status that the "
        "spider asks for (`handle_httpstatus_list`) is `ok`.",
        allowed=f"a dict of statuses to {_WORDS} or None",
        shown_default=f"`{dict(VERDICTS)}`",
    )
    policy: PolicyClass = setting(
        None,
        "A class with `judge(request, response, exception) -> verdict or None`, asked first for whatever comes through "
        "a leased proxy or to a leased account: for a page with status 200 that is a ban, or a login form. `None` "
        "leaves it to the statuses.",
        allowed="a class, or its dotted path",
        shown_default="–",
    )
