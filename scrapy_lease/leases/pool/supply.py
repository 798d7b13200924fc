"""What a pool is filled from, as far as the refill must know it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from scrapy_lease.exceptions import LeaseError

R = TypeVar("R")
R_in = TypeVar("R_in", contravariant=True)


class Limit(NamedTuple):
    """At most *most* within each *window* ms of the server's clock, over all hosts.

    :param is_call: calls of the provider are counted, not what they deliver.
    :param text: as people wrote it.
    """

    most: int
    window: int
    is_call: bool
    text: str


class FetchFailed(LeaseError):
    """A provider did not deliver. Providers of users may raise it too, under the name ``ProviderError``.

    :param text: what happened, in a few words for the log; it must hold no secrets.
    :param kind: what happens again is logged once; the text, if it is not given.
    :param is_spent: something may have been bought all the same, so the buy limits count it.
    :param wait: seconds for which the provider asks to be left alone.
    """

    def __init__(self, text: str, *, kind: str = "", is_spent: bool = False, wait: float = 0.0) -> None:
        super().__init__(text)
        self.kind = kind or text
        self.is_spent = is_spent
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Delivery(Generic[R]):
    """What a source gave: how much of the buy limits it uses up, and what of it can be used."""

    bought: int
    resources: Sequence[R]


class Source(Protocol[R]):
    """Where resources come from, one purchase at a time."""

    @property
    def target(self) -> int:
        """As many are to be in the pool at any time, whether used or not; 0: as the floor and use ask for."""

    @property
    def most(self) -> int:
        """As many can be had at once; 0: any number."""

    async def fetch(self, count: int, wall: Callable[[], int]) -> Delivery[R]:
        """Buy *count* resources; *wall*: the server's wall clock, in ms.

        :raises FetchFailed: nothing came.
        """

    def checked(self, resources: Sequence[R]) -> AsyncIterator[Sequence[R]]:
        """Yield those that work, as soon as that is known."""


class RegisterStore(Protocol[R_in]):
    """What registering needs of the store; see ``PoolScripts``."""

    async def register(self, sid: str, n: int, resources: Sequence[R_in]) -> str: ...


class Refilled(Protocol):
    """The answer to a call of the refill; see ``pool_refill.lua``."""

    @property
    def status(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def wait(self) -> int: ...
    @property
    def wall(self) -> int: ...
    @property
    def forecast(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def moved(self) -> int: ...


class RefillStore(RegisterStore[R_in], Protocol[R_in]):
    """What the refill needs of the store."""

    async def refill(
        self, sid: str, n: int, state: str, limits: Sequence[tuple[int, int, bool]] = (), **details: Any
    ) -> Refilled: ...


class Level(Protocol):
    """How the pool stood at this node's last look."""

    @property
    def free(self) -> int: ...
    @property
    def known(self) -> int: ...
