"""The past of a pool, made of the events it tells: which session of which node had which proxy, from when to when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scrapy_lease.store.pool_reading import Event

#: What an event says of a proxy's exit address beside what it says of the proxy.
_EXIT_TELLERS = ("new", "moved")


@dataclass(slots=True)
class Row:
    """Something that happened to a proxy. Times are s of the server's wall clock.

    :param what: ``lease``, or what else happened, as :class:`~scrapy_lease.store.pool_reading.Event` calls it.
    :param exit: the exit address it had then, ``""`` if that is not known.
    :param until: when a lease ended, None: it has not.
    :param why: why a lease ended, or what is known of anything else.
    """

    at: float
    what: str
    proxy: str
    exit: str
    node: str
    session: str
    fence: int
    until: float | None = None
    why: str = ""


def history(events: Sequence[Event], exits: Mapping[str, str]) -> list[Row]:
    """Return a row for each lease, and for whatever else happened to a proxy, in the order of time.

    :param events: of one pool, oldest first.
    :param exits: the exit addresses of proxies as they are now: they count for those of which no event tells one.
    """
    told = {proxy for event in events if event.what in _EXIT_TELLERS for proxy in event.ids}
    exit_of = {proxy: exit for proxy, exit in exits.items() if proxy not in told}
    held: dict[str, Row] = {}
    rows = []
    for event in events:
        for proxy in event.ids if event.what != "pause" else ():
            if event.what in _EXIT_TELLERS:
                exit_of[proxy] = event.why
            before = held.get(proxy)
            if event.what == "back" and before is not None and before.fence == event.fence:
                _end(held.pop(proxy), event.at, event.why or "given back")
                continue
            row = _row(event, proxy, exit_of.get(proxy, ""))
            if event.what == "take":
                if before is not None:
                    _end(before, event.at, "kept by the session after it")
                held[proxy] = row
            rows.append(row)
    return rows


def _row(event: Event, proxy: str, exit: str) -> Row:
    what = "lease" if event.what == "take" else event.what
    why = "" if event.what in ("take", *_EXIT_TELLERS) else event.why
    return Row(event.at, what, proxy, exit, event.node, event.session, event.fence, why=why)


def _end(row: Row, at: float, why: str) -> None:
    row.until, row.why = at, why
