"""A session is never confirmed beyond its deadline in the store, and a hold is settled once, whatever comes first.

The session's machine plays a store in memory, to answer late, never, or in another order; that this one answers as the
real scripts do is the first test.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from scrapy_lease.exceptions import SessionLost, StoreUnavailable
from scrapy_lease.leases.items import Hold, Ledger, Patience, Settled, Verdict
from scrapy_lease.leases.session import Session, SessionStore
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server
from tests.state.memory import Answering, Memory, Pending
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.store import Store

TTL = 2000
OPEN: dict[str, Any] = {"ttl": TTL, "config": "c", "fresh": True, "info": {}}

Pass = Callable[[int], None]


@pytest.fixture(params=["memory", "scripts"])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, SessionStore, Pass]]:
    """A store, the loop to call it on, and how to let its lease clock go on (ms)."""
    with asyncio.Runner() as runner:
        if request.param == "memory":
            memory = Memory()
            yield runner, Answering(memory), memory.go_on
            return
        server: Server = request.getfixturevalue("server")
        scope = Namespace("ns").scope("job")
        channel = Channel(server.url, server.url, 10, StoreStats())
        yield runner, Scripts(channel, scope), Store(server.client(), scope).pass_time
        runner.run(channel.close())


def test_the_store_in_memory_answers_as_the_scripts_do(world: tuple[asyncio.Runner, SessionStore, Pass]) -> None:
    """Open, beat, close and loss mean the same in both stores: lost is what the deadline has passed or was closed."""
    runner, store, go_on = world

    def beat(sid: str, ttl: int = TTL) -> Any:
        return runner.run(store.beat(sid, ttl=ttl, node="n"))

    assert runner.run(store.open("one", **OPEN)).live == 1
    assert runner.run(store.open("two", **OPEN)).live == 2
    go_on(1500)
    assert beat("one").live == 2
    go_on(1000)
    assert beat("one").live == 1
    with pytest.raises(SessionLost):
        beat("two")
    beat("one", 60_000)
    beat("one", 2000)
    go_on(30_000)
    assert beat("one").live == 1, "a shorter time to live took back what a longer one had given"
    runner.run(store.close("one"))
    runner.run(store.close("one"))
    for sid in ("one", "two", "unknown"):
        with pytest.raises(SessionLost):
            beat(sid)


class Sessions(RuleBasedStateMachine):
    """One session, its beats under way, two clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.boot = 1000.0
        self.memory = Memory()
        self.session = Session(node="n", ttl=self.ttl, config="c", fresh=True, info={}, clock=lambda: self.boot)
        self.calls: list[tuple[Coroutine[Any, Any, Any], Pending]] = []
        self.opening = False
        self.stepped = float("-inf")
        self.epochs: list[tuple[int, str]] = []
        self.send(self.session.open(self.memory))

    ttl: float | None

    def send(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run the session's method up to its call of the store; it waits for its answer from there on."""
        try:
            self.calls.append((coroutine, coroutine.send(None)))
        except StopIteration:
            return

    def answer(self, index: int, reply: Any) -> None:
        """Give a call its reply, or the error that the session is to see."""
        coroutine, call = self.calls.pop(index)
        try:
            coroutine.throw(reply) if isinstance(reply, Exception) else coroutine.send(reply)
        except StopIteration:
            if call.verb == "open":
                self.epochs.append((self.session.epoch, self.session.sid))
        except StoreUnavailable:
            assert isinstance(reply, StoreUnavailable)
        else:
            raise AssertionError("a method called the store twice")

    @precondition(lambda self: not any(call.verb == "open" for _, call in self.calls))
    @rule(worst_lag=st.sampled_from((0.0, 0.0, 2.0, 20.0)))
    def beat(self, worst_lag: float) -> None:
        """The heartbeat or the watchdog beats; after a loss the backlog opens another session."""
        if self.session.is_lost or not self.session.sid:
            self.send(self.session.open(self.memory))
        else:
            self.send(self.session.beat(self.memory, worst_lag=worst_lag))

    @rule(number=st.sampled_from((1, 11, 51, 201)))
    def beat_is_answered(self, number: int) -> None:
        """All goes well, as it mostly does; *number*: live sessions."""
        self.memory.others = number - 1
        if not any(call.verb == "open" for _, call in self.calls):
            self.beat(0.0)
        self.calls[-1][1].run()
        self.answer(len(self.calls) - 1, self.calls[-1][1].reply)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def call_arrives(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([call for _, call in self.calls])).run()

    @precondition(lambda self: any(call.has_run for _, call in self.calls))
    @rule(data=st.data())
    def reply_arrives(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from([i for i, (_, call) in enumerate(self.calls) if call.has_run]))
        self.answer(index, self.calls[index][1].reply)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def reply_is_lost(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.calls) - 1))
        self.answer(index, StoreUnavailable("no answer"))

    @rule(
        seconds=st.sampled_from((0.1, 0.7, 1.0, 1.7, 4.0, 30.0)), drift=st.sampled_from((0.995, 1.0, 1.005)),
        is_busy=st.sampled_from((True, True, False)),
    )  # fmt: skip
    def pass_time(self, seconds: float, drift: float, is_busy: bool) -> None:
        """*is_busy*: somebody calls often enough for the lease clock to keep up."""
        for _ in range(math.ceil(seconds)):
            self.boot += seconds / math.ceil(seconds)
            self.memory.wall += seconds / math.ceil(seconds) * 1000 * drift
            if is_busy:
                self.memory.advance()

    @rule(hours=st.sampled_from((-1, 1)))
    def step_wall_clock(self, hours: int) -> None:
        """At most one step forward in a time to live: each may cost a second."""
        if hours < 0 or self.boot > self.stepped + 61:
            self.memory.wall += hours * 3_600_000
            self.stepped = self.boot

    @rule()
    def others_call(self) -> None:
        self.memory.advance()

    @rule(number=st.sampled_from((1, 51)))
    def store_forgets(self, number: int) -> None:
        """Somebody empties the server: no session that it knew can be promised anything; the next beats find it out."""
        self.memory.forget()
        self.beat_is_answered(number)
        self.beat_is_answered(number)

    @invariant()
    def confirmed_ends_before_the_deadline(self) -> None:
        session, memory = self.session, self.memory
        if session.is_confirmed and session.sid not in memory.forgotten:
            assert memory.deadlines.get(session.sid, 0) > memory.now + memory.due_step()

    @invariant()
    def each_session_has_an_epoch_of_its_own(self) -> None:
        assert [epoch for epoch, _ in self.epochs] == list(range(1, len(self.epochs) + 1))
        assert len({sid for _, sid in self.epochs}) == len(self.epochs)

    def teardown(self) -> None:
        """Closing ends all certainty, whatever is answered afterwards."""
        self.send(self.session.close(self.memory))
        while self.calls:
            assert not self.session.is_confirmed
            self.calls[0][1].run()
            self.answer(0, self.calls[0][1].reply)
        assert not self.session.is_confirmed


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("ttl", [2.0, 5.0, None], ids=["2", "5", "auto"])
def test_a_session_is_never_confirmed_beyond_its_deadline(ttl: float | None) -> None:
    """Late answers, lost replies, a clock that steps and drifts, new epochs: confirmed ends before the deadline."""
    run_state_machine_as_test(type("Machine", (Sessions,), {"ttl": ttl}), settings=PROFILE)


