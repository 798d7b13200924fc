"""How a crawl refuses to start: one ERROR record that says everything, and no traceback after it."""

from __future__ import annotations

import logging

from scrapy.crawler import Crawler

from scrapy_lease.exceptions import LeaseError


def told(error: LeaseError, crawler: Crawler, logger: logging.Logger) -> LeaseError:
    """Log *error* and return it, to be raised: with it the crawl stops, and `scrapy` exits 1.

    ``scrapy crawl`` leaves the error in a task that nobody awaits, of which asyncio would say the same once more, with
    a traceback that tells an operator nothing. Who awaits the crawl gets the error as ever.
    """
    logger.error("%s", error, extra={"crawler": crawler})
    error.is_told = True
    logging.getLogger("asyncio").addFilter(_is_news)
    return error


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, LeaseError) and error.is_told)
