"""Where the value of each setting comes from: the order of the sources, and the names that are none."""

from __future__ import annotations

import difflib
import string
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_lease.settings.values import shown

PREFIX = "LEASE_"
UNLIMITED_WINDOW = 64
"""The window where CONCURRENT_REQUESTS is 0, which means no limit."""
ALONE = (
    "no LEASE_REDIS_URL and no REDIS_URL is set: an embedded server is used, and this host crawls alone. "
    "Set LEASE_REDIS_URL to the same redis:// URL on each host, or to embedded:// if this is meant."
)


class Given(NamedTuple):
    """A value as it was given, and where: for people."""

    value: Any
    source: str


SPIDER_KEY = Given("spider", "spider method lease_item_key")
"""What LEASE_ITEM_KEY is where the spider has the method; a user cannot ask for it in any other way."""


class Found:
    """What the sources hold: the value of each field, and all that is wrong or odd about the names."""

    def __init__(self) -> None:
        self.given: dict[str, Given] = {}
        self.faults: list[str] = []
        self.notices: list[str] = []


def of_mapping(values: Mapping[str, Any], fields: Collection[str]) -> Found:
    """Return what *values* say about *fields*, Scrapy's own settings included where they give a default."""
    found = Found()
    for name in sorted(filter(_is_ours, values)):
        _take(found, name, Given(values[name], "settings"), fields)
    _scrapy_defaults(values, found)
    return found


def of_crawler(crawler: Crawler, fields: Collection[str]) -> Found:
    """Return what settings and spider say: instance attribute, ``-s``, class attribute, other settings."""
    found = Found()
    settings, cmdline = crawler.settings, SETTINGS_PRIORITIES["cmdline"]
    for name in sorted(filter(_is_ours, settings)):
        source = "-s" if (settings.getpriority(name) or 0) >= cmdline else "settings"
        _take(found, name, Given(settings[name], source), fields)
    spider_class = type(crawler.spider) if crawler.spider else crawler.spidercls
    for attribute, value in _class_attributes(spider_class, crawler.spider):
        field = attribute.removeprefix("lease_")
        if field not in found.given or found.given[field].source != "-s":
            _take_attribute(found, attribute, value, fields)
    for attribute, value in vars(crawler.spider).items() if crawler.spider else ():
        if attribute.startswith("lease_") and not callable(value):
            _take_attribute(found, attribute, value, fields)
    if callable(getattr(crawler.spider or spider_class, "lease_item_key", None)):
        found.given["item_key"] = SPIDER_KEY
    _scrapy_defaults(settings, found)
    return found


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return ``: did you mean …?`` with the one of *names* nearest to *name*, or nothing."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(PREFIX)


def _take(found: Found, name: str, given: Given, fields: Collection[str]) -> None:
    field = name.removeprefix(PREFIX).lower()
    if field in fields and name.isupper():
        if given.value is not None:
            found.given[field] = given
    else:
        near = did_you_mean(name, [PREFIX + known.upper() for known in fields])
        found.faults.append(f"{name} = {shown(name, given.value)} is no setting of scrapy-lease{near}")


def _take_attribute(found: Found, attribute: str, value: Any, fields: Collection[str]) -> None:
    field = attribute.removeprefix("lease_")
    if field in fields:
        if value is not None:
            found.given[field] = Given(value, f"spider attribute {attribute}")
    else:
        near = did_you_mean(attribute, [f"lease_{known}" for known in fields])
        notice = f"spider attribute {attribute} is no setting of scrapy-lease and is ignored{near}"
        if notice not in found.notices:
            found.notices.append(notice)


def _class_attributes(spider_class: type[Spider], spider: Spider | None) -> Iterator[tuple[str, Any]]:
    for attribute in dir(spider_class):
        if not attribute.startswith("lease_"):
            continue
        value = getattr(spider_class, attribute)
        if isinstance(value, property):
            value = getattr(spider, attribute) if spider else None
        if not callable(value):
            yield attribute, value


def _scrapy_defaults(values: Mapping[str, Any], found: Found) -> None:
    if "redis_url" not in found.given:
        if values.get("REDIS_URL"):
            found.given["redis_url"] = Given(values["REDIS_URL"], "from REDIS_URL")
        else:
            found.notices.append(ALONE)
    if "namespace" not in found.given and values.get("BOT_NAME"):
        found.given["namespace"] = Given(values["BOT_NAME"], "from BOT_NAME")
    if "window" not in found.given and "CONCURRENT_REQUESTS" in values:
        try:
            limit = int(values["CONCURRENT_REQUESTS"])
        except (TypeError, ValueError):
            found.faults.append(f"CONCURRENT_REQUESTS = {values['CONCURRENT_REQUESTS']!r} is no number")
        else:
            window = 2 * limit if limit > 0 else UNLIMITED_WINDOW
            found.given["window"] = Given(window, "from CONCURRENT_REQUESTS")


def job_fields(spider: Spider) -> dict[str, Any]:
    """Return what LEASE_JOB may name: ``spider`` and the spider's plain public attributes."""
    fields: dict[str, Any] = {"spider": spider.name}
    own = (vars(cls) for cls in type(spider).__mro__ if issubclass(cls, Spider) and cls is not Spider)
    for attributes in (vars(spider), *own):
        for name, value in attributes.items():
            if not name.startswith(("_", "lease_")) and isinstance(value, str | int | float):
                fields.setdefault(name, value)
    return fields


def format_job(template: str, fields: Mapping[str, Any]) -> str:
    """Return LEASE_JOB with its fields filled in; raise ValueError naming the field that is unknown."""
    for name in _names_in(template):
        if name not in fields:
            near = did_you_mean(name, fields)
            raise ValueError(f"names {name!r}, which this spider lacks; it has {', '.join(fields)}{near}")
    try:
        job = template.format_map(fields)
    except LookupError as exc:
        raise ValueError(f"names {exc} inside a format, which it may not") from None
    if not job:
        raise ValueError("is empty with the arguments of this spider")
    return job


def _names_in(template: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError:
        raise ValueError("has a brace without the other; write {{ or }} for a brace that is none of a pair") from None
