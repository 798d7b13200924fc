"""LEASE_ACCOUNTS: a list of accounts, or a file that has one on each line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from scrapy_lease.accounts.account import Account
from scrapy_lease.providers.entries import in_file, in_json, numbered, refuse


def checked_accounts(value: object) -> tuple[Account, ...]:
    """Read LEASE_ACCOUNTS: a list of dicts, as such or as JSON, or the path of a file with one JSON object a line.

    In a file, lines that are empty or begin with ``#`` are left out.

    :raises ValueError: some cannot be used; the text says which and why, without secrets.
    """
    if isinstance(value, str):
        return _read(_from_string(value.strip()))
    if not isinstance(value, list | tuple):
        raise ValueError(f"is a {type(value).__name__}: give a list of dicts, or the path of a file of JSON lines")
    return _read(numbered(value))


def _from_string(text: str) -> Iterator[tuple[str, object]]:
    if text.startswith("["):
        return in_json(text)
    lines = in_file(text, "a JSON list")
    return ((place, line) for place, line in lines if line.strip() and not line.lstrip().startswith("#"))


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
    refuse(wrong)
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
