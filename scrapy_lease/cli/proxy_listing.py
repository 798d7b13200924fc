"""Leased proxies as they are shown, to people and to programs."""

from __future__ import annotations

from typing import Any

from scrapy_lease.cli.pool_finding import Found
from scrapy_lease.cli.proxy_checking import Checked
from scrapy_lease.cli.proxy_history import Row
from scrapy_lease.cli.text_table import iso_time
from scrapy_lease.providers.identity import shown


def fields_of(found: Found) -> dict[str, Any]:
    """Return what is shown of a proxy; `rests` maps sites to the seconds left, 0 where its next use is a probe."""
    record = found.record
    return {
        "pool": found.pool.name,
        "proxy": shown(record.id),
        "id": record.id,
        **found.lease,
        "expires": None if record.expires is None else iso_time(record.expires),
        "exit": record.exit or None,
        "strikes": record.strikes,
        "wait": round(record.wait, 1),
        "rests": {site: round(seconds, 1) for site, seconds in sorted(record.rests.items())},
    }


def cells_of(found: Found) -> tuple[Any, ...]:
    """Return the cells of a proxy in the table of :data:`COLUMNS`."""
    fields = fields_of(found)
    rests = ", ".join(f"{site} {f'{left:.0f} s' if left else '(probe)'}" for site, left in fields["rests"].items())
    state = found.state(is_timed=found.record.state == "resting")
    return (fields["proxy"], fields["pool"], state, *(fields[name] for name in _PLAIN), rests)


_PLAIN = ("node", "session", "since", "expires", "exit")
COLUMNS = ("proxy", "pool", "state", *_PLAIN, "rests for")


def row_fields(row: Row, pool: str) -> dict[str, Any]:
    """Return what is shown of a line of the past."""
    return {
        "at": iso_time(row.at),
        "until": None if row.until is None else iso_time(row.until),
        "seconds": None if row.until is None else round(row.until - row.at, 1),
        "what": row.what,
        "pool": pool,
        "proxy": shown(row.proxy),
        "exit": row.exit or None,
        "node": row.node or None,
        "session": row.session or None,
        "fence": row.fence or None,
        "why": row.why or None,
    }


def checked_fields(checked: Checked) -> dict[str, Any]:
    """Return what is shown of a proxy that was tried."""
    found = checked.found
    return {
        "proxy": shown(found.record.id),
        "pool": found.pool.name,
        "works": checked.works,
        "seconds": round(checked.seconds, 2),
    }
