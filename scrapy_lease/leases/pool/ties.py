"""Sticky keys and the leases of this process that they are tied to.

The store decides what a key is tied to: it alone knows what other processes have. What it said holds here as
long as the lease is here, or until the key was not used for the time that a tie lasts: then the store has forgotten it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from scrapy_lease.leases.pool.options import PoolOptions
from scrapy_lease.leases.session import boot_time

#: Seconds between two words of a key's use; keys of which one call tells.
RENEWAL, RENEWALS = 60.0, 500
#: A key that begins with it is tied once and for ever: while its resource may not serve, it waits for that one.
STRICT = "!"


class Own(NamedTuple):
    """A resource that is made for one key, and serves no other; see :class:`scrapy_lease.store.taking.Own`."""

    id: str
    body: bytes
    life: int


class Tie(NamedTuple):
    """What the store is asked of a key; see :class:`scrapy_lease.store.taking.Tie`."""

    key: str
    site: str | None
    offer: str = ""
    avoid: frozenset[str] = frozenset()
    own: Own | None = None

    @property
    def strict(self) -> bool:
        """Is its key tied once and for ever?"""
        return self.key.startswith(STRICT)


@dataclass(slots=True)
class _Tied:
    #: Clock time (s) at which the store was last told of its use.
    told: float
    id: str


class Ties:
    """See the module's docstring.

    :param clock: the boot-time clock, in s.
    """

    def __init__(self, options: PoolOptions, clock: Callable[[], float] = boot_time) -> None:
        self._ttl = options.sticky_ttl
        self._renewal = min(RENEWAL, self._ttl / 2)
        self._clock = clock
        self._tied: dict[str, _Tied] = {}
        self._keys: dict[str, set[str]] = {}
        #: Keys of which the store is to be told.
        self._due: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._tied)

    def __repr__(self) -> str:
        return f"<Ties of {len(self._tied)} keys to {len(self._keys)} leases>"

    def id_of(self, key: str) -> str:
        """Return the id that *key* is tied to here; "": the store has to say."""
        tied = self._tied.get(key)
        if tied is None:
            return ""
        if self._clock() - tied.told >= self._ttl:
            self.untie(key)
            return ""
        return tied.id

    def tie(self, key: str, id_: str, asked: float) -> None:
        """The store was asked at clock time *asked* (s), and says that *key* is tied to *id_*, which is here."""
        self.untie(key)
        self._tied[key] = _Tied(asked, id_)
        self._keys.setdefault(id_, set()).add(key)

    def untie(self, key: str) -> None:
        """*key* is tied to nothing here."""
        tied = self._tied.pop(key, None)
        if tied is None:
            return
        self._due.pop(key, None)
        keys = self._keys[tied.id]
        keys.discard(key)
        if not keys:
            del self._keys[tied.id]

    def leave(self, id_: str) -> None:
        """The lease of *id_* is over: the store knows best who has it next."""
        for key in list(self._keys.get(id_, ())):
            self.untie(key)

    def use(self, key: str) -> None:
        """*key* is in use: tell the store so, along with something else, if it has not been told lately."""
        tied = self._tied.get(key)
        if tied is not None and self._clock() - tied.told >= self._renewal:
            self._due[key] = None

    def confirm_all(self) -> None:
        """The server may have lost what it said: tell it of all keys."""
        self._due.update(dict.fromkeys(self._tied))

    def to_tell(self) -> list[Tie]:
        """Return some of the keys of which the store is to be told; they are told of once."""
        keys = list(islice(self._due, RENEWALS))
        for key in keys:
            del self._due[key]
        return [Tie(key, None, self._tied[key].id) for key in keys]
