"""What a request costs: its keys in each dimension, what its meta says, what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_lease.leases.rates import Counter, CounterName, Limit, RateOptions
from scrapy_lease.meta import RequestRefused
from scrapy_lease.rates.charges import Charge, Charges
from scrapy_lease.rates.prices import Charger
from scrapy_lease.settings.rate_rules import checked_limits

SHOP = "http://Shop.example:8080/a?b=1"


def by_fragment(request: Request) -> Any:
    return {"x": "x", "none": None, "bad": 5}[request.url.rpartition("#")[2]]


def charger_of(limits: dict[str, Any], *, share: float = 1.0, **settings: Any) -> tuple[Charger, list[str]]:
    """A charger, and the names of the counters that it asks for."""
    names: list[str] = []

    def counter(rule: str, key: str, limit: Limit) -> Counter:
        names.append(f"{rule}|{key}|{limit.permits}")
        return Counter(CounterName(rule, key, names[-1]), limit, RateOptions(), 0, lambda: 1, lambda: 0.0)

    crawler = get_crawler(Spider, settings)
    return Charger(crawler, checked_limits(limits), counter, share=share, node_ip="10.0.0.1"), names


def keys(limits: dict[str, Any], request: Request, exit_: str | None = "", **options: Any) -> list[str]:
    charger, names = charger_of(limits, **options)
    charger.price(request, exit_)
    return names


def test_each_dimension_has_its_key() -> None:
    """Site with port, host without, address, user agent: each limit of each is a counter."""
    request = Request(SHOP, headers={"User-Agent": "mine"})
    found = keys({"api": ["5/s", "9/d"], "domain": "4/s", "ip": "3/s", "ua": "2/s"}, request)
    assert found == ["api|shop.example:8080|5", "api|shop.example:8080|9", "domain|shop.example|4", "ip|10.0.0.1|3",
                     "ua|mine|2"]  # fmt: skip


def test_the_first_rule_that_takes_a_request_counts() -> None:
    """All that it takes share one counter; what none takes has that of `*`, or none."""
    rules = {"http://shop.example:8080/a": "5/s", "shop.example": "4/s"}
    assert keys({"api": rules}, Request(SHOP)) == ["api http://shop.example:8080/a||5"]
    assert keys({"api": rules}, Request("http://www.shop.example/")) == ["api shop.example||4"]
    assert keys({"api": rules}, Request("http://other.example/")) == []
    assert keys({"api": {**rules, "*": "1/s"}}, Request("http://other.example/")) == ["api|other.example|1"]


def test_a_rule_takes_requests_whoever_asks() -> None:
    """A user in the URL of the rule or of the request makes no difference, and is no part of the counter's name."""
    for begin in ("http://", "http://me:hidden@"):
        for url in ("http://a.b/v1/x", "http://me:hidden@a.b/v1/x", "http://you@a.b/v1/x"):
            assert keys({"api": {f"{begin}a.b/v1/": "5/s"}}, Request(url)) == ["api http://a.b/v1/||5"]


def test_an_address_that_is_not_known_yet_is_left_out() -> None:
    """It is asked for once the request has its proxy; of one that goes directly it is the node's."""
    limits = {"ip": "3/s"}
    assert keys(limits, Request(SHOP), None) == []
    assert keys(limits, Request(SHOP), "203.0.113.7") == ["ip|203.0.113.7|3"]


def test_the_agent_is_the_settings_unless_the_request_says_another() -> None:
    """As Scrapy will send it."""
    assert keys({"ua": "2/s"}, Request(SHOP), USER_AGENT="crawler") == ["ua|crawler|2"]


def test_a_function_gives_a_key_or_none() -> None:
    """What is neither text nor None, and what it raises, refuses the request."""
    path = f"{__name__}.by_fragment"
    assert keys({path: "2/s"}, Request("http://a.b/#x")) == [f"{path}|x|2"]
    assert keys({path: "2/s"}, Request("http://a.b/#none")) == []
    for fragment, why in (("bad", "returned 5"), ("unknown", "raised KeyError")):
        with pytest.raises(RequestRefused, match=why):
            keys({path: "2/s"}, Request(f"http://a.b/#{fragment}"))


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"lease_rate_cost": 0}, "whole number from 1"),
        ({"lease_rate_cost": 1.5}, "whole number from 1"),
        ({"lease_rate_cost": True}, "whole number from 1"),
        ({"lease_rate_cost": 6}, "it costs 6"),
        ({"lease_rate": "no"}, "must be False"),
        ({"lease_rate": 0}, "must be False"),
    ],
)
def test_meta_that_cannot_be_refuses_the_request(meta: dict[str, Any], why: str) -> None:
    """It names the key and its value, and what is allowed."""
    with pytest.raises(RequestRefused, match=why):
        keys({"api": "5/s"}, Request(SHOP, meta=meta))


def test_an_exempt_request_has_no_key() -> None:
    """lease_rate = False."""
    assert keys({"api": "5/s", "ip": "1/s"}, Request(SHOP, meta={"lease_rate": False})) == []


def test_keys_outside_of_the_share_are_shadows() -> None:
    """They are named, and nothing is asked for; the same keys on every host."""
    charger, names = charger_of({"api": "5/s", "ip": "1/s"}, share=0.0)
    price, _ = charger.price(Request(SHOP), "")
    assert (price.needs, price.shadows, names) == ((), ("api", "ip"), [])


def test_keys_are_found_once_until_counters_are_forgotten() -> None:
    """Of two pages of a site the second costs no search; two that a rule tells apart are two."""
    charger, names = charger_of({"ua": "5/s", "api": {"http://a.b/x/": "1/s", "*": "2/s"}})
    for path in ("x/1", "x/2", "y/1", "y/2"):
        charger.price(Request(f"http://a.b/{path}"), "")
    assert [name.partition("|")[0] for name in names] == ["ua", "api http://a.b/x/", "ua", "api"]
    charger.forget()
    charger.price(Request("http://a.b/x/3"), "")
    assert len(names) == 6


def test_another_price_gives_up_the_reservation() -> None:
    """Of a request that turned out to go from another address; the same price keeps it."""
    charger, _ = charger_of({"ip": "5/s"})
    charge = Charge()
    charge.change(*charger.price(Request(SHOP), "10.0.0.1"))
    charge.reserve()
    first = charge.needs[0]
    charge.change(*charger.price(Request(SHOP), "10.0.0.1"))
    assert (charge.is_reserved, first.reserved) == (True, 1)
    charge.change(*charger.price(Request(SHOP), "10.0.0.2"))
    assert (charge.is_reserved, first.reserved, charge.needs == (first,)) == (False, 0, False)


def test_a_fault_is_told_on_the_way_through_the_middlewares() -> None:
    """A request that is held ready and cannot be charged may start: it fails where its item can see it."""
    charger, _ = charger_of({"api": "5/s"})
    charges = Charges(charger, likely_exit="", is_volatile=False)
    request = Request(SHOP, meta={"lease_rate_cost": 6})
    assert charges.likely(request).needs == ()
    with pytest.raises(RequestRefused):
        charges.settled(request, "")
