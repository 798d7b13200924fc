"""Why requests with what a pool has failed lately, for people."""

from __future__ import annotations

import time
from collections import Counter, deque

#: So many are counted, and none older than so many seconds.
LAST, RECENT = 100, 300.0


class Failures:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._last: dict[str, deque[tuple[float, str]]] = {}

    def __repr__(self) -> str:
        return f"<Failures of {', '.join(self._last) or 'no pool'}>"

    def note(self, pool: str, why: str) -> None:
        """A request failed with one of *pool*."""
        self._last.setdefault(pool, deque(maxlen=LAST)).append((time.monotonic(), why))

    def told(self, pool: str) -> str:
        """Return the reasons of late, the most frequent first, in brackets; "" for none."""
        since = time.monotonic() - RECENT
        counts = Counter(why for at, why in self._last.get(pool, ()) if at >= since)
        reasons = ", ".join(f"{count} × {why}" for why, count in counts.most_common(5))
        return f" (lately {reasons})" if reasons else ""
