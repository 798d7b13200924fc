"""The machine of pools in its second configuration: accounts, with a quota, layers, health and jars.

After every step, besides what holds of any pool: an account is in one place, and in the one that its record says; no
more is granted of a day than its quota; at most half of the pool is benched for its success rate; what a stale holder
says changes nothing; and whoever waits is served while any account is of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.pool_scripts import Backoff, Lease, PoolScripts, Resource
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.lua.account_bed import Rules
from tests.state.account_model import QUOTA, SLICE, AccountModel
from tests.state.pool_bench import PoolBench
from tests.state.pool_nodes import PoolNode
from tests.state.pool_wire import HOUR, Wire
from tests.state.profiles import PROFILE, TIMEOUT
from tests.state.store import Store
from tests.state.test_pools_machine import NODES, WHOSE, Pools, is_lost, names, nodes, picks

BACKOFF = Backoff(3000, 20_000)
results = st.sampled_from(("+", "-", "-" * 19, "+" * 30, "-" * 25))
words = st.one_of(
    st.tuples(st.just("uses"), st.tuples(results, st.just(20), st.just(900), st.just(BACKOFF), st.just([]))),
    st.tuples(st.just("jar"), st.tuples(st.sampled_from((b"\x00", b"two")))),
    st.tuples(st.just("back"), st.tuples(st.just(0), st.integers(0, SLICE), st.just("its day"))),
    st.sampled_from(
        (("ok", ("a",)), ("back", ()), ("cool", (4000, 0)), ("demote", ("refused", BACKOFF)), ("gone", ("deleted",)))
    ),
)
_record = msgspec.msgpack.Decoder(list[Any]).decode


class AccountBench(PoolBench):
    """A bench whose leases come with permits."""

    model: AccountModel

    def _grant(self, lease: Lease, sid: str) -> None:
        self.model.granted(lease)
        super()._grant(lease, sid)

    def report(
        self, scripts: PoolScripts, sid: str, n: int, holds: Sequence[tuple[str, int]], previous: str
    ) -> list[int]:  # fmt: skip
        """What is leased anew, to whom a server that lost its tail had it, is active."""
        known = self.model.known
        before = {name for name in known if known[name].state == "play"}
        fences = super().report(scripts, sid, n, holds, previous)
        for name, _ in holds:
            if name in before and known[name].state == "leased":
                known[name].layer = "a"
        return fences

    def _check_all_is_used(self, take: Any, sid: str, asks: Any, before: Any) -> None:
        others = before.parts["waiting"].keys() - {sid}
        if not others and not take.standing.grace and len(asks) == 1:
            usable = len(before.parts["free"]) + len(before.parts["cold"])
            assert len(take.leases) >= min(asks[0][1], usable), "nobody else waits, and not all was granted"

    def new_day(self) -> None:
        """The day of each account is over."""
        rows = self.read().parts["accounts"]
        for name, packed in rows.items():
            row = _record(packed)
            self.write(("HSET", self.keys.key("accounts"), name, msgspec.msgpack.encode([row[0], 1, *row[2:]])))
            self.write(("ZADD", self.keys.key("spent"), "XX", 1, name))
        self.model.new_day()


class Accounts(Pools):
    """Some nodes of one pool of accounts on one server."""

    def __init__(self) -> None:
        super().__init__()
        pool = self.scripts.scope.namespace.pool("account", "default")
        now = self.bench.later - HOUR
        terms = Rules(quota=QUOTA, slice=SLICE, active=1000 * HOUR, days=(now - 12 * HOUR, now + 12 * HOUR))
        self.bench = AccountBench(self.wire, self.scripts, self.store, pool, AccountModel(), terms=terms)
        self.nodes = [PoolNode(self.bench) for _ in range(NODES)]

    def resources(self, chosen: list[str], moves: bool) -> list[Resource]:
        return [Resource(name, name.encode()) for name in chosen]

    # What accounts do not have, or have in another way.
    expire = None
    take_for_a_key = None
    use_key = None

    @rule(
        number=nodes,
        rows=st.lists(st.tuples(st.sampled_from(WHOSE), picks, words), min_size=1, max_size=4),
        lost=is_lost,
    )
    def settle(self, number: int, rows: list[tuple[str, int, Any]], lost: bool) -> None:
        """A node speaks of what it holds, of an earlier lease of that, or of what anybody ever had."""
        self.speak(number, rows, lost)

    def args_for(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        known = self.bench.model.known.get(name)
        day = known.day if known else 0
        return tuple(day if arg == "its day" else arg for arg in args)

    @rule(name=names, length=st.sampled_from((2000, 30_000)))
    def cool(self, name: str, length: int) -> None:
        """An operator lets an account cool."""
        expected = self.bench.model.cool(name, length)
        assert self.bench.run(self.bench.outside.cool([name], length)) == expected

    @rule()
    def new_day(self) -> None:
        self.bench.new_day()

    def has_use(self, site: str) -> bool:
        model, contents = self.bench.model, self.bench.read()
        if contents.grace > model.now:
            return False
        return any(known.state == "play" and known.place in ("free", "cold") for known in model.known.values())

    def useful(self, node: PoolNode, site: str) -> set[str]:
        return {name for name in node.holds if name in self.bench.model.known}

    @invariant()
    def keys_and_model_agree(self) -> None:
        contents, model = self.bench.read(), self.bench.model
        parts = contents.parts
        assert contents.now == model.now
        assert parts["resources"].keys() == model.known.keys() == parts["accounts"].keys()
        for name, known in model.known.items():
            place, record = contents.place(name), parts["resources"][name]
            if known.state == "play" and (known.place, place) == ("cold", "free"):
                known.place, known.layer = "free", "a"  # promoted, for somebody who wanted more
            expected = {"leased": "leases", "play": known.place}.get(known.state, known.state)
            assert place == expected, f"{name} is {place}, and should be {expected}"
            assert (chr(record[0]), int(record[1:3])) == (known.flag, known.strikes)
            if known.state == "leased":
                assert contents.holder(name) == (known.sid, known.fence)
            self.agrees(_record(parts["accounts"][name]), known, place)
            assert parts["jars"].get(name, b"") == known.jar
        ailing = int(parts["meta"].get("ailing", 0))
        assert ailing == sum(known.ails for known in model.known.values())
        self.one_holder(contents)

    def agrees(self, row: Sequence[Any], known: Any, place: str) -> None:
        layer, day, used, _, marks, _, _, listed, ails = row
        assert (layer.decode() if isinstance(layer, bytes) else layer) == known.layer
        assert (listed == 1) == (place == "cold")
        assert bool(ails) == known.ails
        assert marks == known.marks
        if known.day:
            assert (day, used) == (known.day, known.used)
            assert used <= QUOTA


@pytest.fixture
def machine(server: Server) -> type[Accounts]:
    client = server.client()
    wire = Wire(client, Namespace("ns"))
    scripts = Scripts(wire, Namespace("ns").scope("job"))
    return type("Machine", (Accounts,), {"scripts": scripts, "store": Store(client, scripts.scope), "wire": wire})


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
def test_every_interleaving_keeps_the_accounts_whole(machine: type[Accounts]) -> None:
    """See the module's docstring."""
    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=PROFILE.max_examples // 4))
