"""What counters ask of the store and are told by it, and the options of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

#: A window of this many ms is a day of a time zone.
DAY = 86_400_000


class Limit(NamedTuple):
    """So many permits in each window of so many ms."""

    permits: int
    window: int


@dataclass(frozen=True, slots=True)
class RateOptions:
    """How all limits are kept.

    :param algorithm: ``fixed``: windows on the server's clock; ``sliding``: never more in any window.
    :param is_paced: permits are spread evenly over their window.
    :param shards: counters of each key.
    :param timezone: whose days count, a name of the IANA database.
    """

    algorithm: Literal["fixed", "sliding"] = "fixed"
    is_paced: bool = False
    shards: int = 1
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class CounterName:
    """Which counter: one limit on one key, or one shard of it.

    :param rule: what an operator sets a limit by.
    :param name: rule and key, for people.
    :param label: unique to the key and the length of its window; part of the store's key.
    """

    rule: str
    name: str
    label: str
    shard: int = 0
    shards: int = 1


@dataclass(frozen=True, slots=True)
class RateAsk:
    """What one call asks and tells.

    :param limit: permits of one window, over all shards.
    :param length: of a window, in ms.
    :param want: permits asked for; 0: none.
    :param days: boundaries of the days of a time zone around now, in ms of the wall clock; empty: multiples of length.
    :param sliding: slots after the present one that a slice lasts; 0: a fixed window.
    :param back: (until, permits) that will not be spent.
    :param recent: (n, until, permits) of what was granted within the last seconds.
    """

    limit: int
    length: int
    want: int = 0
    days: Sequence[int] = ()
    sliding: int = 0
    is_paced: bool = False
    back: Sequence[tuple[int, int]] = ()
    recent: Sequence[tuple[int, int, int]] = ()


class Granted(Protocol):
    """What a call got; see :class:`scrapy_lease.store.rate_scripts.Granted`."""

    @property
    def until(self) -> int: ...
    @property
    def permits(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def wait(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def is_grace(self) -> bool: ...


class RateStore(Protocol):
    """See :class:`scrapy_lease.store.rate_scripts.RateScripts`."""

    async def take(self, sid: str, n: int, counter: CounterName, ask: RateAsk, *, previous: str = "") -> Granted: ...
