"""When a crawl goes on without the store, and what becomes of what it did when the store is back."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_lease.backlog.lanes import Outgoing
from scrapy_lease.heartbeat import Lag
from scrapy_lease.leases.items import Hold, Ledger, Patience, Verdict
from scrapy_lease.meta import digest_of
from scrapy_lease.scheduler.found import Found
from scrapy_lease.scheduler.silence import AWAY, DOUBT
from scrapy_lease.scheduler.unsafe import Unsafe
from scrapy_lease.store.messages import Answer, Claim, Entry, Grant, Standing

OPEN = Standing(False, 0, 0, 0, -1, False, False, "")
GRACE = Standing(True, 0, 0, 0, -1, False, False, "")
PAUSED = Standing(False, 0, 0, 0, -1, False, True, "")


class Tries:
    """What is handed out, as far as it matters here."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.out: set[Hold] = set()

    def granted_here(self, hold: Hold, request: Any, *, is_out: bool) -> bool:
        if not self.ledger.add(hold):
            return False
        hold.open += 1
        self.out.add(hold)
        return True

    def leased(self, hold: Hold, fence: int, attempts: int, deaths: int) -> None:
        hold.fence = fence
        self.ledger.settle_if_over(hold)

    def lost(self, holds: list[Hold]) -> None:
        for hold in holds:
            self.ledger.drop(hold)

    def with_engine(self) -> set[Hold]:
        return self.out


class Crawl:
    """A crawl whose store can go and come; it finds what *finds* holds."""

    def __init__(self) -> None:
        self.session = SimpleNamespace(epoch=1, is_confirmed=True, is_lost=False, is_closed=False)
        self.silent = 0.0
        self.down_since: float | None = None
        self.counts: Counter[str] = Counter()
        self.standing = OPEN
        self.finds: list[Found] = []
        self.ledger = Ledger(Patience(3, (1, 2)))
        self.tries: Any = Tries(self.ledger)
        runtime: Any = SimpleNamespace(
            settings=SimpleNamespace(on_store_down="unsafe_local"), session=self.session, shown="redis://x",
            availability=self, store_silent_for=lambda: self.silent,
            stats=SimpleNamespace(count=lambda name: self.counts.update([name])),
        )  # fmt: skip
        self.unsafe = Unsafe(
            runtime, self.ledger, self.tries, self, wanted=lambda: (10, {}), standing=lambda: self.standing,
            wake=lambda: None, engine=lambda: None, fate="",
        )  # fmt: skip
        # In the place of the task that looks again and again.
        self.unsafe._task = SimpleNamespace(cancel=lambda: None)  # type: ignore[assignment]

    def unleased(self, free: int, rooms: dict[str, int]) -> list[Found]:
        found, self.finds = self.finds[:free], self.finds[free:]
        return found

    def kept(self, everything: bool) -> list[Outgoing]:
        return []

    def given_up(self, found: Found, answer: Answer) -> Outgoing | None:
        return Outgoing(found.entry, found.parent) if answer is Answer.CONTENDED else None

    def goes(self) -> None:
        self.down_since, self.silent = 1.0, AWAY
        assert self.unsafe.is_alone()

    def is_back(self) -> None:
        self.down_since, self.silent = None, 0.0
        assert not self.unsafe.is_alone()

    def grants_itself(self, path: str, parent: Hold | None = None) -> Hold:
        found = Found(Entry(digest_of(path), "site", 0, b"", "auto"), None, parent)
        if parent is not None:
            self.ledger.child_queued(parent)
        self.finds.append(found)
        self.unsafe._fill()
        return found.hold

    def ends(self, hold: Hold) -> None:
        """Its page was fetched, and well."""
        self.tries.out.discard(hold)
        self.ledger.request_ended(hold, Verdict.DONE)

    def claims(self, answer: Answer) -> None:
        """The store gives this answer to all that is asked."""
        asks = self.unsafe.asking(10)
        assert asks
        self.unsafe.claimed(asks, [Claim(answer, fence=9) for _ in asks])

    @property
    def settled(self) -> list[bytes]:
        return [settled.hold.digest for settled in self.ledger.outbox]


