"""A node of a pool as the state machine plays it: it numbers its calls and repeats, as it was, what got no answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import PoolScripts, Resource, Tie, Verdict
from tests.state.pool_bench import PoolBench

#: Verdicts after which a resource is still leased.
STAYS = {"ok", "ban", "hang", "view", "uses", "jar"}


@dataclass(frozen=True, slots=True)
class Call:
    """A numbered call as it was sent."""

    verb: str
    n: int
    work: tuple[Any, ...]


@dataclass(slots=True, repr=False)
class PoolNode:
    """One process, until it crashes or leaves."""

    bench: PoolBench
    sid: str = ""
    is_lost: bool = False
    #: What it believes to hold: id -> fence.
    holds: dict[str, int] = field(default_factory=dict)
    unanswered: dict[str, Call] = field(default_factory=dict)
    answered: list[Call] = field(default_factory=list)
    #: What it registered since the moment that a server may be thrown back to.
    registered: list[Resource] = field(default_factory=list)
    yields: int = 0
    #: What it is to give back at once, or has lost.
    recalled: dict[str, int] = field(default_factory=dict)
    _scripts: PoolScripts | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _server: int = 0

    def open(self, ttl: int) -> None:
        """Open a session; after a loss the old one's holds are taken along."""
        previous = self.sid
        self.sid, self.is_lost = self.bench.open(ttl), False
        self.unanswered, self._numbers, self.answered = {}, {}, []
        self._scripts = PoolScripts(self.bench.scripts.channel, self.bench.keys)
        self._recover(previous)

    def beat(self, ttl: int, *, looks: bool = True) -> None:
        """A heartbeat, and a look at the pool with it; a new server is told what is held."""
        if not self._beats(ttl):
            self.is_lost = True
            return
        self.bench.model.ttl_max = max(self.bench.model.ttl_max, ttl)
        if self._server != self.bench.server:
            self._recover("")
        if looks and "take" not in self.unanswered:
            self.take([], False)

    def _beats(self, ttl: int) -> bool:
        try:
            self.bench.run(self.bench.scripts.beat(self.sid, ttl=ttl, node="n"))
        except SessionLost:
            return False
        return True

    def take(self, asks: Sequence[tuple[str, int]], lost: bool, ties: Sequence[Tie] = ()) -> None:
        """Ask for resources; *lost*: the answer does not come."""
        try:
            if self._server != self.bench.server:
                self._recover("")
            self._call("take", (asks, ties), lost)
        except SessionLost:
            self.is_lost = True
        except GenerationChanged:
            raise AssertionError("a session that had reported is asked to") from None

    def settle(self, verdicts: Sequence[Verdict], lost: bool) -> None:
        """Say what became of holds; those given back it does not use any more, answered or not.

        What was recalled is given back, with the next word that the node has to say.
        """
        if "settle" not in self.unanswered:
            recalled = [Verdict(name, fence, "back") for name, fence in self.recalled.items()]
            verdicts, self.recalled = [*recalled, *verdicts], {}
            for verdict in verdicts:
                if verdict.verb not in STAYS and self.holds.get(verdict.id) == verdict.fence:
                    del self.holds[verdict.id]
        self._call("settle", (verdicts,), lost)

    def give_back(self, names: Iterable[str]) -> None:
        """Give back *names*, and what the pool asks for: those it recalls, and as many others as it says."""
        names = list(names)
        names += [name for name in self.holds if name not in names][: self.yields]
        self.yields = 0
        if names or self.recalled:
            self.settle([Verdict(name, self.holds[name], "back") for name in names], False)

    def register(self, resources: Sequence[Resource], lost: bool) -> None:
        try:
            self._call("register", (resources,), lost)
        except SessionLost:
            self.is_lost = True

    def _recover(self, previous: str) -> None:
        """Repeat what a new server may not have, then say what is held."""
        if self._server != self.bench.server and self.registered:
            self.bench.register("", 0, self.registered)
        self._server = self.bench.server
        while True:
            repeats = "report" in self.unanswered
            try:
                self._call("report", (list(self.holds.items()), previous), False)
            except SessionLost:
                self.is_lost = True
                return
            if not repeats:
                return

    def _call(self, verb: str, work: tuple[Any, ...], lost: bool) -> None:
        call = self.unanswered.get(verb)
        if call is None:
            self._numbers[verb] = self._numbers.get(verb, 0) + 1
            call = self.unanswered[verb] = Call(verb, self._numbers[verb], work)
        reply = self.make(call)
        if not lost:
            del self.unanswered[verb]
            self.answered.append(call)
            self._learn(call, reply)

    def make(self, call: Call) -> Any:
        """Make *call*, whoever knows of its answer."""
        bench = self.bench
        if call.verb in ("take", "report"):
            return getattr(bench, call.verb)(self._scripts, self.sid, call.n, *call.work)
        return getattr(bench, call.verb)(self.sid, call.n, *call.work)

    def _learn(self, call: Call, reply: Any) -> None:
        match call.verb:
            case "register":
                self.registered += call.work[0]
            case "take":
                self.holds.update({lease.id: lease.fence for lease in reply.leases})
                for name in reply.recalled:
                    self.recalled[name] = self.holds.pop(name, self.recalled.get(name, 0))
                self.yields = reply.standing.yields
            case "settle":
                for verdict, answer in zip(call.work[0], reply, strict=True):
                    if answer == "-" and self.holds.get(verdict.id) == verdict.fence:
                        del self.holds[verdict.id]
            case "report":
                for (name, _), fence in zip(call.work[0], reply, strict=True):
                    self.holds.pop(name, None)
                    if fence:
                        self.holds[name] = fence
