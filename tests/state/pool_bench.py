"""Makes each call of a pool twice, on the model and on the store, and asserts that both say the same."""

from __future__ import annotations

import copy
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from scrapy_lease.exceptions import SessionLost, StoreRefused
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.messages import GenerationChanged
from scrapy_lease.store.pool_scripts import Lease, PoolScripts, Resource, Take, Tie, Verdict
from scrapy_lease.store.scripts import Scripts
from tests.state.pool_model import PoolModel
from tests.state.pool_store import PoolContents
from tests.state.pool_wire import HOUR, Wire, run
from tests.state.store import Snapshot, Store

T = TypeVar("T")
#: An expiry that has passed, whatever the clock shows.
LONG_AGO = 1
#: ms for which a key stays tied.
TIE = 8000


class Older(Exception):
    """The store refused a call because a later one of its verb was made already."""


@dataclass(slots=True)
class Past:
    """An earlier moment of store and model."""

    keys: Snapshot
    model: PoolModel


@dataclass(repr=False)
class PoolBench:
    """See the module's docstring."""

    wire: Wire
    scripts: Scripts
    store: Store
    keys: PoolKeys
    model: PoolModel = field(default_factory=PoolModel)
    #: All sessions there ever were.
    sids: list[str] = field(default_factory=list)
    fences: dict[str, int] = field(default_factory=dict)
    server: int = 0
    #: How accounts may be used; None: the pool has none.
    terms: Any = None
    _contents: PoolContents | None = None

    def __post_init__(self) -> None:
        self.outside = PoolScripts(self.scripts.channel, self.keys)
        self.later = int(time.time() * 1000) + HOUR
        self._be_server(0)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call while the lease clock stands still."""
        self._contents = None
        try:
            return run(call)
        except StoreRefused as error:
            if "is older than" in str(error):
                raise Older from None
            raise

    def write(self, *commands: tuple[bytes | str | int, ...]) -> None:
        """Change keys without a script."""
        self._contents = None
        self.wire.make(*commands)

    def read(self) -> PoolContents:
        """What the keys hold now."""
        if self._contents is None:
            self._contents = PoolContents.read(self.wire, self.keys)
        return self._contents

    # time and servers

    def pass_time(self, milliseconds: int) -> None:
        self.write(("HINCRBY", self.keys.namespace.clock, "now", milliseconds))
        self.model.now += milliseconds

    def step_clock(self) -> None:
        """Step the server's clock an hour forward: the lease clock takes a second of it."""
        self.wire.step = HOUR
        self.model.now += 1000
        self.run(self.scripts.start("nobody", "leave", "one"))

    def save(self) -> Past:
        return Past(self.store.save(), copy.deepcopy(self.model))

    def restart(self, past: Past | None = None) -> None:
        """Be another server, which has everything, or what there was at *past*."""
        self._be_server(self.server + 1)
        if past is not None:
            self._contents = None
            self.store.lose_since(past.keys)
            self.model = copy.deepcopy(past.model)

    def _be_server(self, number: int) -> None:
        self.server = number
        self.wire.server = replace(self.wire.server, run_id=f"server-{number}")

    def age_leases(self, milliseconds: int) -> None:
        """Let all leases be older by the wall clock, which tells how long one has been held."""
        leases = self.read().parts["leases"]
        aged = [(name, lease[:16] + b"%013d" % (int(lease[16:29]) - milliseconds) + lease[29:])
                for name, lease in leases.items()]  # fmt: skip
        if aged:
            self.write(("HSET", self.keys.key("leases"), *(part for pair in aged for part in pair)))

    # sessions

    def open(self, ttl: int) -> str:
        self.sids.append(f"s{len(self.sids):03d}")
        self.run(self.scripts.open(self.sids[-1], ttl=ttl, config="c", fresh=True, info={"node": "n"}))
        self.model.sessions.add(self.sids[-1])
        self.model.ttl_max = max(self.model.ttl_max, ttl)
        return self.sids[-1]

    def die(self, sid: str) -> None:
        """The deadline of a session has passed."""
        self.write(("ZADD", self.keys.namespace.sessions, "XX", "LT", self.model.now, sid))

    # what a session does

    def register(self, sid: str, n: int, resources: Sequence[Resource]) -> str:
        def foretell() -> str:
            return "".join(self.model.register(each.id, each.expiry, each.exit) for each in resources)

        call = self.outside.register(sid, n, resources)
        if sid and sid not in self.model.sessions:
            with pytest.raises(SessionLost):
                self.run(call)
            raise SessionLost(sid)
        return self._numbered(sid, "register", n, foretell, call)

    def settle(self, sid: str, n: int, verdicts: Sequence[Verdict]) -> str:
        return self._numbered(
            sid, "settle", n, lambda: self.model.settle(sid, verdicts), self.outside.settle(sid, n, verdicts)
        )

    def _numbered(self, sid: str, verb: str, n: int, foretell: Any, call: Coroutine[Any, Any, str]) -> str:
        known = self.model.replay(sid, verb, n) if sid else None
        expected = foretell() if known is None else known
        if known is None and sid in self.model.sessions:
            self.model.numbered[sid, verb] = n, expected
        try:
            reply = self.run(call)
        except Older:
            assert expected == "older"
            raise
        assert reply == expected
        return reply

    def take(
        self, scripts: PoolScripts, sid: str, n: int, asks: Sequence[tuple[str, int]], ties: Sequence[Tie] = ()
    ) -> Take:
        """Raises as the script's method does, and Older; *ties*: one at most."""
        before = self.read() if asks else None
        try:
            take = self.run(scripts.take(sid, n, asks, ties=ties, ttl=TIE, terms=self.terms))
        except SessionLost:
            assert not self.read().is_live(sid)
            raise
        except GenerationChanged:
            raise
        except Older:
            assert self.model.replay(sid, "take", n) == "older"
            raise
        known = self.model.replay(sid, "take", n)
        self.model.clear_away()
        if known is not None:
            assert isinstance(known, list)
            still = [(name, fence) for name, fence in known if self._is_held(name, sid, fence)]
            assert [(lease.id, lease.fence) for lease in take.leases] == still
            assert [*take.tied] == [self.model.tied(tie.key) for tie in ties]
            return take
        wanted = {tie.site for tie in ties}
        self._check_grants(take, sid, [(site, want + (site in wanted)) for site, want in asks])
        for tie, id_ in zip(ties, take.tied, strict=True):
            self._check_tie(take, sid, tie, id_, paused=tie.site is not None and take.pauses[0] > 0)
        if before is not None and not ties:
            self._check_all_is_used(take, sid, asks, before)
        self.model.numbered[sid, "take"] = n, [(lease.id, lease.fence) for lease in take.leases]
        return take

    def _is_held(self, name: str, sid: str, fence: int) -> bool:
        known = self.model.known.get(name)
        return known is not None and known.belongs(sid, fence)

    def _check_tie(self, take: Take, sid: str, tie: Tie, id_: str, paused: bool) -> None:
        """A key has what it is tied to while that may serve; the model, at this instant, has granted the leases."""
        model, known = self.model, self.model.tied(tie.key)
        granted = {lease.id for lease in take.leases}
        if tie.site is None:
            is_kept = known in ("", tie.offer) and model.holds(sid, tie.offer)
            assert id_ == (tie.offer if is_kept else known)
            if not is_kept:
                return
        elif paused or take.standing.grace:
            assert id_ == ""
        else:
            known = self.read().in_place_of(known)
            if model.may_serve(known, tie.site) and (known not in tie.avoid):
                assert id_ == known
            else:
                assert id_ in {"", tie.offer} | granted
                assert id_ or not (model.holds(sid, tie.offer) and model.may_serve(tie.offer, tie.site))
        if id_ and model.holds(sid, id_):
            model.ties[tie.key] = id_, model.now + TIE

    def _check_grants(self, take: Take, sid: str, asks: Sequence[tuple[str, int]]) -> None:
        assert not (take.standing.grace and take.leases), "a new server granted within its grace"
        left = list(take.leases)
        for (site, want), pause in zip(asks, take.pauses, strict=True):
            until, _ = self.model.sites.get(site, (0, 0))
            assert max(pause, 0) >= until - self.model.now
            fit = [lease for lease in left[:want] if pause <= 0 and self._may_serve(lease, site)]
            left = left[len(fit) :]
            assert site in self.model.sites or pause == 0
            assert pause == -1 or not (fit and site in self.model.sites), "a session probes and does not know it"
        assert not left, "a lease for no site that was asked for"
        for lease in take.leases:
            self._grant(lease, sid)

    def _check_all_is_used(self, take: Take, sid: str, asks: Sequence[tuple[str, int]], before: PoolContents) -> None:
        others = before.parts["waiting"].keys() - {sid}
        if not others and not take.standing.grace and len(asks) == 1 and asks[0][0] not in self.model.sites:
            site, want = asks[0]
            usable = sum(self._was_usable(name, site) for part in ("free", "spotted") for name in before.parts[part])
            assert len(take.leases) >= min(want, usable), "nobody else waits, and not all that is free was granted"

    def _was_usable(self, name: str, site: str) -> bool:
        known = self.model.known.get(name)
        return known is not None and known.rests.get(site, (0, 0))[0] <= self.model.now

    def _may_serve(self, lease: Lease, site: str) -> bool:
        return site not in lease.rests or lease.rests[site].left == 0

    def _grant(self, lease: Lease, sid: str) -> None:
        known = self.model.known[lease.id]
        assert known.state == "play", f"{lease.id} was granted while it was {known.state}"
        assert not self.model.has_expired(known)
        assert (lease.strikes, lease.exit) == (known.strikes, known.exit)
        assert {site: rest.strikes for site, rest in lease.rests.items()} == {
            site: strikes for site, (_, strikes) in known.rests.items()
        }
        known.state, known.sid = "leased", sid
        self._rises(lease.id, lease.fence)

    def _rises(self, name: str, fence: int) -> None:
        assert fence > self.fences.get(name, 0), "a fence did not rise"
        self.fences[name] = self.model.known[name].fence = fence

    def report(
        self, scripts: PoolScripts, sid: str, n: int, holds: Sequence[tuple[str, int]], previous: str
    ) -> list[int]:
        """Raises as the script's method does."""
        known = self.model.replay(sid, "report", n)
        fences = self.run(scripts.report(sid, n, holds, previous=previous))
        if known is not None:
            assert fences == known
            return fences
        for (name, fence), now in zip(holds, fences, strict=True):
            resource = self.model.known.get(name)
            if self._is_held(name, sid, fence):
                assert now == fence
            elif self._is_held(name, previous, fence):
                assert resource is not None
                resource.sid = sid
                self._rises(name, now)
            elif now:
                assert resource is not None
                assert resource.state == "play"
                resource.state, resource.sid = "leased", sid
                self._rises(name, now)
        for name in self.model.held(sid) - {name for (name, _), now in zip(holds, fences, strict=True) if now}:
            self.model.end(name)
        self.model.numbered[sid, "report"] = n, fences
        return fences

    # what others do

    def reclaim(self, sid: str) -> None:
        ended, left = self.run(self.outside.reclaim(sid))
        if left < 0:
            return
        assert not self.read().is_live(sid)
        for name in self.model.held(sid):
            self.model.end(name)
        assert left == 0, f"{ended} ended, and {left} left of a few"

    def change(self, verb: str, name: str) -> None:
        expected = self.model.change(verb, name)
        assert self.run(self.outside.change(verb, [name])) == expected

    def expire(self, name: str) -> None:
        """The provider's time of a resource is over."""
        record: bytes = self.read().parts["resources"][name]
        self.write(
            ("HSET", self.keys.key("resources"), name, record[:3] + b"%013d" % LONG_AGO + record[16:]),
            ("ZADD", self.keys.key("expiries"), LONG_AGO, name),
        )
        self.model.known[name].expiry = LONG_AGO
