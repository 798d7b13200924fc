"""What those who judge leases may do with them, and ask: the part of a pool's stock that blames need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from scrapy_lease.leases.pool.blame import WITNESSES
from scrapy_lease.leases.pool.options import Standing
from scrapy_lease.leases.pool.shelf import Lease, Shelf, Word
from scrapy_lease.leases.pool.turns import Turns
from scrapy_lease.leases.pool.wants import Line


class Bench:
    """See the module's docstring.

    :ivar count: counts an event.
    """

    shelf: Shelf
    turns: Turns
    count: Callable[[str], None]
    untried: Callable[[str], bool]
    standing: Standing | None
    _line: Line
    _demand: Callable[[], Mapping[str, int]]

    @abstractmethod
    def leave(self, lease: Lease) -> None:
        """The lease has ended: say so, by its farewell."""

    @property
    def known(self) -> int:
        """Resources of the pool at the last answer."""
        return self.standing.known if self.standing is not None else WITNESSES

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Tell the store in a later turn; the lease stays."""
        self.turns.outbox.append(Word(lease, verb, args))
        self.turns.nudge()

    def tell_view(self, lease: Lease, site: str, *, is_serving: bool) -> None:
        """Tell the store how the lease serves the site, for its next holder: at once what is said against it."""
        # Meanwhile it may be here under another lease, or not at all.
        held, suspect = self.shelf.get(lease.id), lease.suspects.get(site, "")
        if held is None:
            return
        if is_serving:
            held.told.add(site)
        self.turns.outbox.append(Word(held, "view", (site, int(is_serving), suspect)))
        if not is_serving:
            self.turns.nudge()

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Let the lease end with its last request, by this verb."""
        if self.shelf.part(lease, verb, args):
            self.leave(lease)

    def is_of_use(self, lease: Lease) -> bool:
        """Is there a site that this process has to do with and the lease may serve?"""
        sites = self.shelf.used_sites() | {waiter.site for waiter in self._line} | self._demand().keys()
        return any(lease.may_serve(site) for site in sites)

    def has_untried(self, site: str) -> bool:
        """Is there a request to *site* at hand that was not refused yet?"""
        return self.untried(site) or any(waiter.site == site and not waiter.avoid for waiter in self._line)
