"""The settings of scrapy-lease: one validated model, filled from Scrapy's settings and the spider.

``python -m scrapy_lease.settings`` prints their reference, ``docs/settings.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import PrivateAttr, ValidationError

from scrapy_lease.exceptions import SettingsError
from scrapy_lease.settings import joint
from scrapy_lease.settings.accounts import AccountSettings
from scrapy_lease.settings.pools import (
    ACCOUNTS,
    PROXIES,
    AccountPoolSettings,
    Pools,
    PoolSettings,
    allowed_of,
    details_of,
    idle,
)
from scrapy_lease.settings.proxies import ProxySettings, VerdictSettings
from scrapy_lease.settings.proxy_values import VERDICTS, from_json
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
_UNSEALED = (
    "LEASE_ACCOUNT_KEY is not set: whoever can read the store can read credentials and cookies of the accounts there"
)
_SECRET = frozenset(
    {
        "proxies",
        "proxy_provider",
        "proxy_api",
        "proxy_pools",
        "accounts",
        "account_provider",
        "account_pools",
        "account_key",
    }
)


def takes_no_leases(crawler: Crawler) -> bool:
    """Return whether *crawler* runs under ``scrapy shell``, ``fetch``, ``view``, ``parse`` or ``check``."""
    return crawler.spider is None or type(crawler.spider).start.__module__.startswith(_COMMANDS)


class LeaseSettings(
    SwitchSettings, StoreSettings, ItemSettings, ProxySettings, AccountSettings, VerdictSettings, RateSettings
):  # fmt: skip
    """All settings, checked and frozen; ``LEASE_X`` is the attribute ``x``. Its repr shows no secret."""

    _notices: tuple[str, ...] = PrivateAttr(())
    _pools: dict[str, PoolSettings] = PrivateAttr(default_factory=dict)
    _account_pools: dict[str, AccountPoolSettings] = PrivateAttr(default_factory=dict)
    _direct_verdicts: dict[int, str] = PrivateAttr(default_factory=dict)
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
    def account_pools_by_name(self) -> Mapping[str, AccountPoolSettings]:
        """The pools of accounts by name; empty where none are leased."""
        return self._account_pools

    @property
    def direct_verdicts(self) -> Mapping[int, str]:
        """What statuses say where no proxy is used: LEASE_VERDICTS without a ban that only the defaults name."""
        return self._direct_verdicts

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
            pools, accounts = Pools(PROXIES, settings), Pools(ACCOUNTS, settings)
            found.faults += [
                *pools.faults,
                *accounts.faults,
                *_idle(settings, bool(pools.by_name), bool(accounts.by_name)),
            ]
            if not found.faults:
                found.faults += joint.faults(settings, pools.by_name, accounts.by_name)
        except ValidationError as error:
            found.faults += cls._faults(error, found)
        if found.faults:
            raise SettingsError(f"scrapy-lease cannot start: {'; '.join(dict.fromkeys(found.faults))}")
        share = settings.rollout
        if (pools.by_name or accounts.by_name or settings.rates) and not settings.items_enabled:
            # A host then keeps its own requests, and none of them needs a lease.
            settings = settings.model_copy(update={"queue": "local", "rollout": 0.0})
        if accounts.by_name and settings.account_key is None:
            found.notices.append(_UNSEALED)
        found.notices += joint.notices(pools.by_name, accounts.by_name)
        settings._notices, settings._pools, settings._rate_share = tuple(found.notices), pools.by_name, share
        settings._account_pools = accounts.by_name
        settings._direct_verdicts = _direct(settings.verdicts, found.given.get("verdicts"))
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


def _idle(settings: LeaseSettings, has_proxies: bool, has_accounts: bool) -> Iterable[str]:
    """What is set for what there is not."""
    if not has_proxies and not has_accounts:
        makers = f"{PROXIES.sources}, {PROXIES.table}, or accounts"
        yield from idle(settings, VerdictSettings.model_fields, "there are no proxies or accounts", makers)
    if settings.rate_limits is None:
        but = ("rate_enabled", "rate_limits", *(["timezone"] if has_accounts else []))
        yield from idle(settings, RateSettings.model_fields, "there are no rate limits", "LEASE_RATE_LIMITS", but)
    if not has_accounts:
        if any(dimension.name == "account" for dimension in settings.rate_limits or ()):
            yield "LEASE_RATE_LIMITS: 'account' can match nothing without accounts; set LEASE_ACCOUNTS, or take it out"
        if settings.proxy_sticky == "account":
            yield "LEASE_PROXY_STICKY = 'account': there are no accounts; set LEASE_ACCOUNTS, or take it out"


def _direct(verdicts: Mapping[int, str], given: Given | None) -> dict[int, str]:
    """Return *verdicts* without a ban that only the defaults name: whom a site refuses there is its own affair."""
    own = from_json(given.value) if given is not None else {}
    named = {int(status) for status in own}
    return {
        status: word
        for status, word in verdicts.items()
        if status in named or VERDICTS.get(status) != word or word != "ban"
    }


def _fill_job(found: Found, named: Mapping[str, Any]) -> None:
    job = found.given.get("job", Given("{spider}", "default"))
    try:
        found.given["job"] = Given(format_job(str(job.value), named), job.source)
    except ValueError as exc:
        found.faults.append(f"LEASE_JOB = {shown('job', job.value)} ({job.source}) {exc}")
