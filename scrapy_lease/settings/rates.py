"""The section of rate limits."""

from __future__ import annotations

import socket
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from scrapy_lease.leases.rates.days import zone_of
from scrapy_lease.settings.base import Section, setting
from scrapy_lease.settings.proxy_values import from_json
from scrapy_lease.settings.rate_rules import checked_limits
from scrapy_lease.settings.values import Count, Name, PositiveSeconds, Seconds

#: Of the documentation's network: a socket that is only connected sends nothing.
_ANYWHERE = ("192.0.2.1", 9)


def own_address() -> str:
    """Return the address from which this host sends, as far as it can know: not what a NAT makes of it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _checked_zone(name: str) -> str:
    try:
        zone_of(name)
    except (KeyError, OSError, ValueError):
        raise ValueError("is no time zone of the IANA database") from None
    return name


RateLimits = Annotated[
    Any,
    BeforeValidator(from_json),
    AfterValidator(lambda value: None if value is None else checked_limits(value)),
]
"""LEASE_RATE_LIMITS; read, it is a tuple of `scrapy_lease.settings.rate_rules.Dimension`."""


Zone = Annotated[str, AfterValidator(_checked_zone)]


class RateSettings(Section):
    """Rates"""

    rate_enabled: bool = setting(True, "Off: no rate limit is kept; values are still checked.", allowed="True or False")
    rate_limits: RateLimits = setting(
        None,
        "What all hosts together send at most, by dimension: `ip` (the exit address), `ua` (the User-Agent as sent), "
        "`api` and `domain` (the site), `account` (the leased one), or a path to `f(request) -> str | None`. A limit, "
        "or a list of them, holds for each key by itself: `{\"ip\": \"100/minute\", \"ua\": [\"5/second\", "
        "\"500/hour\"]}`. `api` and `domain` may have rules instead: a URL prefix, `re:…` or a host, each with its "
        "limits; the first that takes a request counts, `*` is each other site.",
        allowed="a dict of dimensions to limits like '50/second', '50 per second', '100/5 minutes'",
        shown_default="–",
    )  # fmt: skip
    rate_algorithm: Literal["fixed", "sliding"] = setting(
        "fixed",
        "`fixed`: windows on the server's clock, so twice the limit may fall around the end of one. `sliding`: never "
        "more than the limit in any window, for more calls to the store.",
        allowed='"fixed" or "sliding"',
    )
    rate_pace: bool = setting(False, "Spread permits evenly over their window.", allowed="True or False")
    rate_park_after: Seconds = setting(
        1,
        "Waiting longer than this, a request waits outside of the window of requests held ready, so that others may "
        "take its place there.",
        allowed="a number from 0",
        unit="seconds",
    )
    rate_shards: Count = setting(
        1,
        "Counters of each key: for keys that one server of a cluster could not count.",
        allowed="a whole number from 1",
    )
    rate_retry_after_max: PositiveSeconds = setting(
        900,
        "Longest pause for which a site that is limited here is left alone when it asks for one (429, `Retry-After`).",
        allowed="a number above 0",
        unit="seconds",
    )
    rate_escalate: Count = setting(
        5,
        "Addresses that a site has to ask for a pause within a minute until nobody sends anything there.",
        allowed="a whole number from 1",
    )
    node_ip: Name = setting(
        own_address,
        "The address from which this host sends, for the dimension `ip` of requests that go directly; hosts behind one "
        "NAT share it.",
        allowed="an address",
        shown_default="this host's address",
    )
    timezone: Zone = setting(
        "UTC",
        "Whose days the limits for a day follow, and the quotas, hours and daily refill of accounts.",
        allowed="a name like Europe/Berlin",
    )