@pytest.fixture
def crawl() -> Crawl:
    return Crawl()


@pytest.mark.parametrize(
    ("confirmed", "down", "silent", "alone"),
    [
        (True, True, AWAY, True),
        (True, True, AWAY - 0.1, False),
        (True, False, 5.0, False),
        (False, True, DOUBT, True),
        (False, False, DOUBT, True),
        (False, False, DOUBT - 0.1, False),
        (False, True, 0.0, False),
    ],
)
def test_when_it_begins(crawl: Crawl, confirmed: bool, down: bool, silent: float, alone: bool) -> None:
    """A store that has failed for a second is away; one whose session is not confirmed any more for half of that."""
    crawl.session.is_confirmed, crawl.silent = confirmed, silent
    crawl.down_since = 1.0 if down else None
    assert crawl.unsafe.is_alone() is alone


def test_a_lost_session_waits(crawl: Crawl) -> None:
    """Who knows that others may have what it held does not go on with it."""
    crawl.session.is_confirmed, crawl.session.is_lost, crawl.silent = False, True, 9.0
    assert not crawl.unsafe.is_alone()


def test_when_it_ends(crawl: Crawl) -> None:
    """An answer is not enough: only a session that is confirmed again has leases; till then all goes on."""
    crawl.goes()
    crawl.session.is_confirmed = False
    crawl.down_since, crawl.silent = None, 0.0
    assert crawl.unsafe.is_alone()
    crawl.session.is_lost = True
    assert crawl.unsafe.is_alone()
    crawl.session.is_lost, crawl.session.is_confirmed = False, True
    assert not crawl.unsafe.is_alone()


