"""A node as the state machine plays it: it numbers its calls and repeats the one that got no answer, as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.scripts import Answer, Entry, GenerationChanged, Grant, Settlement
from tests.state.bench import Bench


@dataclass(frozen=True, slots=True)
class Call:
    """A numbered call as it was sent."""

    sid: str
    verb: str
    n: int
    work: tuple[Any, ...]


@dataclass(slots=True)
class Node:
    """One process, until it crashes or leaves."""

    bench: Bench
    sid: str = ""
    is_lost: bool = False
    #: What it believes to hold.
    holds: dict[bytes, Grant] = field(default_factory=dict)
    unanswered: dict[str, Call] = field(default_factory=dict)
    answered: list[Call] = field(default_factory=list)
    #: What was acknowledged since the moment that a server may be thrown back to.
    pushed: list[Entry] = field(default_factory=list)
    settled: list[Settlement] = field(default_factory=list)
    #: All its sessions.
    sids: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)
    _server: int = 0

    def open(self, ttl: int) -> None:
        """Open a session; after a loss the unanswered calls of the old one are finished, and its holds taken along."""
        previous, self.sid = self.sid, self.bench.new_sid()
        self.bench.open(self.sid, ttl)
        self.sids.add(self.sid)
        self.is_lost = False
        self.unanswered, self._numbers = {}, {}
        if previous:
            if not self.knows_server:
                self._push_again()
            self.report(previous)
        self._server = self.bench.server

    @property
    def knows_server(self) -> bool:
        """Has it told this server what it holds, and what the one before acknowledged?"""
        return self._server == self.bench.server

    def finish_old(self) -> None:
        """Repeat what the lost session sent and got no answer for."""
        for verb in ("push", "settle"):
            if verb in self.unanswered:
                self._call(verb, (), False)

    def beat(self, ttl: int) -> None:
        """Beat, and note a loss."""
        if not self.bench.beat(self.sid, ttl):
            self.is_lost = True

    def push(self, entries: Sequence[Entry], lost: bool) -> None:
        """Push; *lost*: the answer does not come."""
        self._call("push", (entries,), lost)

    def settle(self, settlements: Sequence[Settlement], lost: bool) -> None:
        """Settle what it holds, or believes to hold."""
        if "settle" not in self.unanswered:
            for settlement in settlements:
                hold = self.holds.get(settlement.digest)
                if hold is not None and hold.fence == settlement.fence and settlement.verb != "sent":
                    del self.holds[settlement.digest]
        self._call("settle", (settlements,), lost)

    def lease(self, want: int, rooms: dict[str, int], lost: bool) -> None:
        """Lease; a loss and a new server are met as a node does."""
        self._be_granted("lease", (want, rooms), lost)

    def ask(self, entries: Sequence[Entry], lost: bool) -> None:
        """Lease named items."""
        self._be_granted("ask", (entries,), lost)

    def _be_granted(self, verb: str, work: tuple[Any, ...], lost: bool) -> None:
        try:
            if "report" in self.unanswered:
                self._call("report", (), False)
            self._call(verb, work, lost)
        except SessionLost:
            self.is_lost = True
        except GenerationChanged:
            self._recover(lost)

    def report(self, previous: str = "") -> None:
        """Say what it holds."""
        holds = [(grant.digest, grant.fence) for grant in self.holds.values()]
        self._call("report", (holds, previous), False)

    def _recover(self, lost: bool) -> None:
        """Repeat what a new server may not have, then say what is held."""
        self.finish_old()
        self._push_again()
        if self.settled:
            again, self.settled = self.settled, []
            self._call("settle", (again,), False)
        holds = [(grant.digest, grant.fence) for grant in self.holds.values()]
        try:
            self._call("report", (holds, ""), lost)
        except SessionLost:
            self.is_lost = True
        self._server = self.bench.server

    def _push_again(self) -> None:
        held = [Entry(grant.digest, grant.slot, 0, grant.payload, grant.mark) for grant in self.holds.values()]
        if held or self.pushed:
            self.bench.push("", 0, [*held, *self.pushed], self.sid)

    def _call(self, verb: str, work: tuple[Any, ...], lost: bool) -> None:
        call = self.unanswered.get(verb)
        if call is None:
            self._numbers[verb] = self._numbers.get(verb, 0) + 1
            call = self.unanswered[verb] = Call(self.sid, verb, self._numbers[verb], work)
        reply = self.make(call)
        if not lost:
            del self.unanswered[verb]
            self.answered.append(call)
            self._learn(call, reply)

    def make(self, call: Call) -> Any:
        """Make *call*, whoever knows of its answer."""
        made = getattr(self.bench, call.verb)
        return made(call.sid, call.n, *call.work)

    def _learn(self, call: Call, reply: Any) -> None:
        match call.verb:
            case "push":
                self.pushed.extend(call.work[0])
            case "settle":
                self.settled.extend(call.work[0])
            case "lease":
                for grant in reply:
                    self.holds.setdefault(grant.digest, grant)
            case "ask":
                for entry, claim in zip(call.work[0], reply, strict=True):
                    if claim.answer is Answer.GRANTED:
                        faults = claim.attempts, claim.deaths
                        grant = Grant(entry.digest, claim.fence, *faults, entry.slot, entry.mark, entry.payload)
                        self.holds.setdefault(entry.digest, grant)
                        self.pushed.append(entry)
                        self.bench.seen.accepted[entry.digest] = self.sid
            case "report":
                for (digest, _), fence in zip(call.work[0], reply, strict=True):
                    held = self.holds.pop(digest, None)
                    if fence and held is not None:
                        self.holds[digest] = Grant(digest, fence, *_rest(held))


def _rest(grant: Grant) -> tuple[int, int, str, str, bytes]:
    return grant.attempts, grant.deaths, grant.slot, grant.mark, grant.payload
