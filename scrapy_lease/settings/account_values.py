"""How the values of the settings for accounts are read and checked."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from scrapy_lease.accounts.handler import checked_handler
from scrapy_lease.accounts.listed import checked_accounts
from scrapy_lease.accounts.sealing import checked_key
from scrapy_lease.leases.pool.calendar import checked_hours, checked_time
from scrapy_lease.settings.routes import MEDIA, checked_pattern, takes
from scrapy_lease.settings.values import PositiveSeconds

Pattern = str | re.Pattern[str]


class Pages:
    """LEASE_ACCOUNT_URLS, read: which pages are asked for by an account.

    :param patterns: begins of URLs, and expressions; None: all pages.
    :param has_media: what ``engine.download_async`` fetches is among them, as far as the patterns take it.
    """

    def __init__(self, patterns: tuple[Pattern, ...] | None = None, has_media: bool = False) -> None:
        self.patterns = patterns
        self.has_media = has_media

    def __repr__(self) -> str:
        return f"<Pages: {'all' if self.patterns is None else len(self.patterns)}>"

    def has(self, url: str, *, is_media: bool) -> bool:
        """Is a page among them?"""
        if is_media and not self.has_media:
            return False
        return self.patterns is None or any(takes(pattern, url) for pattern in self.patterns)


def checked_pages(value: Any) -> Pages:
    """Return LEASE_ACCOUNT_URLS read; raise ValueError saying what is wrong with it."""
    if isinstance(value, Pages):
        return value
    if isinstance(value, str):
        value = _split(value)
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("is no list of URLs")
    patterns = tuple(checked_pattern(each, f'or "{MEDIA}"') for each in value if each != MEDIA)
    return Pages(patterns or None, MEDIA in value)


def _split(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON ({error})") from None


def _or_none(check: Any) -> Any:
    """Return a validator that leaves None, which is not given, alone."""
    return AfterValidator(lambda value: None if value is None else check(value))


def _text(value: str) -> str:
    checked_hours(value)
    return value


def _time(value: str) -> str:
    checked_time(value)
    return value


AccountList = Annotated[Any, _or_none(checked_accounts)]
"""LEASE_ACCOUNTS; read, it is a tuple of `scrapy_lease.accounts.account.Account`."""
HandlerClass = Annotated[Any, _or_none(checked_handler)]
PageList = Annotated[Any, _or_none(checked_pages)]
"""LEASE_ACCOUNT_URLS; read, it is `Pages`."""
Hours = Annotated[str | None, _or_none(_text)]
TimeOfDay = Annotated[str, AfterValidator(_time)]
Key = Annotated[str | None, _or_none(checked_key)]
OrQuota = Literal["quota"] | PositiveSeconds
"""Seconds; "quota": until the quotas renew."""
OnProxyLost = Literal["rebind", "wait"]
