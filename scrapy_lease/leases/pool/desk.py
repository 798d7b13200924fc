"""What a pool of accounts does besides: it asks for permits, keeps the calendar, and tells how accounts do."""

from __future__ import annotations

from scrapy_lease.leases.pool.accounts import AccountOptions, Terms
from scrapy_lease.leases.pool.bench import Bench
from scrapy_lease.leases.pool.health import Health
from scrapy_lease.leases.pool.options import Taken
from scrapy_lease.leases.pool.purse import farewell_of
from scrapy_lease.leases.pool.shelf import Lease


class Desk:
    """See the module's docstring.

    :param stock: the leases that are here.
    """

    def __init__(self, options: AccountOptions, stock: Bench) -> None:
        self.health = Health(options, stock)
        self.calendar = options.calendar
        self._options = options
        self._stock = stock

    def __repr__(self) -> str:
        return f"<Desk of {self._stock.shelf!r}>"

    @property
    def ready_in(self) -> float:
        """Seconds until an account here may be used again; infinite: that is no matter of time."""
        waits = (lease.purse.ready_in for lease in self._stock.shelf if lease.purse is not None)
        return min((wait for wait in waits if wait), default=float("inf"))

    def wants(self, *, is_awaited: bool) -> tuple[tuple[str, int], ...]:
        """Return the leases, as (id, fence), for which it is time to ask for permits.

        :param is_awaited: a request waits for an account.
        """
        more = []
        for lease in self._stock.shelf:
            purse = lease.purse
            if purse is not None and lease.farewell is None and (is_awaited or not purse.is_by_one) and purse.wants():
                more.append((lease.id, lease.fence))
        return tuple(more)

    def terms(self, more: tuple[tuple[str, int], ...]) -> Terms:
        """Return what the store is told with a take."""
        return self._options.terms(self.calendar.now(), more)

    def took(self, taken: Taken, asked: float) -> None:
        """Take in permits; give back what is of no use: its quota is used up, or the time of work is over."""
        for id_, permits in taken.more.items():
            lease = self._stock.shelf.get(id_)
            if lease is not None and lease.purse is not None:
                lease.purse.add(permits, asked)
        is_shut = taken.standing.shut > 0
        for lease in self._stock.shelf:
            if lease.purse is not None and (lease.purse.is_dry or (is_shut and lease.purse.has_ended)):
                self._stock.part(lease, "back", (0,))

    def tell_all(self) -> None:
        """Tell the store how accounts did, those of which it is time to."""
        for lease in self._stock.shelf:
            self.health.tell(lease)

    def takes_leave(self, lease: Lease) -> None:
        """A lease ends: tell how it did, and let its permits go back with it."""
        self.health.tell(lease, is_last=True)
        assert lease.farewell is not None
        verb, args = lease.farewell
        lease.farewell = verb, farewell_of(lease.purse, verb, args)
