"""LEASE_PROXIES: a list of proxy URLs, or a file that has one on each line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scrapy_lease.providers.address import Address, parse_address
from scrapy_lease.providers.minted import Gateway, is_gateway, parse_gateway

_BETWEEN_URLS = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list names: addresses of proxies, or gateways; never both."""

    proxies: tuple[Address, ...] = ()
    gateways: tuple[Gateway, ...] = ()


def checked_proxies(value: str | Sequence[str]) -> Listed:
    """Read LEASE_PROXIES: a list of URLs, as such or as a string, or the path of a file with one URL a line.

    In a file, what follows ``#`` at the begin of a line or after a space is a comment.

    :raises ValueError: some cannot be used; the text says which and why, without user names and passwords.
    """
    if isinstance(value, str):
        return _listed(_from_string(value.strip()))
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"is a {type(value).__name__}: give a list of proxy URLs, or the path of a file with one a line"
        )
    return _listed((f"entry {number}", entry) for number, entry in enumerate(value, 1))


def _from_string(text: str) -> Iterator[tuple[str, object]]:
    if text.startswith("["):
        try:
            entries = json.loads(text)
        except ValueError:
            raise ValueError("begins like a JSON list and is none") from None
    elif "://" in text:
        entries = _BETWEEN_URLS.split(text)
    else:
        yield from _from_file(text)
        return
    yield from ((f"entry {number}", entry) for number, entry in enumerate(entries, 1))


def _from_file(path: str) -> Iterator[tuple[str, object]]:
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("names a file that is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be opened"
        raise ValueError(f"is neither a proxy URL (with ://) nor a file that can be read: {reason}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if entry := _COMMENT.sub("", line).strip():
            yield f"line {number}", entry


def _listed(entries: Iterable[tuple[str, object]]) -> Listed:
    proxies: dict[Address, None] = {}
    gateways: dict[str, Gateway] = {}
    wrong: list[str] = []
    for place, entry in entries:
        try:
            if not isinstance(entry, str):
                raise ValueError(f"is a {type(entry).__name__}, not a string")
            if is_gateway(entry):
                gateways[entry] = parse_gateway(entry)
            else:
                proxies[parse_address(entry)] = None
        except ValueError as error:
            wrong.append(f"{place} {error}")
    if wrong:
        more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
        raise ValueError("; ".join(wrong[:_MOST_TOLD]) + more)
    if proxies and gateways:
        raise ValueError(
            "has gateways ({session}) beside proxies: give each kind a pool of its own in LEASE_PROXY_POOLS"
        )
    if not proxies and not gateways:
        raise ValueError("names no proxy")
    return Listed(tuple(proxies), tuple(gateways.values()))
