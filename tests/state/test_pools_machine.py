"""Any interleaving of what nodes, providers, operators, clocks and servers do leaves each resource with one holder.

After every step the keys are held against the model and against each other: at most one live session holds an identity,
and one identity of an exit is in play; only a provider sets an expiry; what was registered is there until it expires or
is gone by verdict; what a stale holder says changes nothing. And whenever everybody does what the pool asks of them,
whoever waits is served.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import Backoff, Resource, Verdict
from scrapy_lease.store.scripts import Scripts
from scrapy_lease.store.server import StoreStats
from tests.helpers.servers import Server
from tests.state.pool_bench import Older, Past, PoolBench
from tests.state.pool_nodes import PoolNode
from tests.state.pool_store import PoolContents
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.store import Store

NODES = 3
NAMES = ("p1", "p2", "p3", "p4", "u1", "u2", "v1")
EXITS = {"u1": "10.0.0.1", "u2": "10.0.0.1", "v1": "10.0.0.2"}
SITES = ("a", "b", "c", "d")
TTLS = (2000, 5000, 60000)
BACKOFF = Backoff(3000, 20_000)

nodes = st.integers(0, NODES - 1)
is_lost = st.sampled_from((False, False, False, True))
names = st.sampled_from(NAMES)
sites = st.sampled_from(SITES)
asks = st.lists(st.tuples(st.one_of(sites, st.just("")), st.integers(1, 4)), max_size=2)
verbs = st.one_of(
    st.tuples(st.just("ok"), st.tuples(sites)),
    st.tuples(st.just("ban"), st.tuples(sites, st.just(BACKOFF))),
    st.sampled_from((("back", ()), ("back", (0,)), ("broken", (BACKOFF,)), ("gone", ("refused",)))),
)


class Pools(RuleBasedStateMachine):
    """Some nodes of one pool on one server."""

    runner: asyncio.Runner
    scripts: Scripts
    store: Store
    client: Any

    def __init__(self) -> None:
        super().__init__()
        self.store.clear()
        keys = self.scripts.scope.namespace.pool("proxy", "default")
        self.bench = PoolBench(self.runner, self.scripts, self.client, self.store, keys)
        self.nodes = [PoolNode(self.bench) for _ in range(NODES)]
        self.granted: list[tuple[str, int]] = []
        self.past: Past | None = None

    def node(self, number: int) -> PoolNode:
        """A node that has a session, as far as it knows."""
        node = self.nodes[number]
        if node.is_lost or not node.sid:
            node.open(TTLS[1])
        return node

    def resources(self, chosen: list[str], moves: bool) -> list[Resource]:
        """What a provider lists; *moves*: behind another exit than before."""
        return [
            Resource(name, name.encode(), self.bench.later if name != "p1" else 0,
                     "10.0.0.9" if moves and name in EXITS else EXITS.get(name, ""))
            for name in chosen
        ]  # fmt: skip

    @initialize()
    def begin(self) -> None:
        self.bench.register("", 0, self.resources(list(NAMES), False))

    @rule(chosen=st.lists(names, min_size=1, max_size=7), moves=st.sampled_from((False, False, True)))
    def refill_from_outside(self, chosen: list[str], moves: bool) -> None:
        self.bench.register("", 0, self.resources(chosen, moves))

    @rule(number=nodes, chosen=st.lists(names, min_size=1, max_size=7), lost=is_lost)
    def refill(self, number: int, chosen: list[str], lost: bool) -> None:
        self.node(number).register(self.resources(chosen, False), lost)

    @rule(number=nodes, wants=asks, lost=is_lost)
    def take(self, number: int, wants: list[tuple[str, int]], lost: bool) -> None:
        node = self.node(number)
        node.take(wants, lost)
        self.granted.extend(hold for hold in node.holds.items() if hold not in self.granted)

    @precondition(lambda self: self.granted)
    @rule(number=nodes, data=st.data(), lost=is_lost)
    def settle(self, number: int, data: st.DataObject, lost: bool) -> None:
        node = self.node(number)
        own = list(node.holds.items())
        holds = st.one_of(*([st.sampled_from(own)] * 3 if own else []), st.sampled_from(self.granted))
        rows = data.draw(st.lists(st.tuples(holds, verbs), min_size=1, max_size=4))
        node.settle([Verdict(name, fence, verb, args) for (name, fence), (verb, args) in rows], lost)

    @rule(number=nodes, ttl=st.sampled_from(TTLS))
    def beat(self, number: int, ttl: int) -> None:
        self.node(number).beat(ttl)

    @rule(number=nodes, closes=st.booleans())
    def leave(self, number: int, closes: bool) -> None:
        """A node closes its session, or its process is gone with all it knew."""
        if closes:
            self.bench.run(self.scripts.close(self.node(number).sid))
        self.nodes[number] = PoolNode(self.bench)

    @precondition(lambda self: self.bench.sids)
    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        self.bench.reclaim(data.draw(st.sampled_from(self.bench.sids)))

    @rule(verb=st.sampled_from(("drain", "undrain", "revoke", "free")), name=names)
    def operate(self, verb: str, name: str) -> None:
        self.bench.change(verb, name)

    @precondition(lambda self: self.bench.model.known)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.bench.expire(data.draw(st.sampled_from(sorted(self.bench.model.known))))

    @rule(milliseconds=st.sampled_from((0, 400, 1500, 3000, 10000, 70000)))
    def pass_time(self, milliseconds: int) -> None:
        """Time passes; or the server's clock is stepped."""
        if milliseconds:
            self.bench.pass_time(milliseconds)
        else:
            self.bench.step_clock()

    @precondition(lambda self: any(node.answered for node in self.nodes))
    @rule(data=st.data())
    def late_copy(self, data: st.DataObject) -> None:
        """A call that was stuck in a dead connection arrives when its repeat was answered long ago."""
        node = data.draw(st.sampled_from([node for node in self.nodes if node.answered]))
        call = data.draw(st.sampled_from(node.answered))
        before = self.bench.read().parts
        with contextlib.suppress(Older, SessionLost, GenerationChanged):
            node.make(call)
        after = self.bench.read().parts
        if call.verb != "take":
            assert after == before, f"a late copy of {call} changed something"

    @rule(what=st.sampled_from(("restart", "save", "lose tail")))
    def server(self, what: str) -> None:
        """The server restarts, with all it had or without what was written since an earlier moment."""
        if what == "save":
            self.past = self.bench.save()
            for node in self.nodes:
                node.registered = []
        elif what == "restart" or self.past is not None:
            self.restarted(self.past if what == "lose tail" else None)

    def restarted(self, past: Past | None) -> None:
        self.bench.restart(past)
        for node in self.nodes:
            node.answered.clear()

    @precondition(lambda self: self.bench.model.known)
    @rule(site=sites)
    def everybody_wants_one(self, site: str) -> None:
        """All call in turn, give back what they are asked for, and take back what dead sessions left."""
        for _ in range(3):
            self.bench.pass_time(1000)
            for number in range(NODES):
                self.keep_alive(number)
        for sid in self.bench.sids:
            self.bench.reclaim(sid)
        served: set[int] = set()
        for _ in range(3 * NODES):
            self.bench.pass_time(500)
            self.age_leases()
            for number in range(NODES):
                self.turn(number, site, served)
        contents, model = self.bench.read(), self.bench.model
        is_open = (
            site not in model.sites and int(self.client.hget(self.bench.keys.namespace.clock, "grace")) <= model.now
        )
        fit = [name for name, known in model.known.items()
               if known.state in ("play", "leased") and known.flag == " " and not model.has_expired(known)
               and site not in known.rests]  # fmt: skip
        if (
            is_open
            and fit
            and len({known.exit or name for name, known in model.known.items() if name in fit}) == len(fit)
        ):
            waits = set(range(NODES)) - served
            assert not waits, f"{waits} wait for ever, {contents.parts['waiting']}, {fit}"

    def keep_alive(self, number: int) -> None:
        for verb in list(self.node(number).unanswered):
            with contextlib.suppress(SessionLost):
                getattr(self.nodes[number], verb)([], False) if verb != "report" else None
        self.node(number).beat(TTLS[2])

    def turn(self, number: int, site: str, served: set[int]) -> None:
        node = self.node(number)
        node.beat(TTLS[2], looks=False)
        node = self.node(number)
        node.take([(site, 1 if not node.holds else 0)], False)
        if any(site not in self.bench.model.known[name].rests for name in node.holds if name in self.bench.model.known):
            served.add(number)
        back = list(node.holds.items())[: node.yields]
        node.settle([Verdict(name, fence, "back") for name, fence in back], False)

    def age_leases(self) -> None:
        """Let leases be old enough to rotate, by the wall clock too."""
        key = self.bench.keys.key("leases")
        for name, lease in self.client.hgetall(key).items():
            self.client.hset(key, name, lease[:16] + b"%013d" % (int(lease[16:29]) - 1000) + lease[29:])

    @invariant()
    def keys_and_model_agree(self) -> None:
        contents, model = self.bench.read(), self.bench.model
        contents.check()
        assert contents.now == model.now, "the lease clock follows the server's steps"
        assert contents.parts["resources"].keys() == model.known.keys(), "something vanished, or came from nowhere"
        for name, known in model.known.items():
            record = contents.parts["resources"][name]
            place = contents.place(name)
            states = {
                "play": {"free", "spotted", "behind"},
                "leased": {"leases"},
                "resting": {"resting"},
                "aside": {"aside"},
            }
            assert place in states[known.state], f"{name} is {place}, and should be {known.state}"
            assert (chr(record[0]), int(record[1:3]), int(record[3:16])) == (known.flag, known.strikes, known.expiry)
            assert contents.exit_of(name) == known.exit
            if known.state == "leased":
                assert contents.holder(name) == (known.sid, known.fence)

        self.one_holder(contents)

    def one_holder(self, contents: PoolContents) -> None:
        """Of those whose session lives, at most one believes to hold an identity."""
        believed = Counter(
            name for node in self.nodes if not node.is_lost and contents.is_live(node.sid) for name in node.holds
        )
        assert all(count == 1 for count in believed.values()), f"two hold {believed}"


@pytest.fixture
def machine(server: Server) -> Iterator[type[Pools]]:
    with asyncio.Runner() as runner:
        channel = Channel(server.url, server.url, 10, StoreStats())
        scripts = Scripts(channel, Namespace("ns").scope("job"))
        client = server.client()
        parts = {"runner": runner, "scripts": scripts, "client": client, "store": Store(client, scripts.scope)}
        yield type("Machine", (Pools,), parts)
        runner.run(channel.close())


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
def test_every_interleaving_keeps_the_pool_whole(machine: type[Pools]) -> None:
    """See the module's docstring."""
    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=PROFILE.max_examples // 4))
