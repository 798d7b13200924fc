"""Rows for people: aligned columns of plain text, which any terminal, pipe and ticket shows alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print *rows* under the names of their *columns*; numbers are aligned to the right, None is a dash."""
    body = [[_shown(value) for value in row] for row in rows]
    is_number = [
        all(cell.replace(".", "", 1).isdigit() or cell == "-" for cell in cells) for cells in zip(*body, strict=True)
    ]
    widths = [max(map(len, cells)) for cells in zip(columns, *body, strict=True)]
    for line in (list(columns), *body):
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, is_number or [False] * len(columns), strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def counted(number: int, thing: str) -> str:
    """Return *number* with the name of what was counted, in the plural unless it is one; both are plain English."""
    return f"{number} {thing if number == 1 else f'{thing}s'}"


def iso_time(seconds: float) -> str:
    """Return the time *seconds* after the epoch as people and programs read it, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else str(value)
