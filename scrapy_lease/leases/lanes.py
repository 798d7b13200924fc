"""Lanes of numbered calls: what makes a call whose reply was lost the same call when it is made again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from scrapy_lease.leases.session import Session

W = TypeVar("W")
R = TypeVar("R")


class Lane(Generic[W, R]):
    """Calls of one verb: the next is made when the last was answered; one without an answer is repeated as it was."""

    def __init__(self, verb: str, session: Session, send: Callable[[str, int, W], Awaitable[R]]) -> None:
        self._verb = verb
        self._session = session
        self._send = send
        self._unanswered: tuple[int, W] | None = None

    @property
    def is_free(self) -> bool:
        return self._unanswered is None

    @property
    def unanswered(self) -> W | None:
        """What was sent and has no answer yet."""
        return self._unanswered[1] if self._unanswered is not None else None

    async def run(self, make: Callable[[], W | None]) -> tuple[W, R] | None:
        """Make the call that has no answer, else one for what *make* gives; return both, None: there was nothing."""
        begun = self.begin(make)
        return None if begun is None else await begun

    def begin(self, make: Callable[[], W | None]) -> Coroutine[Any, Any, tuple[W, R]] | None:
        """Return :meth:`run` as a coroutine, or None at once where there is nothing to be called."""
        if self._unanswered is None:
            work = make()
            if work is None:
                return None
            self._unanswered = (self._session.number(self._verb), work)
        return self._call(*self._unanswered)

    async def _call(self, number: int, work: W) -> tuple[W, R]:
        reply = await self._send(self._session.sid, number, work)
        self._unanswered = None
        return work, reply

    def forget(self) -> W | None:
        """The session is another one: what was under way is void. Return it."""
        unanswered, self._unanswered = self._unanswered, None
        return unanswered[1] if unanswered is not None else None
