"""What requests cost: the counters of their keys, in each dimension that has limits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.leases.rates import Counter, Limit
from scrapy_lease.meta import RequestRefused, digest_of, is_enforced
from scrapy_lease.payload.wire import shown_url
from scrapy_lease.settings.rate_rules import Dimension, without_user

#: Keys of ``request.meta``: False exempts a request; how many permits it takes.
RATE, COST = "lease_rate", "lease_rate_cost"

#: Of one dimension: its rule, for an operator; the key; the limits.
Key = tuple[str, str, tuple[Limit, ...]]
#: Prices that are remembered.
PRICES = 10_000


class Price(NamedTuple):
    """What all requests of the same keys cost.

    :param needs: the counters of which each takes its permits.
    :param dimensions: the dimensions that they are of; *shadows*: those whose limits are not enforced for its keys.
    :param most: permits that a request may take at once; *strictest*: the rule that says so.
    """

    needs: tuple[Counter, ...] = ()
    dimensions: tuple[str, ...] = ()
    shadows: tuple[str, ...] = ()
    most: float = float("inf")
    strictest: str = ""


FREE = Price()


class Charger:
    """Finds the counters of requests, once for all of the same keys.

    :param counter: returns the counter of a limit on a key of a rule.
    :param share: of the keys whose limits are enforced.
    :param node_ip: from where requests go that go through no proxy.
    :ivar account_of: returns the account as which a request goes, "" for none, or while that is not known.
    """

    def __init__(
        self, crawler: Crawler, dimensions: tuple[Dimension, ...], counter: Callable[[str, str, Limit], Counter],
        *, share: float, node_ip: str,
    ) -> None:  # fmt: skip
        self._own = dimensions
        self._counter = counter
        self._share = share
        self._node_ip = node_ip
        self._agent = str(getattr(crawler.spider, "user_agent", None) or crawler.settings["USER_AGENT"] or "")
        self.account_of: Callable[[Request], str] = lambda request: ""
        self._tells_agents = any(dimension.name == "ua" for dimension in dimensions)
        self._prices: dict[Hashable, Price] = {}
        #: How often prices have changed.
        self.changes = 0
        self.add(())

    def __repr__(self) -> str:
        return f"<Charger by {', '.join(dimension.name for dimension in self._own)}>"

    def add(self, dimensions: Iterable[Dimension]) -> None:
        """Keep to the limits of *dimensions*, too, from now on, and no more to those that were added before."""
        self._dimensions = (*self._own, *dimensions)
        #: Dimensions in which requests of one origin may differ.
        self._telling = [
            each for each in self._dimensions if each.rules or each.function is not None or each.name == "account"
        ]
        self.forget()

    def forget(self) -> None:
        """Prices have changed, or counters were forgotten: find them anew."""
        self._prices.clear()
        self.changes += 1

    def price(self, request: Request, exit_: str | None) -> tuple[Price, int]:
        """Find out what *request* costs now: of what, and how many permits of each.

        :param exit_: the address from which it goes; "" from this host; None: that is not known yet.
        :raises RequestRefused: its meta asks for what cannot be, or a function fails.
        """
        meta, cost = request.meta, 1
        if RATE in meta or COST in meta:
            cost = _cost_of(request)
            if is_exempt(request):
                return FREE, cost
        agent = self._agent_of(request) if self._tells_agents else None
        told = [self._told(dimension, request) for dimension in self._telling]
        mark = (_origin_of(request.url), agent, exit_, *told)
        price = self._prices.get(mark)
        if price is None:
            price = self._priced(request, agent, exit_, dict(zip(self._telling, told, strict=True)))
            if len(self._prices) >= PRICES:
                self._prices.clear()
            self._prices[mark] = price
        if cost > price.most:
            raise _refused(request, f"it costs {cost}, and {price.strictest} allows {price.most} in a window")
        return price, cost

    def _priced(
        self, request: Request, agent: str | None, exit_: str | None, told: Mapping[Dimension, str | int | None]
    ) -> Price:
        limits: dict[tuple[str, str, int], Limit] = {}
        names: dict[str, None] = {}
        shadows: dict[str, None] = {}
        most, strictest = float("inf"), ""
        for dimension in self._dimensions:
            key = self._key_of(dimension, request, agent, exit_, told.get(dimension))
            if key is None:
                continue
            if self._share < 1 and not is_enforced(digest_of("\0".join(key[:2])), self._share):
                shadows[dimension.name] = None
                continue
            names[dimension.name] = None
            for limit in key[2]:
                if limit.permits < most:
                    most, strictest = limit.permits, key[0]
                # Of two for one window of one key the store takes the stricter.
                limits.setdefault((*key[:2], limit.window), limit)
        needs = tuple(self._counter(rule, key, limit) for (rule, key, _), limit in limits.items())
        return Price(needs, tuple(names), tuple(shadows), most, strictest)

    def _key_of(
        self, dimension: Dimension, request: Request, agent: str | None, exit_: str | None, told: str | int | None
    ) -> Key | None:
        """Return the key of a request in a dimension; None: it has none, or no limit holds for it."""
        name = dimension.name
        if name == "ip":
            return None if exit_ is None else (name, exit_ or self._node_ip, dimension.each)
        if name == "ua":
            return name, agent or "", dimension.each
        if isinstance(told, str):
            return name, told, dimension.each
        if told is not None:
            rule = dimension.rules[told]
            return f"{name} {rule.text}", "", rule.limits
        if dimension.function is not None or name == "account" or not dimension.each:
            return None
        site = site_of(request)
        return name, site.partition(":")[0] if name == "domain" else site, dimension.each

    def _told(self, dimension: Dimension, request: Request) -> str | int | None:
        """Return what a function says of a request, or which rule takes it, or as whom it goes."""
        if dimension.name == "account":
            return self.account_of(request) or None
        if dimension.function is not None:
            return self._ask(dimension, request)
        site, url = site_of(request), without_user(request.url)
        return next((i for i, rule in enumerate(dimension.rules) if rule.takes(url, site)), None)

    def _agent_of(self, request: Request) -> str:
        # Not by their own get, which makes a name of three copies of it.
        agents = dict.get(request.headers, b"User-Agent")
        return agents[-1].decode("latin-1") if agents else self._agent

    def _ask(self, dimension: Dimension, request: Request) -> str | None:
        assert dimension.function is not None
        try:
            key: Any = dimension.function(request)
        except Exception as error:
            raise _refused(request, f"{dimension.name} raised {type(error).__name__}: {error}") from error
        if key is not None and not isinstance(key, str):
            raise _refused(request, f"{dimension.name} returned {key!r}; it must be a string or None")
        # Half a character, as JSON may hold it, cannot be sent: it goes by its escape.
        return key if key is None or key.isascii() else key.encode(errors="backslashreplace").decode()


def site_of(request: Request) -> str:
    """Return the host of *request* in lower case, with the port where it names one."""
    netloc: str = urlparse_cached(request).netloc
    return netloc.rpartition("@")[2].lower()


def _origin_of(url: str) -> str:
    """Return a part of *url* in which its scheme, host and port are: to parse it takes longer than all the rest."""
    end = url.find("/", 8) if url.startswith("http") else -1
    return url if end < 0 else url[:end]


def is_exempt(request: Request) -> bool:
    """Does no limit hold for *request*?

    :raises RequestRefused: its meta says what is neither True nor False.
    """
    value = request.meta.get(RATE)
    if value is None or isinstance(value, bool):
        return value is False
    raise _refused(request, f'meta["{RATE}"] is {value!r}; it must be False, or not be there')


def _cost_of(request: Request) -> int:
    value = request.meta.get(COST, 1)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise _refused(request, f'meta["{COST}"] is {value!r}; it must be a whole number from 1')


def _refused(request: Request, fault: str) -> RequestRefused:
    return RequestRefused(f"{shown_url(request.url)}: {fault}")
