"""What people call what is leased, and the settings of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goods:
    """A kind of resource.

    :param kind: ``proxy`` or ``account``, as keys, stats and settings have it.
    :param things: several of them, for people.
    :param one: one of them.
    :param number: of the middleware that gives requests theirs.
    """

    kind: str
    things: str
    one: str
    number: int

    @property
    def wait(self) -> str:
        """The setting that says how long a request waits."""
        return f"LEASE_{self.kind.upper()}_WAIT"

    @property
    def reason(self) -> str:
        """Why a crawl closes that has had none for long."""
        return f"lease_no_{self.things}"


PROXY = Goods("proxy", "proxies", "a proxy", 745)
ACCOUNT = Goods("account", "accounts", "an account", 690)
