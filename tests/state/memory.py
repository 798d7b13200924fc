"""A store of sessions in memory whose calls run when a test says so, and answer when it says so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.scripts import Beat, Opened


@dataclass(slots=True)
class Pending:
    """A call on its way: awaiting it gives the call itself to whoever drives the coroutine."""

    verb: str
    work: Callable[[], Any]
    has_run: bool = False
    reply: Any = None

    def run(self) -> None:
        """The call arrives at the store; once."""
        if not self.has_run:
            self.has_run = True
            try:
                self.reply = self.work()
            except SessionLost as error:
                self.reply = error

    def __await__(self) -> Generator[Pending, Any, Any]:
        return (yield self)


@dataclass(slots=True)
class Memory:
    """Deadlines on a lease clock that follows a wall clock, both in ms, as the scripts have it."""

    wall: float = 5_000_000.0
    now: float = 0.0
    seen: float = 5_000_000.0
    #: Live sessions of others.
    others: int = 0
    deadlines: dict[str, float] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    def due_step(self) -> float:
        """What the lease clock would advance if somebody called now."""
        return min(max(self.wall - self.seen, 0), 1000)

    def advance(self) -> None:
        """Do as every script does first."""
        self.now += self.due_step()
        self.seen = self.wall

    def go_on(self, milliseconds: int) -> None:
        """Let the lease clock go on."""
        self.now += milliseconds

    def forget(self) -> None:
        """Lose all sessions."""
        self.forgotten.update(self.deadlines)
        self.deadlines.clear()

    async def open(self, sid: str, *, ttl: int, config: str, fresh: bool, info: Mapping[str, str]) -> Opened:
        """As :meth:`scrapy_lease.store.scripts.Scripts.open`."""
        opened: Opened = await Pending("open", lambda: self._open(sid, ttl))
        return opened

    async def beat(self, sid: str, *, ttl: int, node: str) -> Beat:
        """As :meth:`scrapy_lease.store.scripts.Scripts.beat`."""
        beat: Beat = await Pending("beat", lambda: self._beat(sid, ttl))
        return beat

    async def close(self, sid: str) -> None:
        """As :meth:`scrapy_lease.store.scripts.Scripts.close`."""
        await Pending("close", lambda: self.deadlines.update({sid: 0.0} if sid in self.deadlines else {}))

    async def report(self, sid: str, n: int, holds: Sequence[tuple[bytes, int]], *, previous: str = "") -> list[int]:
        """Nothing is leased here."""
        return [0] * len(holds)

    def _live(self) -> int:
        return self.others + sum(deadline > self.now for deadline in self.deadlines.values())

    def _open(self, sid: str, ttl: int) -> Opened:
        self.advance()
        self.deadlines[sid] = self.now + ttl
        return Opened(1, 1, self._live())

    def _beat(self, sid: str, ttl: int) -> Beat:
        self.advance()
        if self.deadlines.get(sid, 0) <= self.now:
            raise SessionLost(f"session {sid} is over")
        self.deadlines[sid] = max(self.deadlines[sid], self.now + ttl)
        return Beat(1, self._live(), paused=False, draining=False, reported=True)


class Answering:
    """The same store, whose calls run and answer at once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._memory, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            coroutine = method(*args, **kwargs)
            pending = coroutine.send(None)
            pending.run()
            if isinstance(pending.reply, Exception):
                coroutine.close()
                raise pending.reply
            try:
                coroutine.send(pending.reply)
            except StopIteration as end:
                return end.value

        return call
