"""Looks whether leased proxies work: a page is fetched through each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scrapy_lease.cli.pool_finding import Found
from scrapy_lease.providers.address import parse_address
from scrapy_lease.providers.checking import AT_ONCE, Check
from scrapy_lease.providers.source import read_body


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether a proxy led to the page, and after how many seconds that was known."""

    found: Found
    works: bool
    seconds: float


async def check_all(found: Sequence[Found], check: Check) -> list[Checked]:
    """Try each proxy, some at a time; the result is in their order."""
    permits = asyncio.Semaphore(AT_ONCE)

    async def try_one(each: Found) -> Checked:
        async with permits:
            started = time.monotonic()
            works = await check.works(parse_address(read_body(each.record.body).url))
            return Checked(each, works, time.monotonic() - started)

    return await asyncio.gather(*map(try_one, found))
