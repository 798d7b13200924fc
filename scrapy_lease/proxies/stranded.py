"""Accounts whose only proxy has just begun to rest: what goes as one of them need not wait for it.

It is remembered for no longer than a request would wait: after that the store is asked again, where an operator may
have ended the rest.
"""

from __future__ import annotations

import time

from scrapy_lease.providers.owned import Owner


class Stranded:
    """See the module's docstring."""

    def __init__(self) -> None:
        #: Key of an account, pool of proxies and site -> clock time (s) until which.
        self._until: dict[tuple[str, str, str], float] = {}

    def __repr__(self) -> str:
        return f"<Stranded: {len(self._until)}>"

    def note(self, owner: Owner, pool: str, site: str, seconds: float) -> None:
        """The proxy of an account in *pool* will not serve *site* for so long."""
        now = time.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        self._until[owner.key, pool, site] = now + seconds

    def left(self, owner: Owner, pool: str, site: str) -> float:
        """Return for how many seconds it will not; 0 or less: it may."""
        until = self._until.get((owner.key, pool, site)) if self._until else None
        return 0.0 if until is None else until - time.monotonic()
