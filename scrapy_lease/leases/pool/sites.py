"""Sites that failed on half of the pool: nothing goes there until the pause is over, and then one request tells.

The store decides which sites these are and for how long; here is what this process knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scrapy_lease.leases.session import boot_time


@dataclass(slots=True)
class _Pause:
    #: Clock time (s) until which nothing goes there; None: the store has to say, or has said that it may be tried.
    until: float | None = None
    may_try: bool = False
    is_tried: bool = False


class Sites:
    """See the module's docstring."""

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        #: What is known of each site that is paused, or whose pause is over but not yet proved to be.
        self.pauses: dict[str, _Pause] = {}
        self._clock = clock

    def __contains__(self, site: str) -> bool:
        return site in self.pauses

    def __repr__(self) -> str:
        return f"<Sites paused: {sorted(self.pauses)}>"

    def is_open(self, site: str) -> bool:
        """May a request to *site* start?"""
        pause = self.pauses.get(site)
        return pause is None or (pause.may_try and not pause.is_tried)

    def is_paused(self, site: str) -> bool:
        """Is there no use in asking for leases for *site* yet?"""
        pause = self.pauses.get(site)
        return pause is not None and pause.until is not None and pause.until > self._clock()

    def pause(self, site: str) -> None:
        """The site is paused; the next answer of the store tells for how long."""
        self.pauses[site] = _Pause()

    def heard(self, site: str, left: float) -> None:
        """The store says that the pause of *site* lasts *left* s more; 0: it is over, or there is none.

        Below 0: it is over, and this process is to find out whether it is, also if it has never heard of it.
        """
        pause = self.pauses.get(site)
        if pause is None and left < 0:
            pause = self.pauses[site] = _Pause()
        if left > 0:
            if pause is None:
                pause = self.pauses[site] = _Pause()
            pause.until, pause.may_try = self._clock() + left, False
        elif pause is not None:
            pause.until, pause.may_try = None, True

    def begin(self, site: str) -> bool:
        """A request to *site* starts; True: it is the probe of a pause that is over."""
        pause = self.pauses.get(site)
        if pause is None:
            return False
        pause.is_tried = True
        return True

    def ended(self, site: str) -> None:
        """The probe of *site* has ended, whatever it told."""
        if (pause := self.pauses.get(site)) is not None:
            pause.is_tried = False

    def served(self, site: str) -> None:
        """A probe has been served: the pause is over."""
        self.pauses.pop(site, None)
