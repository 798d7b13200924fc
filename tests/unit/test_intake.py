"""From the engine's call to an entry for the store: nothing is lost on the way, and a parent waits for its children."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from scrapy_lease.leases.items import Hold, Ledger, Patience, Verdict
from scrapy_lease.meta import ItemKeys, digest_of
from scrapy_lease.payload import Codec
from scrapy_lease.scheduler import intake as module
from scrapy_lease.scheduler.intake import Intake
from scrapy_lease.stats import Stats


class Pages(Spider):
    name = "pages"

    def parse(self, response: Any) -> None:
        """Nothing."""


class Bench:
    """An intake with a ledger, and what it kept on this node."""

    def __init__(self, done_ttl: int = 0) -> None:
        self.crawler = get_crawler(Pages)
        spider = Pages.from_crawler(self.crawler)
        assert self.crawler.stats is not None
        self.stats = Stats(self.crawler.stats)
        self.ledger = Ledger(Patience(3, (60, 3600)))
        self.kept: list[tuple[Request, Hold | None]] = []
        self.keys = ItemKeys(spider, "fingerprint", RequestFingerprinter(self.crawler))
        self.intake = Intake(self, self.ledger, Codec(spider), self.keys, self.slot_of, self.stats, done_ttl)

    def keep(self, request: Request, parent: Hold | None) -> None:
        """As the scheduler does."""
        self.kept.append((request, parent))

    def slot_of(self, request: Request) -> str:
        """As `Slots.key_of` does, errors included."""
        slot: str = request.meta.get("download_slot", "site.example")
        return slot.replace("\0", "")

    def parent(self, item: str = "parent") -> Hold:
        """A hold whose page has ended, so that only its children are waited for."""
        hold = Hold(digest_of(item), 1, 1, "slot", "auto", b"")
        self.ledger.add(hold)
        hold.open = 1
        return hold


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end a turn early where a test is about something else."""
    monkeypatch.setattr(module, "BUDGET", 60.0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def page(number: int, **options: Any) -> Request:
    return Request(f"http://site.example/{number}", **options)


def test_entries_are_made_oldest_first_up_to_the_limit(bench: Bench) -> None:
    """outgoing() takes no more than asked for, in the order of arrival, with slot and priority of each request."""
    for number in range(5):
        bench.intake.add(page(number, priority=number, meta={"download_slot": f"s{number}"}), None, 0)
    batches = [bench.intake.outgoing(2) for _ in range(4)]
    slots = [[outgoing.entry.slot for outgoing in batch] for batch in batches]
    assert slots == [["s0", "s1"], ["s2", "s3"], ["s4"], []]
    assert [outgoing.entry.priority for batch in batches for outgoing in batch] == [0, 1, 2, 3, 4]
    assert len(bench.intake) == 0


def test_a_turn_takes_no_longer_than_its_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, one call stops after BUDGET s and leaves the rest for the next; a turn always gets on."""
    monkeypatch.setattr(module, "BUDGET", 0.05)
    slot_of = bench.slot_of

    def slow(request: Request) -> str:
        time.sleep(0.02)
        return slot_of(request)

    bench.intake._slot_of = slow
    for number in range(20):
        bench.intake.add(page(number), None, 0)
    made = len(bench.intake.outgoing(100))
    assert 1 <= made <= 4
    assert len(bench.intake) == 20 - made


def test_a_parent_waits_until_its_child_is_answered(bench: Bench) -> None:
    """From add() on the parent is not done; making the entry does not free it, only the answer does."""
    hold = bench.parent()
    bench.intake.add(page(1), hold, 0)
    bench.ledger.request_ended(hold, Verdict.DONE)
    (outgoing,) = bench.intake.outgoing(10)
    assert outgoing.parent is hold
    assert not bench.ledger.outbox
    bench.ledger.child_safe(hold)
    assert [settled.verb for settled in bench.ledger.outbox] == ["done"]


def test_one_object_may_come_twice(bench: Bench) -> None:
    """A request yielded twice before its push is two arrivals, each counted on its parent."""
    hold, request = bench.parent(), page(1)
    bench.intake.add(request, hold, 0)
    bench.intake.add(request, hold, 0)
    assert (len(bench.intake), hold.unsafe) == (2, 2)
    first, second = bench.intake.outgoing(10)
    assert first.entry.digest == second.entry.digest


def test_what_is_claimed_is_not_pushed(bench: Bench) -> None:
    """A request that turns out to continue an item is taken out again, once, and frees the parent of its push."""
    hold, request = bench.parent(), page(1)
    bench.intake.add(request, hold, 0)
    assert bench.intake.claim(request)
    assert not bench.intake.claim(request)
    assert (hold.unsafe, bench.intake.outgoing(10)) == (0, [])
    bench.intake.add(page(2), None, 0)
    assert not bench.intake.claim(page(2)), "claimed another object than the one that came"


def test_a_request_with_its_parents_key_continues_it(bench: Bench) -> None:
    """It stays with this node as a further request of the item, and is not pushed."""
    hold = bench.parent("item-7")
    request = page(1, meta={"lease_item": "item-7"})
    bench.intake.add(request, hold, 0)
    assert bench.intake.outgoing(10) == []
    assert bench.kept == [(request, hold)]
    assert hold.unsafe == 0


def test_what_was_asked_for_before_continues_nothing(bench: Bench) -> None:
    """A page that links to itself is a duplicate of itself; who names the key, or sets dont_filter, means it."""
    key = bench.keys.key_of(page(1))
    parent = bench.parent(key)
    for options in ({}, {}, {"dont_filter": True}, {"meta": {"lease_item": key}}):
        bench.intake.add(page(1, **options), parent, 0, page(1))
    assert bench.intake.outgoing(10) == []
    assert [request.dont_filter for request, _ in bench.kept] == [True, False]
    assert parent.unsafe == 0
    assert bench.stats.get("items/duplicate") == 2


def test_what_cannot_be_stored_stays_here(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Such requests are kept, counted, warned of once by name, and their parent waits for them as for its own."""
    hold = bench.parent()
    requests = [page(number, meta={"lock": object()}) for number in range(2)]
    for request in requests:
        bench.intake.add(request, hold, 0)
    with caplog.at_level(logging.WARNING, "scrapy_lease.scheduler.intake"):
        assert bench.intake.outgoing(10) == []
    assert bench.kept == [(request, hold) for request in requests]
    assert bench.stats.get("queue/local_only") == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "http://site.example/0" in caplog.text
    assert "lock" in caplog.text
    assert hold.unsafe == 0


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"lease_item": 7}, "item_key"),
        ({"lease_item": ""}, "item_key"),
        ({"lease_done_ttl": -1}, "item_key"),
        ({"download_slot": 5}, "unusable"),
    ],
)
def test_a_request_that_cannot_be_used_fails_its_parent(
    bench: Bench, caplog: pytest.LogCaptureFixture, meta: dict[str, Any], reason: str
) -> None:
    """It is not fetched, the item that led to it fails with the reason, and the requests beside it go on."""
    hold = bench.parent()
    bench.intake.add(page(1), hold, 0)
    bench.intake.add(page(2, meta=meta), hold, 0)
    bench.intake.add(page(3), hold, 0)
    assert len(bench.intake.outgoing(10)) == 2
    assert "http://site.example/2> is not fetched" in caplog.text
    assert (hold.verdict, hold.reason, hold.unsafe) == (Verdict.FAILED, reason, 2)
    for _ in range(2):
        bench.ledger.child_safe(hold)
    bench.ledger.request_ended(hold, Verdict.DONE)
    assert [settled.verb for settled in bench.ledger.outbox] == ["failed"]