class Holds(RuleBasedStateMachine):
    """A ledger, and what the tasks of a crawl say about its holds in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(Patience(3, (60, 3600)), self.count)
        self.holds: list[Hold] = []
        self.out: list[Settled] = []
        self.dropped: set[Hold] = set()
        self.forced: set[Hold] = set()
        self.verdicts: dict[Hold, list[Verdict]] = {}
        self.told = 0

    def count(self) -> None:
        self.told += 1

    @rule(mark=st.sampled_from(("auto", "run", "none")))
    def granted(self, mark: str) -> None:
        hold = Hold(bytes([len(self.holds)]), len(self.holds) + 1, 1, "slot", mark, b"")
        assert self.ledger.add(hold)
        assert not self.ledger.add(hold), "a repeated grant was taken twice"
        hold.open = 1
        self.holds.append(hold)
        self.verdicts[hold] = []

    def some(self, data: st.DataObject) -> Hold:
        """Return a hold, over or not."""
        if not self.holds:
            self.granted("auto")
        return data.draw(st.sampled_from(self.holds))

    @rule(data=st.data())
    def continues(self, data: st.DataObject) -> None:
        hold = self.some(data)
        if hold.open:
            hold.open += 1

    @rule(data=st.data())
    def child_queued(self, data: st.DataObject) -> None:
        hold = self.some(data)
        if hold.open:
            self.ledger.child_queued(hold)

    @rule(data=st.data())
    def child_safe(self, data: st.DataObject) -> None:
        hold = self.some(data)
        if hold.unsafe:
            self.ledger.child_safe(hold)

    @rule(data=st.data(), verdict=st.sampled_from(Verdict), items=st.integers(0, 1))
    def request_ended(self, data: st.DataObject, verdict: Verdict, items: int) -> None:
        hold = self.some(data)
        if hold.open:
            self.verdicts[hold].append(verdict)
            self.ledger.request_ended(hold, verdict, "reason", "trace", items)

    @rule(data=st.data(), how=st.sampled_from(("hand_back", "bury", "drop", "restart", "mark_sent")))
    def forced_end(self, data: st.DataObject, how: str) -> None:
        hold = self.some(data)
        is_held = self.ledger.is_held(hold)
        match how:
            case "drop":
                self.ledger.drop(hold)
                if is_held:
                    self.dropped.add(hold)
            case "restart" if is_held:
                hold.restart()
                hold.open, self.verdicts[hold] = 1, []
            case "mark_sent" if is_held:
                self.ledger.mark_sent(hold)
            case "hand_back" | "bury":
                self.ledger.hand_back(hold) if how == "hand_back" else self.ledger.bury(hold, "corrupt", "")
                if is_held:
                    self.forced.add(hold)

    @rule(limit=st.integers(1, 3))
    def taken_out(self, limit: int) -> None:
        self.out.extend(self.ledger.take_outbox(limit))

    @invariant()
    def each_is_held_or_settled_once_or_dropped(self) -> None:
        out = [*self.out, *self.ledger.outbox]
        assert self.told == len(out), "the ledger did not say that something waits, or lost it"
        left = [settled.hold for settled in out if settled.verb != "sent"]
        assert len(left) == len(set(left)), "a hold was settled twice"
        assert not self.dropped.intersection(left), "what another session has was settled"
        for hold in self.holds:
            places = (self.ledger.is_held(hold), hold in left, hold in self.dropped)
            assert places.count(True) == 1, f"held, settled, dropped: {places}"
            assert hold.is_settled is not self.ledger.is_held(hold)

    @invariant()
    def nothing_ends_before_what_it_led_to(self) -> None:
        for hold in self.ledger:
            assert not (hold.open == hold.unsafe == 0 and self.verdicts[hold]), "over, and not settled"

    @invariant()
    def the_gravest_verdict_is_settled(self) -> None:
        for settled in (*self.out, *self.ledger.outbox):
            if settled.verb != "sent" and settled.hold not in self.forced:
                verdict = max(self.verdicts[settled.hold])
                assert settled.verb == verdict.name.lower()


@pytest.mark.timeout(TIMEOUT)
def test_a_hold_is_settled_once() -> None:
    """Requests end, children become safe, a session hands back or is replaced, in any order: one settlement each."""
    run_state_machine_as_test(Holds, settings=PROFILE)
