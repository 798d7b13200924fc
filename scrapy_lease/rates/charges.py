"""What each request that is at hand costs, from when it is held ready until it is sent."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary

from scrapy import Request

from scrapy_lease.leases.rates import Counter
from scrapy_lease.meta import RequestRefused
from scrapy_lease.rates.prices import FREE, Charger, Price


class Charge:
    """What one try of a request costs.

    :ivar price: what it takes permits of; *cost*: how many of each.
    :ivar is_reserved: are permits reserved for it? *is_settled*: was it priced with the headers and the proxy of a try?
    :ivar as_of: how often prices had changed when it was priced, 0: it was not; *fault*: why it cannot be.
    :ivar not_before: clock time (s) before which it need not be tried again; *is_paused*: because its site said so?
    :ivar denials: how often in a row it had to go back; *has_waited*: has it waited at all?
    """

    __slots__ = (
        "as_of", "cost", "denials", "fault", "has_waited", "is_paused", "is_reserved", "is_settled", "needs",
        "not_before", "price",
    )  # fmt: skip

    def __init__(self) -> None:
        self.price = FREE
        self.needs: tuple[Counter, ...] = ()
        self.cost = 1
        self.as_of = 0
        self.is_reserved = self.is_settled = self.has_waited = self.is_paused = False
        self.fault: RequestRefused | None = None
        self.not_before = float("-inf")
        self.denials = 0

    @property
    def group(self) -> Hashable:
        """Those of one group wait for the same."""
        return self.needs if self.not_before == float("-inf") else self

    def __repr__(self) -> str:
        return f"<Charge {self.cost} of {list(self.needs)}>"

    def change(self, price: Price, cost: int) -> None:
        """It costs this from now on; a reservation of anything else is given up."""
        if price.needs != self.needs or cost != self.cost:
            self.release()
        self.price, self.needs, self.cost = price, price.needs, cost

    def reserve(self) -> None:
        """Leave its permits to it, which is on its way: a promise of this process, no longer than their window."""
        if not self.is_reserved:
            for counter in self.needs:
                counter.reserved += self.cost
            self.is_reserved = True

    def release(self) -> None:
        """It does not count on its reservation any more, if it has one."""
        if self.is_reserved:
            for counter in self.needs:
                counter.reserved -= self.cost
            self.is_reserved = False


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
        charge = self._charge_of(request)
        if charge.is_settled or charge.as_of != self._charger.changes:
            charge.is_settled, charge.fault, charge.as_of = False, None, self._charger.changes
            try:
                charge.change(*self._charger.price(request, self._likely_exit))
            except RequestRefused as error:
                # Told where it can be: on the request's way through the middlewares.
                charge.change(FREE, 1)
                charge.fault = error
        return charge

    def settled(self, request: Request, exit_: str) -> Charge:
        """Return what a request costs that has its headers, and goes from *exit_*.

        :raises RequestRefused: its meta asks for what cannot be, or a function fails.
        """
        charge = self._charge_of(request)
        if self.is_volatile or charge.as_of != self._charger.changes:
            charge.as_of = self._charger.changes
            charge.change(*self._charger.price(request, exit_))
            charge.is_settled = self.is_volatile
        elif charge.fault is not None:
            raise charge.fault
        return charge

    def _charge_of(self, request: Request) -> Charge:
        charge = self._charges.get(request)
        if charge is None:
            charge = self._charges[request] = Charge()
        return charge
