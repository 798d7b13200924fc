"""The pools of proxies that the settings make, and what is wrong between the settings that speak of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from scrapy_lease.settings.base import Section
from scrapy_lease.settings.proxies import ProxySettings, VerdictSettings
from scrapy_lease.settings.proxy_values import (
    Amount,
    ApiOptions,
    BuyLimit,
    CheckUrl,
    ProviderClass,
    ProxyList,
    Sticky,
)
from scrapy_lease.settings.routes import DEFAULT_POOL, Routes
from scrapy_lease.settings.sources import did_you_mean
from scrapy_lease.settings.values import Count, PositiveSeconds, Seconds, Waits, shown

#: Fields that say where proxies come from: each pool has one source at most, and inherits none.
SOURCES = ("proxies", "provider", "api")
_OWN = frozenset({*SOURCES, "buy_limit"})
_NAME_IS_WRONG = " \t\r\n:/{}@"


class PoolSettings(Section):
    """One pool; its field ``x`` is LEASE_PROXY_X."""

    name: str
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
    def source(self) -> str:
        """The field that says where its proxies come from, "" where an operator fills it."""
        return next((field for field in SOURCES if getattr(self, field) is not None), "")

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name in SOURCES and value is not None else value


#: Field of a pool -> the setting that it is at the top level.
TOP = {field: "proxies" if field == "proxies" else f"proxy_{field}" for field in PoolSettings.model_fields}
del TOP["name"]


class Pools:
    """See the module's docstring.

    :ivar by_name: the pools; none where LEASE_PROXY_ENABLED is off or nothing is configured.
    :ivar faults: what is wrong, one sentence each.
    """

    def __init__(self, settings: Any) -> None:
        self.by_name: dict[str, PoolSettings] = {}
        self.faults: list[str] = []
        self._settings = settings
        self._add_default()
        self._add_named(settings.proxy_pools)
        if not self.faults:
            self.faults += self._between()
        if not settings.proxy_enabled:
            self.by_name = {}

    def __repr__(self) -> str:
        return f"<Pools {', '.join(self.by_name) or 'none'}>"

    def _add_default(self) -> None:
        values = {field: getattr(self._settings, name) for field, name in TOP.items()}
        if any(values[field] is not None for field in SOURCES):
            self._check_source("LEASE_PROXIES, LEASE_PROXY_PROVIDER, LEASE_PROXY_API", values)
            # Checked already, as settings of their own.
            self.by_name[DEFAULT_POOL] = PoolSettings.model_construct(name=DEFAULT_POOL, **values)

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
                self._fault(f"{name!r}: LEASE_PROXIES, LEASE_PROXY_PROVIDER or LEASE_PROXY_API make that pool already")
            else:
                self._add(name, given)

    def _add(self, name: str, given: Mapping[str, Any]) -> None:
        unknown = [key for key in given if key not in TOP]
        for key in unknown:
            self._fault(f"pool {name!r}: {key!r} is no setting of a pool{did_you_mean(str(key), TOP)}")
        inherited = {field: getattr(self._settings, top) for field, top in TOP.items() if field not in _OWN}
        values = {**inherited, **{key: value for key, value in given.items() if key in TOP and value is not None}}
        try:
            pool = PoolSettings(name=name, **values)
        except ValidationError as error:
            for field, detail in details_of(error):
                allowed = allowed_of(ProxySettings, TOP[field])
                reason = f"{detail}; allowed: {allowed}" if detail else f"is not allowed; allowed: {allowed}"
                self._fault(f"pool {name!r}: {field} = {shown(TOP[field], values[field])} {reason}")
            return
        self._check_source(f"LEASE_PROXY_POOLS: pool {name!r}", values)
        self.by_name[name] = pool

    def _check_source(self, where: str, values: Mapping[str, Any]) -> None:
        given = [field for field in SOURCES if values.get(field) is not None]
        if len(given) > 1:
            self.faults.append(f"{where}: a pool has one source, and {' and '.join(given)} are given; make a pool each")

    def _between(self) -> Iterator[str]:
        """What of the other settings names no pool, or has none to act on."""
        settings, names = self._settings, self.by_name
        if not names:
            for name in (*ProxySettings.model_fields, *VerdictSettings.model_fields):
                if name in settings.model_fields_set and name not in ("proxy_enabled", "proxy_pools"):
                    yield (
                        f"LEASE_{name.upper()}: there are no proxies that it could speak of; set LEASE_PROXIES, "
                        "LEASE_PROXY_PROVIDER, LEASE_PROXY_API or LEASE_PROXY_POOLS, or take it out"
                    )
            return
        routes: Routes = settings.proxy_pool
        for name in sorted(routes.names - names.keys()):
            near = did_you_mean(name, names) or f"; there is {', '.join(names)}"
            yield f"LEASE_PROXY_POOL names the pool {name!r}, which does not exist{near}"

    def _fault(self, text: str) -> None:
        self.faults.append(f"LEASE_PROXY_POOLS: {text}")


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
