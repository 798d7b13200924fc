"""The pools that the settings make, and what is wrong between the settings that speak of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError

from scrapy_lease.providers.listed import Listed
from scrapy_lease.settings.account_values import (
    AccountList,
    HandlerClass,
    Hours,
    OnProxyLost,
    OrQuota,
    TimeOfDay,
)
from scrapy_lease.settings.accounts import AccountSettings
from scrapy_lease.settings.base import Section
from scrapy_lease.settings.proxies import ProxySettings
from scrapy_lease.settings.proxy_values import (
    Amount,
    ApiOptions,
    BuyLimit,
    CheckUrl,
    ProviderClass,
    ProxyList,
    Sticky,
)
from scrapy_lease.settings.rates import RateSettings, Zone
from scrapy_lease.settings.routes import DEFAULT_POOL, Routes
from scrapy_lease.settings.sources import did_you_mean
from scrapy_lease.settings.values import Count, PositiveSeconds, Seconds, Share, Waits, shown

P = TypeVar("P", bound="AnyPool")

_NAME_IS_WRONG = " \t\r\n:/{}@"


class AnyPool(Section):
    """One pool, of whatever kind."""

    #: Fields that say where its resources come from: each pool has one source at most, and inherits none.
    sources: ClassVar[tuple[str, ...]]

    name: str

    @property
    def source(self) -> str:
        """The field that says where its resources come from, "" where an operator fills it."""
        return next((field for field in self.sources if getattr(self, field) is not None), "")

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name in self.sources and value is not None else value


class PoolSettings(AnyPool):
    """A pool of proxies; its field ``x`` is LEASE_PROXY_X."""

    sources = ("proxies", "provider", "api")

    proxies: ProxyList = None
    provider: ProviderClass = None
    api: ApiOptions = None
    buy_limit: BuyLimit = None
    sessions: Count
    lifetime: PositiveSeconds
    concurrency: Count
    reuse: Amount
    keep: Seconds
    batch: Count
    min_free: Amount
    check: CheckUrl
    check_timeout: PositiveSeconds
    margin: Seconds
    backoff: Waits
    retries: Amount
    sticky: Sticky
    sticky_ttl: PositiveSeconds
    grace: Seconds
    wait: PositiveSeconds

    @property
    def is_owned(self) -> bool:
        """Is it a gateway that gives each account an identity of its own?"""
        listed: Listed | None = self.proxies
        return listed is not None and listed.is_owned


class AccountPoolSettings(AnyPool):
    """A pool of accounts; its field ``x`` is LEASE_ACCOUNT_X."""

    sources = ("accounts", "provider")

    accounts: AccountList = None
    provider: ProviderClass = None
    handler: HandlerClass
    holders: Amount
    concurrency: Count
    interval: Seconds
    hours: Hours
    quota: Amount
    min_success: Share
    slow: PositiveSeconds
    cooldown: PositiveSeconds
    active: PositiveSeconds
    refill: TimeOfDay
    wait: OrQuota
    on_proxy_lost: OnProxyLost
    timezone: Zone


@dataclass(frozen=True)
class Kind(Generic[P]):
    """What the settings call a kind of pool.

    :param things: what is in its pools, for people.
    :param pool: the class of one.
    :param top: field of a pool -> the setting that it is at the top level; *sections*: where these stand.
    :param own: fields that a named pool does not inherit.
    """

    name: str
    things: str
    pool: type[P]
    top: Mapping[str, str]
    own: frozenset[str]
    sections: tuple[type[Section], ...]

    @property
    def sources(self) -> str:
        """The settings that make the pool `default`."""
        return ", ".join(f"LEASE_{self.top[field].upper()}" for field in self.pool.sources)

    @property
    def table(self) -> str:
        """The setting that names more pools."""
        return f"LEASE_{self.name.upper()}_POOLS"


def _top(pool: type[AnyPool], kind: str, things: str) -> dict[str, str]:
    odd = {things: things, "timezone": "timezone"}
    return {field: odd.get(field, f"{kind}_{field}") for field in pool.model_fields if field != "name"}


PROXIES = Kind(
    "proxy", "proxies", PoolSettings, _top(PoolSettings, "proxy", "proxies"),
    frozenset({*PoolSettings.sources, "buy_limit"}), (ProxySettings,),
)  # fmt: skip
ACCOUNTS = Kind(
    "account", "accounts", AccountPoolSettings, _top(AccountPoolSettings, "account", "accounts"),
    frozenset(AccountPoolSettings.sources), (AccountSettings, RateSettings),
)  # fmt: skip


class Pools(Generic[P]):
    """The pools of one kind.

    :ivar by_name: the pools; none where they are switched off or nothing is configured.
    :ivar faults: what is wrong, one sentence each.
    """

    def __init__(self, kind: Kind[P], settings: Any) -> None:
        self.by_name: dict[str, P] = {}
        self.faults: list[str] = []
        self._kind = kind
        self._settings = settings
        self._add_default()
        self._add_named(getattr(settings, f"{kind.name}_pools"))
        if not self.faults:
            self.faults += self._between()
        if not getattr(settings, f"{kind.name}_enabled"):
            self.by_name = {}

    def __repr__(self) -> str:
        return f"<Pools of {self._kind.things}: {', '.join(self.by_name) or 'none'}>"

    def _add_default(self) -> None:
        values = {field: getattr(self._settings, name) for field, name in self._kind.top.items()}
        if any(values[field] is not None for field in self._kind.pool.sources):
            self._check_source(self._kind.sources, values)
            # Checked already, as settings of their own.
            pool: Any = self._kind.pool.model_construct(name=DEFAULT_POOL, **values)
            self.by_name[DEFAULT_POOL] = pool

    def _add_named(self, table: Any) -> None:
        if table is None:
            return
        if not isinstance(table, Mapping) or not all(isinstance(given, Mapping) for given in table.values()):
            self._fault("is no dict of dicts: name -> settings of the pool")
            return
        for name, given in table.items():
            if not isinstance(name, str) or not name or set(_NAME_IS_WRONG) & set(name):
                self._fault(f"{name!r} is no name for a pool: give it one without spaces, colons, slashes, braces")
            elif name in self.by_name:
                makers = " or ".join(self._kind.sources.rsplit(", ", 1))
                self._fault(f"{name!r}: {makers} make that pool already")
            else:
                self._add(name, given)

    def _add(self, name: str, given: Mapping[str, Any]) -> None:
        top = self._kind.top
        for key in given:
            if key not in top:
                self._fault(f"pool {name!r}: {key!r} is no setting of a pool{did_you_mean(str(key), top)}")
        inherited = {
            field: getattr(self._settings, setting) for field, setting in top.items() if field not in self._kind.own
        }
        values = {**inherited, **{key: value for key, value in given.items() if key in top and value is not None}}
        try:
            self.by_name[name] = self._kind.pool.model_validate({"name": name, **values})
        except ValidationError as error:
            for field, detail in details_of(error):
                allowed = self._allowed(top[field])
                reason = f"{detail}; allowed: {allowed}" if detail else f"is not allowed; allowed: {allowed}"
                self._fault(f"pool {name!r}: {field} = {shown(top[field], values[field])} {reason}")
            return
        self._check_source(f"{self._kind.table}: pool {name!r}", values)

    def _allowed(self, setting: str) -> str:
        return next(allowed_of(section, setting) for section in self._kind.sections if setting in section.model_fields)

    def _check_source(self, where: str, values: Mapping[str, Any]) -> None:
        given = [field for field in self._kind.pool.sources if values.get(field) is not None]
        if len(given) > 1:
            self.faults.append(f"{where}: a pool has one source, and {' and '.join(given)} are given; make a pool each")

    def _between(self) -> Iterator[str]:
        """What of the other settings names no pool, or has none to act on."""
        kind, names = self._kind, self.by_name
        if not names:
            yield from idle(
                self._settings, kind.sections[0].model_fields, f"there are no {kind.things}",
                f"{kind.sources} or {kind.table}", but=(f"{kind.name}_enabled", f"{kind.name}_pools"),
            )  # fmt: skip
            return
        routes: Routes = getattr(self._settings, f"{kind.name}_pool")
        for name in sorted(routes.names - names.keys()):
            near = did_you_mean(name, names) or f"; there is {', '.join(names)}"
            yield f"LEASE_{kind.name.upper()}_POOL names the pool {name!r}, which does not exist{near}"

    def _fault(self, text: str) -> None:
        self.faults.append(f"{self._kind.table}: {text}")


def idle(settings: Any, fields: Iterable[str], why: str, makers: str, but: tuple[str, ...] = ()) -> Iterator[str]:
    """Tell of each of *fields* that is set, *but* some, that it has nothing to act on."""
    for name in fields:
        if name in settings.model_fields_set and name not in but:
            value = shown(name, getattr(settings, name))
            # What has been read as something of its own has no text any more.
            given = "" if value.startswith("<") else f" = {value}"
            yield f"LEASE_{name.upper()}{given}: {why} that it could speak of; set {makers}, or take it out"


def details_of(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield each field that is wrong, once, and what our own checks say of it."""
    seen = set()
    for fault in error.errors(include_url=False, include_input=False):
        field = str(fault["loc"][0])
        if field not in seen:
            seen.add(field)
            yield field, str(fault["ctx"]["error"]) if fault["type"] == "value_error" else ""


def allowed_of(section: type[Section], field: str) -> str:
    """Return what a field of *section* may be, as its entry in the reference says."""
    extra: Any = section.model_fields[field].json_schema_extra
    return str(extra["allowed"])
