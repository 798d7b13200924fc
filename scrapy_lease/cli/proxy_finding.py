"""Leased proxies as commands find them: by what people may call one."""

from __future__ import annotations

from scrapy_lease.cli.pool_finding import Things
from scrapy_lease.providers.identity import shown


def names_of(proxy: str, exit: str) -> set[str]:
    """Return what people may call a proxy by: its id, as it is shown, its endpoint, its host, its exit address."""
    endpoint = proxy.partition("#")[0].partition("/")[0]
    host = endpoint.rpartition(":")[0].strip("[]")
    return {proxy, shown(proxy), endpoint, host, exit} - {""}


PROXIES = Things("proxy", "proxies", lambda record: names_of(record.id, record.exit))