def test_a_faulty_request_of_start_is_only_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Without an item that led to it there is nobody to fail: an ERROR says so, and the rest goes on."""
    bench.intake.add(page(1, meta={"lease_item": 7}), None, 1)
    bench.intake.add(page(2), None, 1)
    assert len(bench.intake.outgoing(10)) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    ("options", "occurrence", "mark"),
    [
        ({}, 0, "auto"),
        ({}, 1, "auto"),
        ({"dont_filter": True}, 0, "none"),
        ({"dont_filter": True}, 1, "run"),
        ({"meta": {"lease_item": False}}, 0, "none"),
        ({"meta": {"lease_item": "key"}, "dont_filter": True}, 0, "auto"),
        ({"meta": {"lease_item": "key"}, "dont_filter": True}, 1, "auto"),
    ],
)
def test_what_a_request_is(bench: Bench, options: dict[str, Any], occurrence: int, mark: str) -> None:
    """dont_filter without a key is no item, of start() it is one for its run; an explicit key decides by itself."""
    bench.intake.add(page(1, **options), None, occurrence)
    (outgoing,) = bench.intake.outgoing(1)
    assert outgoing.entry.mark == mark


def test_each_occurrence_in_start_is_an_item_of_its_own(bench: Bench) -> None:
    """The n-th start request of a kind has the same digest on every host, and another than the one before it."""
    digests = []
    for occurrence in (1, 2, 1):
        bench.intake.add(page(1, dont_filter=True), None, occurrence)
        digests.append(bench.intake.outgoing(1)[0].entry.digest)
    assert digests[0] == digests[2] != digests[1]


def test_requests_that_are_no_items_never_meet(bench: Bench) -> None:
    """Every one of them is fetched: identical ones have different digests."""
    for _ in range(2):
        bench.intake.add(page(1, dont_filter=True), None, 0)
    first, second = bench.intake.outgoing(2)
    assert first.entry.digest != second.entry.digest


@pytest.mark.parametrize(("meta", "ttl"), [({}, 3600), ({"lease_done_ttl": 0}, 0), ({"lease_done_ttl": 1.5}, 2)])
def test_how_long_a_mark_counts(meta: dict[str, Any], ttl: int) -> None:
    """The setting counts unless the request says otherwise; 0 is for ever."""
    bench = Bench(done_ttl=3600)
    bench.intake.add(page(1, meta=meta), None, 0)
    assert bench.intake.outgoing(1)[0].entry.ttl == ttl


def test_its_repr_counts(bench: Bench) -> None:
    """The state shows without a debugger."""
    bench.intake.add(page(1), None, 0)
    assert repr(bench.intake) == "<Intake: 1 requests waiting to be pushed>"
