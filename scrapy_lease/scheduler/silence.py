"""Since when, and until when, the store is so silent that a crawl goes on without it."""

from __future__ import annotations

from scrapy_lease.runtime import Runtime

#: Seconds of silence after which the store is away: for a session that is confirmed, and for one that is not any more.
AWAY, DOUBT = 1.0, 0.5


class Silence:
    """See the module's docstring. A session that is known to be lost waits instead: others may have what it held."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"<Silence of {self._runtime.store_silent_for():.1f} s>"

    def has_begun(self) -> bool:
        """Is the store away at this instant?"""
        session, silent = self._runtime.session, self._runtime.store_silent_for()
        if session.is_lost or session.is_closed:
            return False
        if session.is_confirmed:
            return self._runtime.availability.down_since is not None and silent >= AWAY
        return silent >= DOUBT

    def is_over(self) -> bool:
        """Is it back, or is there no session for which it matters?"""
        session = self._runtime.session
        return session.is_closed or (session.is_confirmed and self._runtime.availability.down_since is None)
