"""What people give a command as arguments or in a file: URLs, or JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import click
import msgspec

from scrapy_lease.exceptions import LeaseError

#: Wrong lines that are shown one by one.
SHOWN_FAULTS = 20


def lines_of(urls: Iterable[str], source: TextIO | None) -> Iterator[tuple[str, str]]:
    """Return each thing given as text, with where it stands."""
    for number, url in enumerate(urls, 1):
        yield f"URL {number}", url
    try:
        for number, line in enumerate(source or (), 1):
            if text := line.strip():
                yield f"line {number}", text
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{getattr(source, 'name', 'the file')} is not UTF-8 text: {error}") from None


def fields_in(text: str) -> dict[str, Any]:
    """Return the fields that a line gives; one that is no JSON object is the field ``url``.

    :raises LeaseError: it begins like an object and is none.
    """
    if not text.startswith("{"):
        return {"url": text}
    try:
        fields: dict[str, Any] = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise LeaseError(f"is no JSON object: {error}") from None
    return fields


def tell_fault(number: int, fault: str) -> None:
    """Show *fault*, the wrong line number *number*, unless there were many already."""
    if number <= SHOWN_FAULTS:
        click.echo(fault, err=True)
    elif number == SHOWN_FAULTS + 1:
        click.echo("more wrong lines follow, which are counted only", err=True)
