"""The settings of scrapy-lease: one validated model, filled from Scrapy's settings and the spider.

``python -m scrapy_lease.settings`` prints their reference, ``docs/settings.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import PrivateAttr, ValidationError

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.settings.pools import Pools, PoolSettings, allowed_of, details_of
from scrapy_lease.settings.proxies import ProxySettings, VerdictSettings
from scrapy_lease.settings.rate_rules import Dimension
from scrapy_lease.settings.rates import RateSettings
from scrapy_lease.settings.sections import ItemSettings, StoreSettings, SwitchSettings
from scrapy_lease.settings.sources import (
    PREFIX,
    SPIDER_KEY,
    Found,
    Given,
    did_you_mean,
    format_job,
    job_fields,
    of_crawler,
    of_mapping,
)
from scrapy_lease.settings.values import redacted_url, shown

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

_COMMANDS = "scrapy.commands."
_SECRET = frozenset({"proxies", "proxy_provider", "proxy_api", "proxy_pools"})


def takes_no_leases(crawler: Crawler) -> bool:
    """Return whether *crawler* runs under ``scrapy shell``, ``fetch``, ``view``, ``parse`` or ``check``."""
    return crawler.spider is None or type(crawler.spider).start.__module__.startswith(_COMMANDS)


class LeaseSettings(SwitchSettings, StoreSettings, ItemSettings, ProxySettings, VerdictSettings, RateSettings):
    """All settings, checked and frozen; ``LEASE_X`` is the attribute ``x``. Its repr shows no secret."""

    _notices: tuple[str, ...] = PrivateAttr(())
    _pools: dict[str, PoolSettings] = PrivateAttr(default_factory=dict)
    _rate_share: float = PrivateAttr(1.0)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the settings of *crawler*, each from the highest source that gives it.

        Call it once Scrapy's own settings are final: when a component is built, not in an add-on. Under a
        command that takes no leases LEASE_JOB keeps its braces. Raises SettingsError that names all faults.
        """
        found = of_crawler(crawler, cls.model_fields)
        named = None if takes_no_leases(crawler) else job_fields(cast("Spider", crawler.spider))
        return cls._checked(found, named)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, job_fields: Mapping[str, Any] | None = None) -> Self:
        """Return the settings that *values* (names like ``LEASE_TTL``; Scrapy's own give the defaults) hold.

        Without *job_fields* LEASE_JOB keeps its braces. Raises SettingsError naming all that is wrong.
        """
        return cls._checked(of_mapping(values, cls.model_fields), job_fields)

    @property
    def notices(self) -> tuple[str, ...]:
        """What is odd but no fault: whoever opens the crawl logs each once, as a warning."""
        return self._notices

    @property
    def pools(self) -> Mapping[str, PoolSettings]:
        """The pools of proxies by name; empty where none are leased."""
        return self._pools

    @property
    def rates(self) -> tuple[Dimension, ...]:
        """The dimensions with rate limits; empty where none are kept."""
        return self.rate_limits or () if self.rate_enabled else ()

    @property
    def rate_share(self) -> float:
        """The share of the keys of rate limits that are enforced (LEASE_ROLLOUT)."""
        return self._rate_share

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if name in _SECRET:
                yield name, None if value is None else "***"
            else:
                yield name, redacted_url(value) if name == "redis_url" else value

    @classmethod
    def _checked(cls, found: Found, named: Mapping[str, Any] | None) -> Self:
        if named is not None:
            _fill_job(found, named)
        key = found.given.get("item_key", SPIDER_KEY)
        if key.value == SPIDER_KEY.value and key != SPIDER_KEY:
            found.faults.append(_fault("item_key", key, "names no function", allowed_of(cls, "item_key")))
        try:
            settings = cls(**{field: given.value for field, given in found.given.items()})
            pools = Pools(settings)
            found.faults += [*pools.faults, *_idle_rates(settings)]
        except ValidationError as error:
            found.faults += cls._faults(error, found)
        if found.faults:
            raise SettingsError(f"scrapy-lease cannot start: {'; '.join(dict.fromkeys(found.faults))}")
        share = settings.rollout
        if (pools.by_name or settings.rates) and not settings.items_enabled:
            # A host then keeps its own requests, and none of them needs a lease.
            settings = settings.model_copy(update={"queue": "local", "rollout": 0.0})
        settings._notices, settings._pools, settings._rate_share = tuple(found.notices), pools.by_name, share
        return settings

    @classmethod
    def _faults(cls, error: ValidationError, found: Found) -> Iterable[str]:
        for field, detail in details_of(error):
            yield _fault(field, found.given[field], detail, allowed_of(cls, field))


def _fault(field: str, given: Given, detail: str, allowed: str) -> str:
    name = f"{PREFIX}{field.upper()}"
    words = [word for word in allowed.replace(",", " ").split() if word.startswith('"')]
    near = did_you_mean(f'"{given.value}"', words) if isinstance(given.value, str) and not detail else ""
    reason = f"{detail}; allowed: {allowed}" if detail else f"is not allowed; allowed: {allowed}"
    return f"{name} = {shown(name, given.value)} ({given.source}) {reason}{near}"


def _idle_rates(settings: LeaseSettings) -> Iterable[str]:
    """What is set for rate limits where there are none."""
    for name in RateSettings.model_fields if settings.rate_limits is None else ():
        if name in settings.model_fields_set and name not in ("rate_enabled", "rate_limits"):
            yield (
                f"LEASE_{name.upper()}: there are no rate limits that it could speak of; set LEASE_RATE_LIMITS, or "
                "take it out"
            )


def _fill_job(found: Found, named: Mapping[str, Any]) -> None:
    job = found.given.get("job", Given("{spider}", "default"))
    try:
        found.given["job"] = Given(format_job(str(job.value), named), job.source)
    except ValueError as exc:
        found.faults.append(f"LEASE_JOB = {shown('job', job.value)} ({job.source}) {exc}")
