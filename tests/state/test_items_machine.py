"""Any interleaving of what nodes, clocks and servers do leaves each item in one place, with one holder.

After every step the keys are held against the model, so each test states all of: at most one live session holds an
item and record, held set, ready, delayed and payload agree (P1); what was accepted is pending, leased, delayed, done,
rejected or dead (P2); an item is completed at most once a run, and what a stale holder says changes nothing (P3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.scripts import Entry, GenerationChanged, Grant, Scripts, Settlement
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server
from tests.state.bench import Bench, Older, Past
from tests.state.nodes import Node
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.store import Store

NODES = 3
ITEMS = [bytes([first]) * 16 for first in (0, 1, 16, 64, 128, 255)]
SLOTS = ("a", "b", "b.example")
TTLS = (2000, 5000, 60000)

nodes = st.integers(0, NODES - 1)
is_lost = st.sampled_from((False, False, False, True))
entries = st.builds(
    lambda digest, slot, priority, mark: Entry(digest, slot, priority, digest, mark),
    st.sampled_from(ITEMS), st.sampled_from(SLOTS), st.sampled_from((0, 0, 1, -5, 40000)),
    st.sampled_from(("auto", "auto", "run")),
)  # fmt: skip
delays = st.sampled_from((0, 1500, 7000))
verbs = st.one_of(
    st.sampled_from((("done", ("keep",)), ("done", ("run",)), ("rejected", ()), ("sent", ()))),
    st.tuples(st.just("done"), st.tuples(st.just("leads"), st.integers(0, 1))),
    st.tuples(st.just("failed"), st.tuples(delays, st.integers(1, 3), st.just("target"), st.just("tail"))),
    st.tuples(st.just("back"), st.tuples(delays)),
    st.just(("dead", ("corrupt", "tail"))),
)


class Items(RuleBasedStateMachine):
    """Some nodes of one job on one server."""

    runner: asyncio.Runner
    scripts: Scripts
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.store.clear()
        self.bench = Bench(self.runner, self.scripts, self.store)
        self.nodes = [Node(self.bench) for _ in range(NODES)]
        self.granted: list[Grant] = []
        self.past: Past | None = None
        self.loose = 0

    def node(self, number: int) -> Node:
        """Return a node that has a session, as far as it knows."""
        node = self.nodes[number]
        if node.is_lost or not node.sid:
            self.open(number, TTLS[1])
        return node

    @rule(number=nodes, ttl=st.sampled_from(TTLS))
    def open(self, number: int, ttl: int) -> None:
        node = self.nodes[number]
        if node.is_lost or not node.sid:
            node.finish_old()
            node.open(ttl)

    @rule(number=nodes, data=st.data(), lost=is_lost)
    def push(self, number: int, data: st.DataObject, lost: bool) -> None:
        batch = data.draw(st.lists(entries, min_size=1, max_size=5))
        for _ in range(data.draw(st.integers(0, 2))):
            self.loose += 1
            digest = b"\xf0" + self.loose.to_bytes(15, "big")
            batch.append(Entry(digest, data.draw(st.sampled_from(SLOTS)), 0, digest, "none"))
        self.node(number).push(batch, lost)

    @rule(batch=st.lists(entries, min_size=1, max_size=3))
    def push_from_outside(self, batch: list[Entry]) -> None:
        self.bench.push("", 0, batch)

    @rule(number=nodes, want=st.integers(0, 6), lost=is_lost,
          rooms=st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 4), max_size=3))  # fmt: skip
    def lease(self, number: int, want: int, rooms: dict[str, int], lost: bool) -> None:
        node = self.node(number)
        node.lease(want, rooms, lost)
        self.granted.extend(grant for grant in node.holds.values() if grant not in self.granted)

    @rule(number=nodes, data=st.data(), lost=is_lost)
    def ask(self, number: int, data: st.DataObject, lost: bool) -> None:
        model = self.bench.model
        known = [digest for digest, item in model.items.items() if item.state != "leased" and item.mark != "none"]
        known += [digest for digest, run in model.led.items() if run == model.run and digest not in known]
        found = [Entry(digest, "a", 0, digest, "auto") for digest in known]
        asked = st.one_of(entries, st.sampled_from(found)) if found else entries
        batch = data.draw(st.lists(asked, min_size=1, max_size=4))
        node = self.node(number)
        node.ask(batch, lost)
        self.granted.extend(grant for grant in node.holds.values() if grant not in self.granted)

    @precondition(lambda self: self.granted)
    @rule(number=nodes, data=st.data(), lost=is_lost)
    def settle(self, number: int, data: st.DataObject, lost: bool) -> None:
        node = self.node(number)
        own = list(node.holds.values())
        grants = st.one_of(*([st.sampled_from(own)] * 3 if own else []), st.sampled_from(self.granted))
        rows = data.draw(st.lists(st.tuples(grants, verbs), min_size=1, max_size=4))
        node.settle([self.settlement(grant, verb, args) for grant, (verb, args) in rows], lost)

    def settlement(self, grant: Grant, verb: str, args: tuple[Any, ...]) -> Settlement:
        """Return what a node says of a grant; what is not an item is not marked."""
        if grant.mark == "none" and verb in ("done", "rejected"):
            args = ("none",)
        return Settlement(grant.digest, grant.fence, verb, args)

    @rule(number=nodes, ttl=st.sampled_from(TTLS))
    def beat(self, number: int, ttl: int) -> None:
        self.node(number).beat(ttl)

    @rule(number=nodes)
    def close(self, number: int) -> None:
        self.bench.close(self.node(number).sid)
        self.forget(number)

    @rule(number=nodes)
    def crash(self, number: int) -> None:
        self.forget(number)

    def forget(self, number: int) -> None:
        """The process is gone, and what only it knew."""
        node = self.nodes[number]
        for digest in [digest for digest, sid in self.bench.at_risk.items() if sid in node.sids]:
            del self.bench.at_risk[digest]
        self.nodes[number] = Node(self.bench)

    @precondition(lambda self: self.bench.sids)
    @rule(data=st.data(), deaths=st.sampled_from((2, 5)), policy=st.sampled_from(("refetch", "park")))
    def reclaim(self, data: st.DataObject, deaths: int, policy: str) -> None:
        over = sorted(self.bench.model.over_sessions)
        self.bench.reclaim(data.draw(st.sampled_from(over or self.bench.sids)), deaths, policy)

    @rule(number=nodes, verb=st.sampled_from(("claim", "finish", "leave")))
    def start(self, number: int, verb: str) -> None:
        sid = self.node(number).sid
        if verb == "claim":
            self.bench.claim(sid)
        else:
            self.bench.stop_producing(sid, verb)

    @rule(milliseconds=st.sampled_from((400, 1500, 3000, 10000, 70000)))
    def pass_time(self, milliseconds: int) -> None:
        self.bench.pass_time(milliseconds)

    @rule()
    def step_clock(self) -> None:
        self.bench.step_clock()

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.bench.pause(on)

    @precondition(lambda self: any(node.answered for node in self.nodes))
    @rule(data=st.data())
    def late_copy(self, data: st.DataObject) -> None:
        """A call that was stuck in a dead connection arrives when its repeat was answered long ago."""
        call = data.draw(st.sampled_from([call for node in self.nodes for call in node.answered]))
        before = self.bench.read()
        with contextlib.suppress(Older, SessionLost, GenerationChanged):
            self.nodes[0].make(call)
        assert self.bench.read() == before, f"a late copy of {call} changed something"

    @rule()
    def restart(self) -> None:
        self.bench.restart()

    @precondition(lambda self: not self.bench.at_risk)
    @rule()
    def save(self) -> None:
        """From here on the server may lose what is written; what it lost before was repeated."""
        self.past = self.bench.save()
        for node in self.nodes:
            node.pushed, node.settled = [], []

    @precondition(lambda self: self.past is not None)
    @rule()
    def lose_tail(self) -> None:
        assert self.past is not None
        self.bench.lose_since(self.past, set().union(*(node.sids for node in self.nodes)))
        for node in self.nodes:
            node.answered.clear()

    @invariant()
    def records_and_places_agree(self) -> None:
        contents, model = self.bench.read(), self.bench.model
        contents.check()
        assert contents.now == model.now, "the lease clock follows the server's steps"
        assert contents.dead == model.dead
        assert contents.sessions == contents.members == model.members
        assert contents.producing == model.producing
        assert contents.records.keys() == model.items.keys()
        for digest, record in contents.records.items():
            item = model.items[digest]
            assert (record.state, record.slot, record.mark, record.attempts, record.deaths) == (
                item.state, item.slot, item.mark, item.attempts, item.deaths,
            )  # fmt: skip
            assert (record.session, record.fence, record.sent) == (item.session, item.fence, item.sent)
            assert contents.delayed.get(digest, 0) == item.due

    @invariant()
    def what_a_live_session_holds_is_its_own(self) -> None:
        model = self.bench.model
        for node in self.nodes:
            settled = not model.is_new_server and model.is_live(node.sid) and model.is_reported(node.sid)
            if settled and "report" not in node.unanswered:
                for grant in node.holds.values():
                    assert model.items[grant.digest].belongs(node.sid, grant.fence)

    @invariant()
    def what_was_accepted_is_there(self) -> None:
        model, bench = self.bench.model, self.bench
        there = model.items.keys() | model.dead.keys()
        assert bench.seen.accepted.keys() == there
        for node in self.nodes:
            if node.knows_server and node.sid and not node.is_lost:
                assert not node.sids.intersection(bench.at_risk.values()), "a node did not repeat what the server lost"

    @invariant()
    def nothing_is_completed_twice_in_a_run(self) -> None:
        assert all(count == 1 for (digest, _), count in self.bench.seen.completed.items() if digest in ITEMS)


class Claims(Items):
    """Nodes that schedule by themselves on a server that stays: what others push, pause and break is left out."""

    push = push_from_outside = start = step_clock = pause = restart = save = lose_tail = None  # type: ignore[assignment]


@pytest.fixture
def make_machine(server: Server) -> Iterator[Callable[[type[Items]], type[Items]]]:
    """Makes a machine over a connection to the server."""
    scope = Namespace("ns").scope("job", expected_items=1000)
    with asyncio.Runner() as runner:
        channel = Channel(server.url, server.url, 10, StoreStats())
        parts = {"runner": runner, "scripts": Scripts(channel, scope), "store": Store(server.client(), scope)}
        yield lambda machine: type("Machine", (machine,), parts)
        runner.run(channel.close())


@pytest.fixture
def machine(make_machine: Callable[[type[Items]], type[Items]]) -> type[Items]:
    """The machine over a connection to the server."""
    return make_machine(Items)


@pytest.mark.timeout(TIMEOUT)
def test_every_item_is_in_one_place_and_has_one_holder(machine: type[Items]) -> None:
    """Whatever nodes, clocks and servers do in whatever order: P1, P2 and P3 hold after every step."""
    run_state_machine_as_test(machine, settings=PROFILE)


@pytest.mark.timeout(TIMEOUT)
def test_named_items_are_in_one_place_and_have_one_holder(
    make_machine: Callable[[type[Items]], type[Items]],
) -> None:
    """However nodes claim, settle, lose and take over named items: P1, P2 and P3 hold after every step."""
    run_state_machine_as_test(make_machine(Claims), settings=PROFILE)


@pytest.fixture
def one(machine: type[Items]) -> Iterator[Items]:
    """A machine with one pending item."""
    items = machine()
    items.push_from_outside([Entry(ITEMS[0], "a", 0, ITEMS[0], "auto")])
    yield items
    items.records_and_places_agree()


def test_sent_and_settled_in_one_call(one: Items) -> None:
    """An item that is said to be sent and handed back in the same call is handed back."""
    one.lease(0, 1, {}, False)
    (grant,) = one.nodes[0].holds.values()
    rows = [Settlement(grant.digest, grant.fence, verb, args) for verb, args in (("sent", ()), ("back", (0,)))]
    one.nodes[0].settle(rows, False)
    assert one.bench.model.items[ITEMS[0]].state == "pending"


@pytest.mark.parametrize("passes", [0, 1499, 1500])
def test_what_failed_is_asked_for(one: Items, passes: int) -> None:
    """By name it is had when its wait is over and not before, and then it waits no more."""
    one.lease(0, 1, {}, False)
    (grant,) = one.nodes[0].holds.values()
    args = (1500, 3, "target", "tail")
    one.nodes[0].settle([Settlement(grant.digest, grant.fence, "failed", args)], False)
    one.pass_time(passes)
    one.nodes[1].open(TTLS[1])
    one.nodes[1].ask([Entry(ITEMS[0], "a", 0, ITEMS[0], "auto")], False)
    assert len(one.nodes[1].holds) == (passes == 1500)


@pytest.mark.parametrize(("kept", "answers"), [(0, ">+"), (1, ">.")])
def test_a_page_that_led_on_says_so_in_its_run(one: Items, kept: int, answers: str) -> None:
    """In its run it is over and led on; in the next it is new, or over like any other where it is kept."""
    one.lease(0, 1, {}, False)
    (grant,) = one.nodes[0].holds.values()
    one.nodes[0].settle([Settlement(grant.digest, grant.fence, "done", ("leads", kept))], False)
    said = ""
    for _ in answers:
        sid = one.node(1).sid
        one.nodes[1].ask([Entry(ITEMS[0], "a", 0, ITEMS[0], "auto")], False)
        said += one.bench.model.lives[sid].numbered["ask"][1][0].answer
        one.close(0)
        one.close(1)
    assert said == answers


def test_a_repeated_claim_gives_what_is_still_held(one: Items) -> None:
    """Of what a claim leased, its repeat gives what the session still holds; the rest is to be asked for."""
    node = one.node(0)
    node.ask([Entry(digest, "a", 0, digest, "auto") for digest in ITEMS[:2]], False)
    first, _ = node.holds.values()
    node.settle([Settlement(first.digest, first.fence, "back", (0,))], False)
    claims = node.make(node.answered[0])
    assert [claim.answer for claim in claims] == ["=", "+"]


@pytest.mark.parametrize("hindrance", ["pause", "restart"])
def test_a_late_copy_of_a_lease_in_vain_takes_nothing(one: Items, hindrance: str) -> None:
    """A call that granted nothing, for the job was paused or in grace, grants nothing when its copy comes later."""
    one.open(0, TTLS[1])
    if hindrance == "pause":
        one.pause(True)
    else:
        one.restart()
        one.lease(0, 1, {}, False)
    one.lease(0, 1, {}, False)
    one.pause(False)
    one.beat(0, TTLS[2])
    one.pass_time(10000)
    before = one.bench.read()
    one.nodes[0].make(one.nodes[0].answered[-1])
    assert one.bench.read() == before


def test_what_was_sent_before_a_loss_stays_sent(one: Items) -> None:
    """A session that takes its items along after a loss may still have sent them: at most once depends on it."""
    one.lease(0, 1, {}, False)
    (grant,) = one.nodes[0].holds.values()
    one.nodes[0].settle([Settlement(grant.digest, grant.fence, "sent", ())], False)
    one.pass_time(70000)
    one.beat(0, TTLS[1])
    one.open(0, TTLS[1])
    assert one.bench.read().records[ITEMS[0]].sent
