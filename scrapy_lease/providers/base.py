"""What a provider is and delivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from scrapy_lease.leases.pool.supply import FetchFailed
from scrapy_lease.providers.address import Address, parse_address

#: What a provider raises when it has nothing to deliver; any other exception will do, but tells the log less.
ProviderError = FetchFailed


@dataclass(frozen=True, slots=True, repr=False)
class Proxy:
    """A proxy as its provider gives it.

    :param url: ``http``, ``https`` or ``socks5``, with user name and password if it needs them.
    :param exit: the address that sites see, if it is known: proxies of one exit are used one at a time.
    :param expires: when the provider takes it back, in seconds since the epoch; None: never, or as *lifetime* says.
    :param provider: a name for it, for people.
    :param lifetime: how many seconds it lives from now on: right even where this host's clock is wrong.
    :param shown_user: stands for the user name wherever people may read, if that holds a secret.
    """

    url: str
    exit: str = ""
    expires: float | None = None
    provider: str = ""
    lifetime: float | None = None
    shown_user: str | None = None

    def __repr__(self) -> str:
        try:
            return f"<Proxy {self.address.endpoint}>"
        except ValueError:
            return "<Proxy without an address>"

    @property
    def address(self) -> Address:
        """The parts of the URL; ValueError if it is none."""
        return parse_address(self.url)


class Batch(list[Proxy]):
    """What a provider delivered, where some of it is of no use: all of it was paid for.

    :param received: how many entries its answer had.
    """

    def __init__(self, proxies: list[Proxy], received: int) -> None:
        super().__init__(proxies)
        self.received = received


@runtime_checkable
class Provider(Protocol):
    """Where proxies come from."""

    async def fetch(self, count: int) -> list[Proxy]:
        """Return up to *count* proxies; fewer, or some again, is no error."""
