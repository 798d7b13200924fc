"""What a request costs: the counters of its keys, in each dimension that has limits."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.httpobj import urlparse_cached

from scrapy_lease.leases.rates import Counter, Limit, Rates
from scrapy_lease.meta import RequestRefused, digest_of, is_enforced
from scrapy_lease.payload.wire import shown_url
from scrapy_lease.settings.rate_rules import Dimension

#: Keys of ``request.meta``: False exempts a request; how many permits it takes.
RATE, COST = "lease_rate", "lease_rate_cost"

#: Of one dimension: its rule, for an operator; the key; the limits.
Key = tuple[str, str, tuple[Limit, ...]]


class Charge:
    """What one try of a request costs.

    :ivar needs: the counters of which it takes *cost* permits each.
    :ivar dimensions: the dimensions that they are of; *shadows*: those whose limits are not enforced for its keys.
    :ivar is_reserved: are permits reserved for it? *is_settled*: was it filled with the headers and the proxy of a try?
    :ivar fault: why it cannot be filled.
    :ivar not_before: clock time (s) before which it need not be tried again.
    :ivar denials: how often in a row it had to go back; *has_waited*: has it waited at all?
    """

    __slots__ = (
        "cost", "denials", "dimensions", "fault", "has_waited", "is_reserved", "is_settled", "needs", "not_before",
        "shadows",
    )  # fmt: skip

    def __init__(self) -> None:
        self.needs: tuple[Counter, ...] = ()
        self.dimensions: tuple[str, ...] = ()
        self.shadows: tuple[str, ...] = ()
        self.cost = 1
        self.is_reserved = self.is_settled = self.has_waited = False
        self.fault: RequestRefused | None = None
        self.not_before = float("-inf")
        self.denials = 0

    @property
    def group(self) -> Hashable:
        """Those of one group wait for the same."""
        return self.needs if self.not_before == float("-inf") else self

    def __repr__(self) -> str:
        return f"<Charge {self.cost} of {list(self.needs)}>"

    def reserve(self, rates: Rates) -> None:
        """Leave its permits to it, which is on its way."""
        if self.needs and not self.is_reserved:
            rates.reserve(self.needs, self.cost)
            self.is_reserved = True

    def release(self, rates: Rates) -> None:
        """It does not count on its reservation any more, if it has one."""
        if self.is_reserved:
            rates.release(self.needs, self.cost)
            self.is_reserved = False


class Charger:
    """Finds the counters of requests.

    :param counter: returns the counter of a limit on a key of a rule.
    :param share: of the keys whose limits are enforced.
    :param node_ip: from where requests go that go through no proxy.
    """

    def __init__(
        self, crawler: Crawler, dimensions: tuple[Dimension, ...], counter: Callable[[str, str, Limit], Counter],
        *, share: float, node_ip: str,
    ) -> None:  # fmt: skip
        self._dimensions = dimensions
        self._counter = counter
        self._share = share
        self._node_ip = node_ip
        self._agent = str(getattr(crawler.spider, "user_agent", None) or crawler.settings["USER_AGENT"] or "")

    def __repr__(self) -> str:
        return f"<Charger by {', '.join(dimension.name for dimension in self._dimensions)}>"

    def fill(self, charge: Charge, request: Request, exit_: str | None) -> None:
        """Find out what *request* costs now.

        :param exit_: the address from which it goes; "" from this host; None: that is not known yet.
        :raises RequestRefused: its meta asks for what cannot be, or a function fails.
        """
        charge.cost = _cost_of(request)
        if is_exempt(request):
            charge.needs = charge.dimensions = charge.shadows = ()
            return
        needs: dict[Counter, None] = {}
        names, shadows = [], []
        for dimension in self._dimensions:
            key = self._key_of(dimension, request, exit_)
            if key is None:
                continue
            if self._share < 1 and not is_enforced(digest_of("\0".join(key[:2])), self._share):
                shadows.append(dimension.name)
                continue
            names.append(dimension.name)
            for limit in key[2]:
                if charge.cost > limit.permits:
                    raise _refused(request, f"it costs {charge.cost}, and {key[0]} allows {limit.permits} in a window")
                needs[self._counter(key[0], key[1], limit)] = None
        charge.needs, charge.dimensions, charge.shadows = tuple(needs), tuple(names), tuple(shadows)

    def _key_of(self, dimension: Dimension, request: Request, exit_: str | None) -> Key | None:
        """Return the key of a request in a dimension; None: it has none, or no limit holds for it."""
        name = dimension.name
        if name == "ip":
            return None if exit_ is None else (name, exit_ or self._node_ip, dimension.each)
        if name == "ua":
            return name, self._agent_of(request), dimension.each
        if dimension.function is not None:
            key = self._ask(dimension, request)
            return None if key is None else (name, key, dimension.each)
        site = site_of(request)
        for rule in dimension.rules:
            if rule.takes(request.url, site):
                return f"{name} {rule.text}", "", rule.limits
        if not dimension.each:
            return None
        return name, site.partition(":")[0] if name == "domain" else site, dimension.each

    def _agent_of(self, request: Request) -> str:
        agent = request.headers.get("User-Agent")
        return self._agent if agent is None else agent.decode("latin-1")

    def _ask(self, dimension: Dimension, request: Request) -> str | None:
        assert dimension.function is not None
        try:
            key: Any = dimension.function(request)
        except Exception as error:
            raise _refused(request, f"{dimension.name} raised {type(error).__name__}: {error}") from error
        if key is not None and not isinstance(key, str):
            raise _refused(request, f"{dimension.name} returned {key!r}; it must be a string or None")
        return key


class Charges:
    """What each request costs, for as long as it exists.

    :param likely_exit: from where a request will go, as far as that is known before it has its proxy.
    :param is_volatile: can keys change on the way through the middlewares, by headers or a proxy?
    """

    def __init__(self, charger: Charger, *, likely_exit: str | None, is_volatile: bool) -> None:
        self.is_volatile = is_volatile
        self._charger = charger
        self._likely_exit = likely_exit
        self._charges: WeakKeyDictionary[Request, Charge] = WeakKeyDictionary()

    def get(self, request: Request) -> Charge | None:
        """Return what is known of *request*."""
        return self._charges.get(request)

    def likely(self, request: Request) -> Charge:
        """Return what a request that is held ready will cost, as far as that can be known now."""
        charge = self._charges.get(request)
        if charge is None or charge.is_settled:
            charge = charge or Charge()
            self._charges[request] = charge
            charge.is_settled, charge.fault = False, None
            try:
                self._charger.fill(charge, request, self._likely_exit)
            except RequestRefused as error:
                # Told where it can be: on the request's way through the middlewares.
                charge.needs, charge.fault = (), error
        return charge

    def settled(self, request: Request, exit_: str) -> Charge:
        """Return what a request costs that has its headers, and goes from *exit_*.

        :raises RequestRefused: its meta asks for what cannot be, or a function fails.
        """
        charge = self._charges.get(request)
        if charge is None or self.is_volatile:
            charge = charge or Charge()
            self._charges[request] = charge
            self._charger.fill(charge, request, exit_)
            charge.is_settled = self.is_volatile
        elif charge.fault is not None:
            raise charge.fault
        return charge


def site_of(request: Request) -> str:
    """Return the host of *request* in lower case, with the port where it names one."""
    netloc: str = urlparse_cached(request).netloc
    return netloc.rpartition("@")[2].lower()


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
