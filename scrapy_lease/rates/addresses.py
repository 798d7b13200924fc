"""Leased proxies whose addresses have no permits left, or accounts: others are taken first; who finds none waits."""

from __future__ import annotations

import time
from collections.abc import Set
from typing import Any

from scrapy import Request

from scrapy_lease.pools.uses import Uses

_NONE: frozenset[str] = frozenset()


class Addresses:
    """See the module's docstring.

    :param uses: of proxies or of accounts; they are told which to leave alone.
    """

    def __init__(self, uses: Uses[Any]) -> None:
        self._uses = uses
        #: Id of a resource -> clock time (s) at which it may have permits again.
        self._spent: dict[str, float] = {}
        uses.spent = self.spent

    def __repr__(self) -> str:
        return f"<Addresses: {len(self._spent)} spent>"

    def spent(self) -> Set[str]:
        """Return the ids of those that have no permits left for now."""
        if not self._spent:
            return _NONE
        now = time.monotonic()
        self._spent = {name: until for name, until in self._spent.items() if until > now}
        return self._spent.keys()

    def spend(self, request: Request, until: float) -> None:
        """What *request* was to go with has no permits left before clock time *until* (s)."""
        if (use := self._uses.use_of(request)) is not None:
            self._spent[use.lease.id] = until

    def may_start(self, request: Request) -> float | None:
        """May *request*, which is held ready, find one that has permits left? None: yes.

        Else the clock time (s) before which there is none; 0: they are busy.
        """
        spent = self.spent()
        need = self._uses.waiting_room.need_of(request) if spent else None
        if need is None:
            return None
        name, site, coming = need
        found = self._uses.keeper.pools[name].has_other(spent, site, coming)
        if found is None:
            return min(self._spent.values())
        return None if found else 0.0


def exit_of(proxies: Uses[Any] | None, request: Request) -> str:
    """Return the address from which *request* goes: its proxy's exit, or id; "": it goes through none."""
    use = proxies.use_of(request) if proxies is not None else None
    return "" if use is None else use.lease.exit or use.lease.id
