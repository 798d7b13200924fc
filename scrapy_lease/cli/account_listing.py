"""Leased accounts as they are shown, to people and to programs."""

from __future__ import annotations

from typing import Any

from scrapy_lease.cli.pool_finding import Found

_PLAIN = ("node", "session", "since", "used")
COLUMNS = ("account", "pool", "state", *_PLAIN)


def fields_of(found: Found) -> dict[str, Any]:
    """Return what is shown of an account; `used`: of its quota of the present local day."""
    record = found.record
    return {
        "pool": found.pool.name,
        "account": record.id,
        **found.lease,
        "used": record.used,
        "strikes": record.strikes,
        "wait": round(record.wait, 1),
    }


def cells_of(found: Found) -> tuple[Any, ...]:
    """Return the cells of an account in the table of :data:`COLUMNS`."""
    fields = fields_of(found)
    waits = found.record.state in ("cooling", "benched", "spent") and found.record.wait > 0
    return (fields["account"], fields["pool"], found.state(is_timed=waits), *(fields[name] for name in _PLAIN))
