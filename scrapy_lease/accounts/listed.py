"""LEASE_ACCOUNTS: a list of accounts, or a file that has one on each line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from scrapy_lease.accounts.account import Account

_MOST_TOLD = 5


def checked_accounts(value: object) -> tuple[Account, ...]:
    """Read LEASE_ACCOUNTS: a list of dicts, as such or as JSON, or the path of a file with one JSON object a line.

    In a file, lines that are empty or begin with ``#`` are left out.

    :raises ValueError: some cannot be used; the text says which and why, without secrets.
    """
    if isinstance(value, str):
        return _read(_from_string(value.strip()))
    if not isinstance(value, list | tuple):
        raise ValueError(f"is a {type(value).__name__}: give a list of dicts, or the path of a file of JSON lines")
    return _read((f"entry {number}", entry) for number, entry in enumerate(value, 1))


def _from_string(text: str) -> Iterator[tuple[str, object]]:
    if not text.startswith("["):
        yield from _from_file(text)
        return
    try:
        entries = json.loads(text)
    except ValueError:
        raise ValueError("begins like a JSON list and is none") from None
    yield from ((f"entry {number}", entry) for number, entry in enumerate(entries, 1))


def _from_file(path: str) -> Iterator[tuple[str, object]]:
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("names a file that is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be opened"
        raise ValueError(f"is neither a JSON list nor a file that can be read: {reason}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"line {number}", line


def _read(entries: Iterable[tuple[str, object]]) -> tuple[Account, ...]:
    accounts: dict[str, Account] = {}
    wrong: list[str] = []
    for place, entry in entries:
        try:
            account = account_in(entry) if isinstance(entry, str) else Account.of(entry)
            if account.id in accounts:
                raise ValueError("has an id that stands there twice")
            accounts[account.id] = account
        except ValueError as error:
            wrong.append(f"{place} {error}")
    if wrong:
        more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
        raise ValueError("; ".join(wrong[:_MOST_TOLD]) + more)
    if not accounts:
        raise ValueError("names no account")
    return tuple(accounts.values())


def account_in(line: str) -> Account:
    """Read one account from *line*, a JSON object.

    :raises ValueError: it is none; the text shows nothing of it.
    """
    try:
        fields = json.loads(line)
    except ValueError:
        raise ValueError("is no JSON object") from None
    return Account.of(fields)
