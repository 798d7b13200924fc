"""What a pool is told: its options, judgements of what became of uses, and what it needs of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from scrapy_lease.leases.pool.accounts import AccountOptions, Terms
from scrapy_lease.leases.pool.purse import PermitsLike

#: See :class:`Judgement`.
Kind = Literal[
    "ok", "target", "ban", "hang", "broken", "expired", "limited", "logged_out", "cold", "unused", "back", "cut"
]  # fmt: skip
#: What becomes of what was judged: it goes on; its request goes out again on another lease; its URL is refused to all.
Sentence = Literal["pass", "again", "rejected"]


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How one pool is used; times in seconds.

    :param concurrency: requests in flight on one lease.
    :param reuse: requests after which a lease is given back; 0: while it is good.
    :param keep: how long an idle lease stays.
    :param margin: life that a resource must have left for a request to start on it.
    :param backoff: first and longest rest of what was banned or broken.
    :param grace: how long what a dead session held serves nobody.
    :param wait: how long a request waits, unless it says so itself.
    :param sticky_ttl: how long a sticky key stays with its resource after its last use.
    :param most: leases of this process at once; 0: as many as its requests need.
    :param is_minted: ids are made for the asking: one that is banned is replaced instead of resting.
    :param is_owned: each sticky key has what was made for it; of that what has an end is minted.
    :param account: how its resources are used if they are accounts.
    """

    name: str
    concurrency: int = 1
    reuse: int = 0
    keep: float = 10.0
    margin: float = 10.0
    backoff: tuple[float, float] = (30.0, 3600.0)
    grace: float = 0.0
    wait: float = 60.0
    sticky_ttl: float = 86400.0
    most: int = 0
    is_minted: bool = False
    is_owned: bool = False
    account: AccountOptions | None = None


class Judgement(NamedTuple):
    """What a response or exception says of the lease it came through.

    ============== ==============================================================================================
    ``ok``         it served the site
    ``target``     the site itself failed: no word about the lease
    ``ban``        the site refused it
    ``hang``       timeout, or the connection lost in the middle: uncertain whose fault
    ``broken``     no connection to it, or it refuses its own credentials
    ``expired``    its provider has taken it back
    ``limited``    the site asks for a pause of *retry_after* s; 0: it does not say how long
    ``logged_out`` an account's affair: the page shows it as logged out; no word about a proxy
    ``cold``       an account's affair: it is of no use now, *why* says the log
    ``unused``     the request was not sent
    ``back``       it was sent, and nobody knows what became of it: no word about the lease
    ``cut``        it was cut off here, and the site may still be at it: its place stays taken for a moment
    ============== ==============================================================================================

    :param url: of the request; told for a ``ban``, which counts for the lease only if other URLs are refused too.
    :param retry_after: of an account that was served, too: the site asks it for a pause (reset headers).
    :param seconds: how long the answer took, for accounts; 0: not told.
    """

    kind: Kind
    url: str = ""
    retry_after: float = 0.0
    seconds: float = 0.0
    why: str = ""


OK = Judgement("ok")
UNUSED = Judgement("unused")


class RestLike(Protocol):
    """A resource rests for a site: ms left (0: its next use there is a probe), bans in a row."""

    @property
    def left(self) -> int: ...
    @property
    def strikes(self) -> int: ...


class ViewLike(Protocol):
    """How a resource served a site: ms since it was last said to, None: never; the suspect, "" for none."""

    @property
    def served(self) -> int | None: ...
    @property
    def suspect(self) -> str: ...


class Granted(Protocol):
    """A lease as the store grants it; ``life`` in ms from the call on, None: for ever."""

    @property
    def id(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def exit(self) -> str: ...
    @property
    def life(self) -> int | None: ...
    @property
    def strikes(self) -> int: ...
    @property
    def rests(self) -> Mapping[str, RestLike]: ...
    @property
    def views(self) -> Mapping[str, ViewLike]: ...
    @property
    def permits(self) -> PermitsLike | None: ...
    @property
    def jar(self) -> bytes: ...


class Standing(Protocol):
    """How the pool stands in the store; see :class:`scrapy_lease.store.pool_scripts.PoolStanding`."""

    @property
    def free(self) -> int: ...
    @property
    def spotted(self) -> int: ...
    @property
    def leased(self) -> int: ...
    @property
    def known(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def share(self) -> int: ...
    @property
    def yields(self) -> int: ...
    @property
    def silent(self) -> int: ...
    @property
    def expired(self) -> str: ...
    @property
    def spent(self) -> int: ...
    @property
    def shut(self) -> int: ...


class Taken(Protocol):
    """What a take gave; see :class:`scrapy_lease.store.pool_scripts.Take`."""

    @property
    def standing(self) -> Standing: ...
    @property
    def leases(self) -> Sequence[Granted]: ...
    @property
    def pauses(self) -> Sequence[int]: ...
    @property
    def recalled(self) -> Sequence[str]: ...
    @property
    def tied(self) -> Sequence[str]: ...
    @property
    def more(self) -> Mapping[str, PermitsLike]: ...


class PoolStore(Protocol):
    """What a pool needs of the store; see :class:`scrapy_lease.store.pool_scripts.PoolScripts`."""

    #: *told*: of accounts, see :meth:`scrapy_lease.leases.pool.purse.Purse.told`.
    async def report(
        self, sid: str, n: int, holds: Sequence[tuple[str, int]], *, previous: str = "",
        told: Sequence[tuple[int, int] | None] = (),
    ) -> list[int]: ...  # fmt: skip
    #: *ties* have ``key``, ``site``, ``offer`` and ``avoid``, as :class:`scrapy_lease.leases.pool.ties.Tie` has.
    async def take(
        self, sid: str, n: int, asks: Sequence[tuple[str, int]] = (), *, margin: int = 0, grace: int = 0,
        ties: Sequence[Any] = (), ttl: int = 0, answered: int = -1, owned: bool = False,
        terms: Terms | None = None,
    ) -> Taken: ...  # fmt: skip
    async def reclaim(self, sid: str, *, grace: int = 0) -> tuple[int, int]: ...
    #: *verdicts* have ``id``, ``fence``, ``verb`` and ``args``, as :class:`scrapy_lease.leases.pool.shelf.Word` has.
    async def settle(self, sid: str, n: int, verdicts: Sequence[Any]) -> str: ...
