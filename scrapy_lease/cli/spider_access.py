"""A spider as a tool needs it: what it would make of a request, without a crawl.

In a Scrapy project the spider is made as a crawl makes it (arguments, custom settings, add-ons), so its item keys are
those that the nodes compute. Elsewhere the key of a request is its fingerprint by Scrapy's own fingerprinter.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click
from scrapy import Request, Spider
from scrapy.addons import AddonManager
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import arglist_to_dict
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinter, RequestFingerprinterProtocol

from scrapy_lease.cli import F
from scrapy_lease.cli.store_access import project_settings
from scrapy_lease.exceptions import LeaseError
from scrapy_lease.meta import ItemKeys, digest_of, done_ttl
from scrapy_lease.payload import Codec, from_spec, request_from_spec
from scrapy_lease.settings import LeaseSettings
from scrapy_lease.store.scripts import Entry


def arguments_option(function: F) -> F:
    """Let a command take ``-a NAME=VALUE`` as its dict ``arguments``."""

    def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        try:
            return dict(arglist_to_dict(list(values)))
        except ValueError:
            raise click.BadParameter("must be NAME=VALUE") from None

    text = "Argument of the spider, as its crawls get it; as often as needed."
    return click.option("-a", "arguments", metavar="NAME=VALUE", multiple=True, callback=parse, help=text)(function)


@dataclass(frozen=True, slots=True)
class SpiderAccess:
    """See the module's docstring. *codec* is None where the spider's class is not at hand."""

    lease: LeaseSettings
    keys: ItemKeys
    codec: Codec | None

    def entry(self, spec: Mapping[str, Any]) -> Entry:
        """Return the entry of a JSON object as ``scrapy-lease push`` takes it.

        :raises LeaseError: it is no request of this spider.
        """
        payload = from_spec(spec)
        request = request_from_spec(spec) if self.codec is None else self.codec.decode(payload)
        key = self.keys.key_of(request)
        digest, mark = (secrets.token_bytes(16), "none") if key is None else (digest_of(key), "auto")
        ttl = done_ttl(request)
        return Entry(
            digest, slot_of(request), request.priority, payload, mark, int(self.lease.done_ttl) if ttl is None else ttl
        )

    def digests(self, url: str) -> list[bytes]:
        """Return the digests under which a GET of *url* may be marked: as an item, and as a start request.

        :raises LeaseError: it is no URL, or has no key.
        """
        request = request_from_spec({"url": url})
        key = self.keys.key_of(request)
        start = self.keys.key_of(request.replace(dont_filter=True), is_start=True)
        return [digest_of(known) for known in (key, start) if known is not None]


def slot_of(request: Request) -> str:
    """Return the name of the download slot that Scrapy will use for *request*."""
    slot = request.meta.get("download_slot")
    key = str(slot if slot is not None else urlparse_cached(request).hostname or "")
    return key.replace("\0", "").replace("\1", "")


def open_spider(name: str, arguments: Mapping[str, str]) -> SpiderAccess:
    """Make the spider *name* of the project around the working directory; outside of one, do without.

    :raises click.ClickException: the project has no such spider, or it cannot be made.
    :raises SettingsError: its settings are wrong.
    """
    settings = project_settings()
    if not settings.getlist("SPIDER_MODULES"):
        lease = LeaseSettings.from_mapping(settings, job_fields={"spider": name, **arguments})
        return SpiderAccess(lease, ItemKeys(Spider(name), lease.item_key, RequestFingerprinter()), None)
    if not logging.getLogger().handlers:
        # What is wrong becomes one line of the command; without a handler Python would print the records too.
        logging.getLogger().addHandler(logging.NullHandler())
    crawler = Crawler(_spider_class(settings, name), settings)
    try:
        spider = crawler.spider = crawler.spidercls.from_crawler(crawler, **arguments)
        lease = LeaseSettings.from_crawler(crawler)
        crawler.addons.load_settings(crawler.settings)
        keys = ItemKeys(spider, lease.item_key, _fingerprinter(crawler))
    except LeaseError:
        raise
    except Exception as error:
        raise click.ClickException(
            f"spider {name!r} cannot be made ({type(error).__name__}: {error}); give the arguments that its crawls "
            "get, with -a NAME=VALUE"
        ) from error
    return SpiderAccess(lease, keys, Codec(spider))


def spider_names() -> list[str]:
    """Return the names of the spiders of the project around the working directory, none outside of one."""
    settings = project_settings()
    return sorted(get_spider_loader(settings).list()) if settings.getlist("SPIDER_MODULES") else []


def _spider_class(settings: Settings, name: str) -> type[Spider]:
    AddonManager.load_pre_crawler_settings(settings)
    loader = get_spider_loader(settings)
    try:
        return loader.load(name)
    except KeyError:
        near = get_close_matches(name, loader.list(), n=1)
        hint = f": did you mean {near[0]}?" if near else f"; it has {', '.join(sorted(loader.list())) or 'none'}"
        raise click.ClickException(f"the project has no spider {name!r}{hint}") from None


def _fingerprinter(crawler: Crawler) -> RequestFingerprinterProtocol:
    fingerprinter: RequestFingerprinterProtocol = build_from_crawler(
        load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"]), crawler
    )
    return fingerprinter
