"""Counts what becomes of requests, by dimension."""

from __future__ import annotations

from collections.abc import Iterable

from scrapy_lease.rates.charges import Charge
from scrapy_lease.stats import Stats


class Tally:
    """See the module's docstring.

    :param unseen: the dimensions for whose sake those wait that have none in sight.
    """

    def __init__(self, stats: Stats, dimensions: Iterable[str], unseen: tuple[str, ...]) -> None:
        self._unseen = unseen
        self._count = {name: stats.of_pool("rate", name) for name in dimensions}

    def __repr__(self) -> str:
        return f"<Tally of {', '.join(self._count)}>"

    def sent(self, charge: Charge) -> None:
        """A request was sent."""
        for name in charge.price.dimensions:
            self._count[name]("granted", charge.cost)
            if charge.has_waited:
                self._count[name]("waited")
        for name in charge.price.shadows:
            self._count[name]("shadow", charge.cost)

    def parked(self, charges: Iterable[Charge]) -> None:
        """Requests were parked."""
        for charge in charges:
            for name in charge.price.dimensions or self._unseen:
                self._count[name]("parked")
