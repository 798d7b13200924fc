"""What the live sessions of a namespace limit, and what of theirs waits: told and heard about once a second.

Where sessions differ in what they limit in a dimension that both limit, each keeps to all of it: so the strictest
holds, whatever the windows and rules are in which it is said.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

from scrapy_lease.leases.session import Session
from scrapy_lease.rates.line import Waits
from scrapy_lease.rates.prices import Charger
from scrapy_lease.settings.rate_rules import Dimension, checked_limits, spec_of
from scrapy_lease.settings.values import shown
from scrapy_lease.store.rate_scripts import RateScripts

logger = logging.getLogger(__name__)

#: Seconds for which what a session limits counts after it was heard of last.
KEEP = 5.0


class Neighbours:
    """See the module's docstring.

    :param waits: returns what waits here.
    """

    def __init__(
        self, store: RateScripts, session: Session, dimensions: Iterable[Dimension], charger: Charger,
        waits: Callable[[], Waits],
    ) -> None:  # fmt: skip
        self._store = store
        self._session = session
        self._spec = spec_of(dimensions)
        self._own: dict[str, Any] = json.loads(self._spec)
        self._charger = charger
        self._waits = waits
        self._others: list[str] = []
        self._named: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<Neighbours: {len(self._others)} with other limits>"

    async def look(self) -> dict[str, float]:
        """Tell and hear; return what is paused, each key with the seconds that are left.

        :raises StoreError: no answer.
        """
        waits = [[name, number, math.ceil(1000 * seconds)] for name, (number, seconds) in self._waits().items()]
        text = json.dumps(waits) if waits else ""
        blocked, others = await self._store.look(self._session.sid, self._spec, keep=int(KEEP * 1000), waits=text)
        if others != self._others:
            self._others = others
            self._charger.add(found for spec in others for found in self._read(spec))
        return blocked

    def _read(self, spec: str) -> Iterable[Dimension]:
        """Yield what others limit in dimensions that are limited here, too, and otherwise."""
        try:
            given = {name: limits for name, limits in json.loads(spec).items() if name in self._own}
            found = checked_limits(given) if given else ()
        except (ValueError, AttributeError) as error:
            logger.warning("Rate limits of another live session are not understood here, and not kept: %s", error)
            return
        for dimension in found:
            name, limits = dimension.name, given[dimension.name]
            if limits != self._own[name]:
                self._warn(name, shown("", json.dumps(limits)))
                yield dimension

    def _warn(self, name: str, limits: str) -> None:
        if (name, limits) not in self._named:
            self._named.add((name, limits))
            logger.warning(
                "Another live session limits %r otherwise (LEASE_RATE_LIMITS): the strictest holds, so its limits "
                "count here, too: %s", name, limits,
            )  # fmt: skip
