"""Leased accounts as they are shown, to people and to programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from scrapy_lease.cli.pool_finding import Found
from scrapy_lease.cli.text_table import counted, iso_time

_PLAIN = ("node", "session", "since", "used")
COLUMNS = ("account", "pool", "state", *_PLAIN)


def fields_of(found: Found) -> dict[str, Any]:
    """Return what is shown of an account; `used`: of its quota of the present local day."""
    record = found.record
    return {
        "pool": found.pool.name,
        "account": record.id,
        "state": record.state,
        "flag": record.flag or None,
        "node": found.node or None,
        "session": record.session or None,
        "fence": record.fence or None,
        "since": None if record.since is None else iso_time(record.since),
        "used": record.used,
        "strikes": record.strikes,
        "wait": round(record.wait, 1),
    }


def cells_of(found: Found) -> tuple[Any, ...]:
    """Return the cells of an account in the table of :data:`COLUMNS`."""
    fields = fields_of(found)
    return (fields["account"], fields["pool"], _state(found), *(fields[name] for name in _PLAIN))


def _state(found: Found) -> str:
    record = found.record
    if record.state == "aside":
        return record.flag
    waits = record.state in ("cooling", "benched", "spent") and record.wait > 0
    parts = [f"{record.state} {record.wait:.0f} s" if waits else record.state, record.flag]
    if record.strikes:
        parts.append(counted(record.strikes, "strike"))
    return ", ".join(filter(None, parts))


def summary(found: Sequence[Found], shown_here: int) -> str:
    """Return one line about all that was found."""
    states = Counter(each.record.flag if each.record.state == "aside" else each.record.state for each in found)
    here = f", {shown_here} of them here" if shown_here < len(found) else ""
    told = f": {', '.join(f'{number} {state}' for state, number in sorted(states.items()))}" if found else ""
    return f"{counted(len(found), 'account')}{told}{here}"
