"""Makes each call twice, on the model and on the store, and asserts that both say the same.

Beside the model it counts what only an observer of all calls can know: which pushes were accepted and are not over yet,
which fence an item had last, how often it was completed.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.scripts import Answer, Claim, Entry, GenerationChanged, Grant, Scripts, Settlement, Standing
from tests.state.model import Model
from tests.state.store import Contents, Snapshot, Store

T = TypeVar("T")


class Older(Exception):
    """The store refused a call because a later one of its verb was made already."""


@dataclass(slots=True)
class Seen:
    """What an observer of all calls knows."""

    #: Accepted and neither done nor rejected, with the session that pushed it last.
    accepted: dict[bytes, str] = field(default_factory=dict)
    completed: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    fences: dict[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Past:
    """An earlier moment of everything."""

    keys: Snapshot
    model: Model
    seen: Seen


class Bench:
    """See the module's docstring."""

    def __init__(self, runner: asyncio.Runner, scripts: Scripts, store: Store) -> None:
        self.model = Model()
        self.seen = Seen()
        self.store = store
        #: Accepted after the moment to which the store was thrown back, and not pushed again yet.
        self.at_risk: dict[bytes, str] = {}
        self._runner = runner
        self._scripts = scripts
        #: Number of the server process, as its run_id tells.
        self.server = 0
        #: All sessions there ever were.
        self.sids: list[str] = []

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        self.store.lock_wall()
        try:
            return self._runner.run(call)
        except StoreRefused as error:
            if "is older than" in str(error):
                raise Older from None
            raise

    def read(self) -> Contents:
        """Return what the keys hold now."""
        return self.store.read(self.sids)

    # time

    def pass_time(self, milliseconds: int) -> None:
        """Let the lease clock go on."""
        self.store.pass_time(milliseconds)
        self.model.now += milliseconds

    def step_clock(self) -> None:
        """Step the server's clock an hour forward: the lease clock takes a second of it."""
        self.store.step_wall()
        self.model.now += 1000
        self._runner.run(self._scripts.start("nobody", "leave", "one"))

    def pause(self, on: bool) -> None:
        """Pause the job, or let it go on."""
        self.store.pause(on)
        self.model.paused = on

    def save(self) -> Past:
        """Keep this moment."""
        return Past(self.store.save(), copy.deepcopy(self.model), copy.deepcopy(self.seen))

    def restart(self) -> None:
        """Be another server that has everything."""
        self.server += 1
        self.store.rename_server(f"server-{self.server}")
        self.model.is_new_server = True

    def lose_since(self, past: Past, alive: set[str]) -> None:
        """Be thrown back to *past* by a new server; the sessions *alive* know what they pushed since."""
        self.store.lose_since(past.keys)
        self.restart()
        self.model = copy.deepcopy(past.model)
        self.model.is_new_server = True
        seen = copy.deepcopy(past.seen)
        self.at_risk = {
            digest: sid for digest, sid in self.seen.accepted.items() if digest not in seen.accepted and sid in alive
        }
        seen.fences = self.seen.fences
        self.seen = seen

    # sessions

    def new_sid(self) -> str:
        """Return an id that no session had."""
        self.sids.append(f"s{len(self.sids):03d}")
        return self.sids[-1]

    def open(self, sid: str, ttl: int) -> None:
        """Open a session that begins a new run where one is over."""
        opened = self._run(self._scripts.open(sid, ttl=ttl, config="c", fresh=True, info={"node": "n"}))
        assert (opened.generation, opened.run, opened.live) == self.model.open(sid, ttl, True)

    def beat(self, sid: str, ttl: int) -> bool:
        """Return False if the session is lost."""
        lives = self.model.beat(sid, ttl)
        try:
            beat = self._run(self._scripts.beat(sid, ttl=ttl, node="n"))
        except SessionLost:
            assert not lives
            return False
        assert lives
        assert (beat.generation, beat.live) == (self.model.generation, len(self.model.live))
        assert (beat.paused, beat.reported) == (self.model.paused, self.model.is_reported(sid))
        return True

    def close(self, sid: str) -> None:
        """End a session."""
        self._run(self._scripts.close(sid))
        self.model.close(sid)

    def claim(self, sid: str) -> str:
        """Ask for start()."""
        answer = self._run(self._scripts.start(sid, "claim", "one"))
        assert answer == self.model.claim(sid)
        return answer

    def stop_producing(self, sid: str, verb: str) -> None:
        """``finish`` or ``leave``."""
        assert self._run(self._scripts.start(sid, verb, "one")) == "ok"
        self.model.stop_producing(sid, verb)

    # items

    def push(self, sid: str, n: int, entries: Sequence[Entry], pusher: str = "") -> str:
        """Push; *sid* is empty for a push from outside."""
        known = self.model.replay(sid, "push", n) if sid else None
        expected = known if known is not None else self.model.push(entries)
        if known is None:
            if sid:
                self.model.remember(sid, "push", n, expected)
            self._accepted(entries, str(expected), sid or pusher)
        return self._numbered(self._scripts.push(sid, n, entries), expected)

    def _accepted(self, entries: Sequence[Entry], reply: str, sid: str) -> None:
        for entry, answer in zip(entries, reply, strict=True):
            self.at_risk.pop(entry.digest, None)
            if answer == "+":
                self.seen.accepted[entry.digest] = sid

    def _numbered(self, call: Coroutine[Any, Any, T], expected: object) -> T:
        if expected == "older":
            try:
                self._run(call)
            except Older:
                raise
            raise AssertionError("a call older than one already made was not refused")
        reply = self._run(call)
        assert reply == expected
        return reply

    def settle(self, sid: str, n: int, settlements: Sequence[Settlement]) -> str:
        """Settle."""
        known = self.model.replay(sid, "settle", n)
        expected = known if known is not None else self.model.settle(sid, settlements)
        if known is None:
            self.model.remember(sid, "settle", n, expected)
            for settlement, answer in zip(settlements, str(expected), strict=True):
                if answer == "+" and settlement.verb in ("done", "rejected"):
                    del self.seen.accepted[settlement.digest]
                    self.seen.completed[settlement.digest, self.model.run] += 1
        return self._numbered(self._scripts.settle(sid, n, settlements), expected)

    def _granting(self, sid: str, verb: str, n: int, call: Coroutine[Any, Any, T]) -> tuple[object | None, T]:
        """Make a call that grants; return what was said to it before, and its answer. Raises as its method does."""
        model = self.model
        model.meet()
        expects: type[Exception] | None = None
        if not model.is_live(sid):
            expects = SessionLost
        elif not model.is_reported(sid):
            expects = GenerationChanged
        known = None if expects else model.replay(sid, verb, n)
        if known == "older":
            expects = Older
        try:
            answer = self._run(call)
        except (SessionLost, GenerationChanged, Older) as error:
            if type(error) is not expects:
                raise AssertionError(f"{type(error).__name__} where {expects} was due") from error
            raise
        assert expects is None, f"granted where {expects} was due"
        return known, answer

    def ask(self, sid: str, n: int, entries: Sequence[Entry]) -> list[Claim]:
        """Lease named items; raises as the script's method does."""
        known, claims = self._granting(sid, "ask", n, self._scripts.claim(sid, n, entries))
        if known is None:
            before = set(self.model.items)
            self.model.ask(sid, entries, claims)
            self.model.remember(sid, "ask", n, claims)
            for entry, claim in zip(entries, claims, strict=True):
                if claim.answer is Answer.GRANTED:
                    self._rises(entry.digest, claim.fence)
                    if entry.digest not in before:
                        # Who asks and hears nothing asks again: it pushes nothing.
                        self._accepted([entry], "+", "")
        else:
            assert isinstance(known, list)
            for entry, said, claim in zip(entries, known, claims, strict=True):
                item = self.model.items.get(entry.digest)
                is_gone = said.answer is Answer.GRANTED and not (item and item.belongs(sid, said.fence))
                is_open = is_gone or said.answer is Answer.WAITING
                assert claim.answer is (Answer.CONTENDED if is_open else said.answer)
        return claims

    def lease(self, sid: str, n: int, want: int, rooms: Mapping[str, int]) -> list[Grant]:
        """Lease; raises as the script's method does."""
        model = self.model
        known, (standing, grants) = self._granting(sid, "lease", n, self._scripts.lease(sid, n, want=want, rooms=rooms))
        if known is None:
            self._check_grants(grants, want, rooms)
            model.grant(sid, grants)
            if want:
                model.remember(sid, "lease", n, [grant.digest for grant in grants])
        else:
            assert isinstance(known, list)
            self._check_repeated(sid, known, grants)
        self._check_standing(standing)
        return grants

    def _check_grants(self, grants: list[Grant], want: int, rooms: Mapping[str, int]) -> None:
        model = self.model
        if want == 0 or model.paused or model.in_grace:
            assert grants == [], "granted nothing: not wanted, paused, or a new server's grace runs"
            return
        model.wake_due()
        assert len(grants) <= want
        for slot in {item.slot for item in model.items.values()}:
            taken = [grant for grant in grants if grant.slot == slot]
            pending = model.pending(slot)
            assert [grant.digest for grant in taken] == pending[: len(taken)], "not the best of its slot first"
            assert len(taken) <= rooms.get(slot, want)
            if pending and len(grants) < want and rooms.get(slot, 1) > 0:
                assert taken, "a slot with room got nothing though more was wanted"
        for grant in grants:
            item = model.items[grant.digest]
            assert (grant.attempts, grant.deaths, grant.mark) == (item.attempts, item.deaths, item.mark)
            assert grant.payload == grant.digest
            self._rises(grant.digest, grant.fence)

    def _rises(self, digest: bytes, fence: int) -> None:
        assert fence > self.seen.fences.get(digest, 0), "a fence did not rise"
        self.seen.fences[digest] = fence

    def _check_repeated(self, sid: str, known: list[bytes], grants: list[Grant]) -> None:
        still = [digest for digest in known if digest in self.model.held(sid)]
        assert [grant.digest for grant in grants] == still, "a repeated lease does not give what is still held"
        assert all(grant.fence == self.model.items[grant.digest].fence for grant in grants)

    def _check_standing(self, standing: Standing) -> None:
        expected = self.model.standing()
        expired = standing.expired
        assert expected == Standing(
            standing.grace, standing.ready, standing.delayed, standing.leased, standing.due, standing.drained,
            standing.paused, "",
        )  # fmt: skip
        over = self.model.over_sessions
        assert expired in over if over and not standing.grace else expired == ""

    def report(self, sid: str, n: int, holds: Sequence[tuple[bytes, int]], previous: str) -> list[int]:
        """Report; raises SessionLost as the script's method does."""
        self.model.meet()
        lives = self.model.is_live(sid)
        known = self.model.replay(sid, "report", n) if lives else None
        call = self._scripts.report(sid, n, holds, previous=previous)
        if known is not None:
            return self._numbered(call, known)
        try:
            fences = self._run(call)
        except SessionLost:
            assert not lives
            raise
        assert lives, "a session that is over reported"
        self.model.report(sid, holds, fences, previous)
        self.model.remember(sid, "report", n, fences)
        for (digest, fence), now in zip(holds, fences, strict=True):
            if now and now != fence:
                self._rises(digest, now)
        return fences

    def reclaim(self, sid: str, deaths: int, policy: str) -> None:
        """Take back what a session that is over still holds."""
        moved = self._run(self._scripts.reclaim(sid, deaths=deaths, policy=policy))
        assert moved == self.model.reclaim(sid, deaths, policy)
