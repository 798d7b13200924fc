"""Any interleaving of nodes, slices, give-backs, crashes, lost replies, window ends and clock steps keeps the limit.

What is spent is written down under the window in which the server's clock is at that instant. It never exceeds the
limit, but for one limit more for each step of that clock.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from scrapy_lease.leases.rates import Limit, RateOptions
from scrapy_lease.leases.rates.slices import Slice
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.helpers.timed import TimedWire
from tests.state.pool_wire import run
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.rate_nodes import NAME, TTL, RateNode, Recorder

NODES = 3
DRIFTS = (0.9995, 1.0, 1.0005)
PERMITS = 7
#: Windows shorter than the grace of a new server, and longer ones.
KINDS = [("fixed", 1000), ("fixed", 20_000), ("sliding", 20_000)]

nodes = st.integers(0, NODES - 1)
fates = st.sampled_from(("ok", "ok", "ok", "call", "reply"))
ways = st.tuples(st.sampled_from((0, 1, 40, 400)), st.sampled_from((0, 1, 40, 400)))
picks = st.integers(0, 50)


class RatesMachine(RuleBasedStateMachine):
    """Some nodes of one counter on one server."""

    server: Server
    options: RateOptions
    window: int

    def __init__(self) -> None:
        super().__init__()
        self.client = self.server.client()
        self.client.flushdb()
        self.wire = TimedWire(self.client)
        self.recorder = Recorder(self.wire)
        self.scripts = Scripts(self.wire, Namespace("test").scope("shop", expected_items=100))  # type: ignore[arg-type]
        self.boot = 0
        self.nodes = [self.new_node(number) for number in range(NODES)]
        #: Of each moment of the server's clock (ms), and of each of its windows.
        self.moments: Counter[float] = Counter()
        self.spent: Counter[float] = Counter()
        self.steps = 0
        self.has_steps = False

    def new_node(self, number: int) -> RateNode:
        limit = Limit(PERMITS, self.window)
        return RateNode(
            self.recorder, self.scripts, limit, self.options, lambda: self.boot / 1000, DRIFTS[number % len(DRIFTS)]
        )

    @initialize(has_steps=st.booleans())
    def begin(self, has_steps: bool) -> None:
        """A clock that is stepped hides what is too much without it."""
        self.has_steps = has_steps

    @rule(milliseconds=st.sampled_from((1, 20, 100, 300, 950, 1000, 2500)))
    def pass_time(self, milliseconds: int) -> None:
        self.boot += milliseconds
        self.wire.now += milliseconds
        for node in self.nodes:
            node.beat()

    @rule(number=nodes, want=st.integers(1, 9), fate=fates, ways=ways)
    def ask(self, number: int, want: int, fate: str, ways: tuple[int, int]) -> None:
        self.nodes[number].ask(want, fate, self.pass_time, ways)

    @rule(number=nodes, permits=st.integers(1, 9))
    def spend(self, number: int, permits: int) -> None:
        spent, now = self.nodes[number].spend(permits), self.wire.now
        most = PERMITS * (1 + self.steps)
        self.spent[now // self.window] += spent
        assert self.spent[now // self.window] <= most
        self.moments[now] += spent
        if self.options.algorithm == "sliding":
            in_one = sum(count for moment, count in self.moments.items() if abs(now - moment) < self.window)
            # What lies ahead of a clock that went back is counted too.
            assert in_one <= most or (self.steps and in_one <= 2 * most)

    @rule(number=nodes, fate=fates, ways=ways)
    def give_back(self, number: int, fate: str, ways: tuple[int, int]) -> None:
        self.nodes[number].give_back(fate, self.pass_time, ways)

    @rule(number=nodes)
    def crash(self, number: int) -> None:
        """A process dies, and another is started; its session is over when its time has come."""
        self.nodes[number] = self.new_node(number)

    @rule(number=nodes)
    def lose_session(self, number: int) -> None:
        self.nodes[number].lose()

    @rule(pick=picks)
    def copy_arrives(self, pick: int) -> None:
        """What was sent long ago arrives once more, from a connection that is gone."""
        if self.recorder.sent:
            run(self.wire.call(self.recorder.sent[-1 - pick % len(self.recorder.sent)]))

    @precondition(lambda self: self.has_steps)
    @rule(milliseconds=st.sampled_from((-5000, -1100, -900, -30, 30, 900, 1100, 5000)))
    def step_clock(self, milliseconds: int) -> None:
        self.wire.now += milliseconds
        self.steps += 1

    @rule(number=nodes, want=st.integers(1, 9), milliseconds=st.sampled_from((0, 40, 900)))
    def tail_is_lost(self, number: int, want: int, milliseconds: int) -> None:
        """The server is started again, and has lost its last words: a grant, and what came in the second after it."""
        written = self.client.dump(self.key)
        self.nodes[number].ask(want, "ok", self.pass_time, (0, 0))
        self.pass_time(milliseconds)
        self.nodes[(number + 1) % NODES].ask(want, "ok", self.pass_time, (0, 0))
        self.client.delete(self.key)
        if written is not None:
            self.client.restore(self.key, 0, written)
        self.restart()

    @rule()
    def restart(self) -> None:
        """The server is started again; within its grace each node says what it was granted lately."""
        self.wire.be_another_server()
        for node in self.nodes:
            node.beat()
            for lane in node.counter.lanes:
                lane.must_tell = bool(lane.recent)
            while node.counter.lanes[0].must_tell or node.counter.lanes[0].unanswered is not None:
                node.ask(0, "ok", lambda milliseconds: None, (0, 0))
        for _ in range(2):
            self.client.hincrby(self.scripts.scope.namespace.clock, "now", TTL // 2)
            for node in self.nodes:
                node.beat()

    @property
    def key(self) -> str:
        return self.scripts.scope.namespace.rate(NAME.label)


def machine_of(server: Server, algorithm: str, window: int) -> type[RatesMachine]:
    options = RateOptions(algorithm=algorithm)  # type: ignore[arg-type]
    return type("Machine", (RatesMachine,), {"server": server, "options": options, "window": window})


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(("algorithm", "window"), KINDS)
def test_spent_never_exceeds_the_limit(server: Server, algorithm: str, window: int) -> None:
    """See the module's docstring."""
    run_state_machine_as_test(machine_of(server, algorithm, window), settings=settings(PROFILE))


@pytest.mark.parametrize(("algorithm", "window"), KINDS)
def test_the_machine_sees_what_is_too_much(server: Server, algorithm: str, window: int) -> None:
    """A node that spends beyond what it was granted is found: the machine cannot pass by blindness."""
    machine = machine_of(server, algorithm, window)()
    machine.ask(0, 9, "ok", (0, 0))
    machine.spend(0, 9)
    machine.nodes[1].counter.purse.add(Slice(0, 1, 1.0, 1))
    with pytest.raises(AssertionError):
        machine.spend(1, 9)