def test_a_process_that_slept_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence counts from when the process was awake: a frozen one has heard nobody, whoever spoke."""
    now = 100.0
    monkeypatch.setattr("scrapy_lease.heartbeat.time.monotonic", lambda: now)
    lag = Lag()
    assert lag.awake_since == 100.0
    now += 0.9
    assert lag.awake_since == 100.0
    now += 9.0
    assert lag.awake_since == now
    lag._note(now, 9.8)
    lag.last_tick = now
    woke = now
    now += 0.9
    assert lag.awake_since == woke


def test_what_is_granted_here_is_settled_with_its_fence(crawl: Crawl) -> None:
    """Not before the store has granted it too; and what led to it is not done before that either."""
    parent = Hold(digest_of("parent"), 5, 1, "site", "auto", b"")
    crawl.ledger.add(parent)
    parent.open = 1
    crawl.goes()
    hold = crawl.grants_itself("1", parent)
    crawl.ends(parent)
    crawl.ends(hold)
    assert hold.fence == 0
    assert crawl.settled == []
    crawl.is_back()
    crawl.claims(Answer.GRANTED)
    assert hold.fence == 9
    assert sorted(crawl.settled) == sorted([hold.digest, parent.digest])
    assert crawl.unsafe.is_clear


def test_granted_while_it_is_fetched(crawl: Crawl) -> None:
    """It goes on under its fence and is settled when it is over."""
    crawl.goes()
    hold = crawl.grants_itself("1")
    crawl.is_back()
    crawl.claims(Answer.GRANTED)
    assert crawl.settled == []
    crawl.ends(hold)
    assert crawl.settled == [hold.digest]


@pytest.mark.parametrize("answer", [Answer.OVER, Answer.LEADS, Answer.WAITING])
def test_what_others_did(crawl: Crawl, answer: Answer) -> None:
    """The store answers for it: it is dropped, counted if it was fetched here too, and its page can be done."""
    parent = Hold(digest_of("parent"), 5, 1, "site", "auto", b"")
    crawl.ledger.add(parent)
    crawl.goes()
    fetched, waits = crawl.grants_itself("1", parent), crawl.grants_itself("2", parent)
    crawl.tries.out.discard(waits)
    crawl.is_back()
    crawl.claims(answer)
    assert not crawl.ledger.is_held(fetched)
    assert not crawl.ledger.is_held(waits)
    assert parent.unsafe == 0
    assert crawl.counts == {"items/elsewhere": 1, "items/duplicate": 1}
    assert crawl.unsafe.is_clear


@pytest.mark.parametrize("standing", [GRACE, PAUSED])
def test_nothing_is_granted_now(crawl: Crawl, standing: Standing) -> None:
    """In the grace of a server, or while the job is paused, everything is contended: it is asked for again."""
    crawl.goes()
    hold = crawl.grants_itself("1")
    crawl.is_back()
    crawl.standing = standing
    crawl.claims(Answer.CONTENDED)
    assert crawl.ledger.is_held(hold)
    assert crawl.unsafe.asking(10) == []
    crawl.unsafe._again = 0.0
    crawl.standing = OPEN
    crawl.claims(Answer.GRANTED)
    assert hold.fence == 9


def test_what_was_asked_under_a_lost_session(crawl: Crawl) -> None:
    """Its answer says nothing: it is asked for again under the new one."""
    crawl.goes()
    hold = crawl.grants_itself("1")
    crawl.is_back()
    asks = crawl.unsafe.asking(10)
    crawl.session.epoch += 1
    crawl.unsafe.claimed(asks, [Claim(Answer.CONTENDED)])
    assert crawl.ledger.is_held(hold)


def test_another_has_it(crawl: Crawl) -> None:
    """Contended twice, it is dropped and pushed in case it is free by now; only the answer makes its page safe."""
    parent = Hold(digest_of("parent"), 5, 1, "site", "auto", b"")
    crawl.ledger.add(parent)
    crawl.goes()
    hold = crawl.grants_itself("1", parent)
    crawl.is_back()
    crawl.claims(Answer.CONTENDED)
    assert crawl.ledger.is_held(hold)
    crawl.unsafe._again = 0.0
    crawl.claims(Answer.CONTENDED)
    assert not crawl.ledger.is_held(hold)
    assert parent.unsafe == 1
    ((push),) = crawl.unsafe.outgoing(10)
    assert (push.entry.digest, push.parent) == (hold.digest, parent)


def test_a_grant_that_was_not_asked_for(crawl: Crawl) -> None:
    """Leased from the backlog like any other, an item that is here already gets its fence, and is not held twice."""
    crawl.goes()
    hold = crawl.grants_itself("1")
    grants = [Grant(digest_of(path), 11, 0, 0, "site", "auto", b"") for path in ("1", "2")]
    assert crawl.unsafe.granted(grants) == grants[1:]
    assert hold.fence == 11


def test_a_grant_that_was_asked_for_before(crawl: Crawl) -> None:
    """What was asked for when the store went, and fetched without it, is leased by the answer that comes at last."""
    crawl.goes()
    hold = crawl.grants_itself("1")
    crawl.is_back()
    claim = Claim(Answer.GRANTED, fence=7, attempts=1)
    assert not crawl.unsafe.was_granted(digest_of("2"), claim)
    assert crawl.unsafe.was_granted(hold.digest, claim)
    assert (hold.fence, crawl.unsafe.is_clear) == (7, True)
    assert not crawl.unsafe.was_granted(hold.digest, claim)


def test_leaving(crawl: Crawl) -> None:
    """What was fetched is not to be fetched again; the rest is pushed, and nothing is held any more."""
    crawl.goes()
    fetched, waits = crawl.grants_itself("1"), crawl.grants_itself("2")
    crawl.ends(fetched)
    crawl.unsafe.leave()
    assert [push.entry.digest for push in crawl.unsafe.outgoing(10)] == [waits.digest]
    assert not len(crawl.ledger)
    assert not crawl.unsafe.is_alone()
