"""Whether a pool is of any use: is there anything in it, and does anything answer through it?

A pool is *silent* from the first failure on (no connection, no answer, half of one) that no answer through it has
followed, whichever session got it. So what comes back after a rest, and fails again, is of no use, and a site that
refuses whatever is sent to it is no fault of the pool.
"""

from __future__ import annotations

from collections.abc import Callable

from scrapy_lease.leases.pool.options import Kind, PoolOptions, Standing
from scrapy_lease.leases.session import boot_time

#: What says that an answer came through.
ANSWERS: frozenset[Kind] = frozenset({"ok", "target", "ban", "limited", "logged_out"})


class Vitals:
    """See the module's docstring.

    :param clock: the boot-time clock, in s.
    """

    def __init__(self, options: PoolOptions, clock: Callable[[], float] = boot_time) -> None:
        self._is_minted = options.is_minted
        self._waits = options.account is not None and options.account.waits_for_quota
        self._clock = clock
        #: Clock times (s): of the last answer here; since when nothing is there; since when nothing has answered.
        self._answered: float | None = None
        self._empty_since: float | None = None
        self._silent_since: float | None = None
        self._others_hold = False

    def __repr__(self) -> str:
        return f"<Vitals: of no use for {self.useless_for:.1f} s>"

    @property
    def is_empty(self) -> bool:
        """Was nothing free, nor leased by anybody, when the store answered last?"""
        return self._empty_since is not None

    @property
    def answered_ago(self) -> int:
        """Milliseconds since the last answer here; -1: none came."""
        return -1 if self._answered is None else int((self._clock() - self._answered) * 1000)

    @property
    def useless_for(self) -> float:
        """Seconds for which nothing there is has been of use; 0 while something is, or others hold what may be.

        Ids that are made for the asking are as good as each other, whoever holds them.
        """
        since = self._empty_since
        if self._silent_since is not None and not self._others_hold:
            since = self._silent_since if since is None else min(since, self._silent_since)
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def judged(self, kind: Kind) -> None:
        """A use has ended so."""
        if kind in ANSWERS:
            self._answered, self._silent_since = self._clock(), None

    def stands(self, standing: Standing, own: int) -> None:
        """The store says how the pool stands, and that *own* of the leases are this session's."""
        now = self._clock()
        is_waiting = self._waits and (standing.spent > 0 or standing.shut > 0)
        is_shut = standing.shut > 0 and not standing.leased
        if is_waiting or (standing.free + standing.spotted + standing.leased and not is_shut):
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now
        self._others_hold = standing.leased > own and not self._is_minted
        since = now - standing.silent / 1000
        is_over = not standing.silent or (self._answered is not None and self._answered >= since)
        self._silent_since = None if is_over else since
