"""Any interleaving of what nodes, providers, operators, clocks and servers do leaves each resource with one holder.

After every step the keys are held against the model and against each other: at most one live session holds an identity,
and one identity of an exit is in play; only a provider sets an expiry; what was registered is there until it expires or
is gone by verdict; what a stale holder says changes nothing. And whenever everybody does what the pool asks of them,
whoever waits is served.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from scrapy_lease.exceptions import SessionLost
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import Backoff, Resource, Tie, Verdict
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.state.pool_bench import Older, Past, PoolBench
from tests.state.pool_nodes import PoolNode
from tests.state.pool_store import PoolContents
from tests.state.pool_wire import Wire
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.store import Store

NODES = 3
NAMES = ("p1", "p2", "p3", "p4", "u1", "u2", "v1")
EXITS = {"u1": "10.0.0.1", "u2": "10.0.0.1", "v1": "10.0.0.2"}
SITES = ("a", "b", "c", "d")
TTLS = (2000, 5000, 60000)
BACKOFF = Backoff(3000, 20_000)

WHOSE = ("own", "own", "own", "earlier", "anybody's")

#: One of so many as there are at that moment: what is drawn must not depend on what the store did.
picks = st.integers(0, 59)
nodes = st.integers(0, NODES - 1)
is_lost = st.sampled_from((False, False, False, True))
names = st.sampled_from(NAMES)
sites = st.sampled_from(SITES)
keys = st.sampled_from(("k", "l"))
asks = st.lists(st.tuples(st.one_of(sites, st.just("")), st.integers(1, 4)), max_size=2)
verbs = st.one_of(
    st.tuples(st.just("ok"), st.tuples(sites)),
    st.tuples(st.sampled_from(("ban", "hang")), st.tuples(sites, st.just(BACKOFF))),
    st.tuples(st.just("view"), st.tuples(sites, st.integers(0, 1), st.sampled_from(("", "x", "y")))),
    st.sampled_from((("back", ()), ("back", (0,)), ("broken", (BACKOFF,)), ("gone", ("refused",)))),
)


class Pools(RuleBasedStateMachine):
    """Some nodes of one pool on one server."""

    scripts: Scripts
    store: Store
    wire: Wire

    def __init__(self) -> None:
        super().__init__()
        self.store.clear()
        pool = self.scripts.scope.namespace.pool("proxy", "default")
        self.bench = PoolBench(self.wire, self.scripts, self.store, pool)
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

    @initialize(chosen=st.lists(names, min_size=1, max_size=7))
    def begin(self, chosen: list[str]) -> None:
        self.bench.register("", 0, self.resources(chosen, False))

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

    @rule(number=nodes, key=keys, site=sites, want=st.integers(0, 2), name=names, lost=is_lost, avoids=is_lost)
    def take_for_a_key(self, number: int, key: str, site: str, want: int, name: str, lost: bool, avoids: bool) -> None:
        """A key wants its resource, or any; the node offers one that it may or may not have."""
        avoid = frozenset({self.bench.model.tied(key)} if avoids else ())
        self.node(number).take([(site, want)], lost, [Tie(key, site, name, avoid)])

    @rule(number=nodes, key=keys, name=names, lost=is_lost)
    def use_key(self, number: int, key: str, name: str, lost: bool) -> None:
        """A node says that it uses a key on a resource that it may or may not have."""
        self.node(number).take([], lost, [Tie(key, None, name)])

    @rule(
        number=nodes,
        rows=st.lists(st.tuples(st.sampled_from(WHOSE), picks, verbs), min_size=1, max_size=4),
        lost=is_lost,
    )
    def settle(self, number: int, rows: list[tuple[str, int, Any]], lost: bool) -> None:
        """A node speaks of what it holds, of an earlier lease of that, or of what anybody ever had."""
        self.speak(number, rows, lost)

    def speak(self, number: int, rows: list[tuple[str, int, Any]], lost: bool) -> None:
        node = self.node(number)
        own = list(node.holds.items())
        earlier = [hold for hold in self.granted if hold[0] in node.holds and hold not in own]
        verdicts = []
        for whose, pick, (verb, args) in rows:
            if holds := {"own": own, "earlier": earlier}.get(whose) or self.granted:
                name, fence = holds[-1 - pick % len(holds)]
                verdicts.append(Verdict(name, fence, verb, self.args_for(name, args)))
        if verdicts:
            node.settle(verdicts, lost)

    def args_for(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What is said of *name* besides the verb."""
        return args

    @rule(number=nodes, ttl=st.sampled_from(TTLS))
    def beat(self, number: int, ttl: int) -> None:
        self.node(number).beat(ttl)

    @rule(number=nodes, closes=st.booleans())
    def leave(self, number: int, closes: bool) -> None:
        """A node closes its session, or its process is gone with all it knew."""
        if closes:
            self.bench.run(self.scripts.close(self.node(number).sid))
        self.nodes[number] = PoolNode(self.bench)

    @rule(pick=picks)
    def reclaim(self, pick: int) -> None:
        if sids := self.bench.sids:
            self.bench.reclaim(sids[-1 - pick % len(sids)])

    @rule(verb=st.sampled_from(("drain", "undrain", "revoke", "free")), name=names)
    def operate(self, verb: str, name: str) -> None:
        self.bench.change(verb, name)

    @rule(name=names)
    def expire(self, name: str) -> None:
        if name in self.bench.model.known:
            self.bench.expire(name)

    @rule(milliseconds=st.sampled_from((0, 400, 1500, 3000, 10000, 70000)))
    def pass_time(self, milliseconds: int) -> None:
        """Time passes; or the server's clock is stepped."""
        if milliseconds:
            self.bench.pass_time(milliseconds)
        else:
            self.bench.step_clock()

    @rule(number=nodes, pick=picks)
    def late_copy(self, number: int, pick: int) -> None:
        """A call that was stuck in a dead connection arrives when its repeat was answered long ago."""
        node = self.nodes[number]
        if not node.answered:
            return
        call = node.answered[-1 - pick % len(node.answered)]
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

    @rule(site=sites, lag=st.integers(0, NODES))
    def everybody_wants_one(self, site: str, lag: int) -> None:
        """All call in turn and take back what dead sessions left; *lag* turns later they give back what they are
        asked for, and what is of no use to them."""
        self.keep_alive()
        while (grace := self.bench.read().grace - self.bench.model.now) > 0:
            self.bench.pass_time(min(grace, TTLS[2] - 1))
            self.keep_alive()
        self.bury_the_dead()
        waits, due = set(range(NODES)), deque[tuple[PoolNode, set[str]]]()
        for turn in range(4 * NODES * NODES):
            if turn % NODES == 0:
                self.bench.pass_time(500)
                self.bench.age_leases(1000)
            node = self.nodes[turn % NODES]
            node.take([(site, 0 if self.useful(node, site) else 1)], False)
            due.append((node, node.holds.keys() - self.useful(node, site)))
            if self.useful(node, site):
                waits.discard(turn % NODES)
            if not waits:
                return
            if len(due) > lag:
                node, useless = due.popleft()
                node.give_back(useless & node.holds.keys())
        assert not self.has_use(site), f"{waits} wait for ever, {self.bench.read()}"

    def keep_alive(self) -> None:
        """All have a session that lives on, and an answer to what they called."""
        for number in range(NODES):
            node = self.node(number)
            for verb in ("take", "settle", "register"):
                if verb in node.unanswered:
                    with contextlib.suppress(SessionLost):
                        getattr(node, verb)([], False)
            node.beat(TTLS[2], looks=False)
            if node.is_lost:
                self.node(number).beat(TTLS[2], looks=False)

    def bury_the_dead(self) -> None:
        """Time is over for the sessions of processes that are gone."""
        for sid in self.bench.read().parts["members"].keys() - {node.sid for node in self.nodes}:
            self.bench.die(sid)
            self.bench.reclaim(sid)

    def useful(self, node: PoolNode, site: str) -> set[str]:
        """What a node holds that does not rest for *site*."""
        model = self.bench.model
        return {name for name in node.holds if name in model.known and model.serves(name, site)}

    def has_use(self, site: str) -> bool:
        """Is there any resource, free or leased, that serves *site* all the time?"""
        model, contents = self.bench.model, self.bench.read()
        if site in model.sites or contents.grace > model.now:
            return False
        fit = {name for name, known in model.known.items()
               if known.state in ("play", "leased") and known.flag == " " and not model.has_expired(known)
               and site not in known.rests and not model.banned_until(name)}  # fmt: skip
        unfit_exits = {known.exit for name, known in model.known.items() if known.exit and name not in fit}
        return any(model.known[name].exit not in unfit_exits for name in fit)

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
            assert contents.views(name) == known.views
            if known.state == "leased":
                assert contents.holder(name) == (known.sid, known.fence)
        self.one_holder(contents)
        self.keys_are_tied(contents)

    def keys_are_tied(self, contents: PoolContents) -> None:
        """Keys are tied as the answers said, and what is over is cleared away within a call."""
        ties, ends = contents.parts["sticky"], contents.parts["sticky_ends"]
        assert ties.keys() == ends.keys()
        live = sorted(ties[digest].decode() for digest, end in ends.items() if end > contents.now)
        assert live == sorted(filter(None, map(self.bench.model.tied, self.bench.model.ties)))

    def one_holder(self, contents: PoolContents) -> None:
        """Of those whose session lives, at most one believes to hold an identity."""
        believed = Counter(
            name for node in self.nodes if not node.is_lost and contents.is_live(node.sid) for name in node.holds
        )
        assert all(count == 1 for count in believed.values()), f"two hold {believed}"


@pytest.fixture
def machine(server: Server) -> type[Pools]:
    client = server.client()
    wire = Wire(client, Namespace("ns"))
    scripts = Scripts(wire, Namespace("ns").scope("job"))
    return type("Machine", (Pools,), {"scripts": scripts, "store": Store(client, scripts.scope), "wire": wire})


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
def test_every_interleaving_keeps_the_pool_whole(machine: type[Pools]) -> None:
    """See the module's docstring."""
    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=PROFILE.max_examples // 4))
