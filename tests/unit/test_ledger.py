"""The ledger's one table: what outcomes of an item's requests mean for the item."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scrapy_lease.leases.items import Hold, Ledger, Look, Patience, Verdict

PATIENCE = Patience(attempts=3, backoff=(60, 3600))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(PATIENCE)


def hold_of(ledger: Ledger, mark: str = "auto", **options: Any) -> Hold:
    """A hold with one request with the engine."""
    hold = Hold(b"d" * 16, 7, 1, "slot", mark, b"payload", **options)
    assert ledger.add(hold)
    hold.open = 1
    return hold


def only(ledger: Ledger) -> tuple[str, tuple[Any, ...]]:
    """What the ledger's single settlement says."""
    (settled,) = ledger.take_outbox(10)
    return settled.verb, settled.args


@pytest.mark.parametrize(
    ("verdict", "mark", "items", "settled"),
    [
        (Verdict.DONE, "auto", 1, ("done", ("keep",))),
        (Verdict.DONE, "auto", 0, ("done", ("run",))),
        (Verdict.DONE, "run", 1, ("done", ("run",))),
        (Verdict.DONE, "run", 0, ("done", ("run",))),
        (Verdict.DONE, "none", 1, ("done", ("none",))),
        (Verdict.DONE, "none", 0, ("done", ("none",))),
        *((Verdict.REJECTED, mark, items, ("rejected", ())) for mark in ("auto", "run") for items in (0, 1)),
        *((Verdict.REJECTED, "none", items, ("rejected", ("none",))) for items in (0, 1)),
        *((Verdict.BACK, mark, items, ("back", (0,))) for mark in ("auto", "run", "none") for items in (0, 1)),
    ],
)
def test_what_a_verdict_means(
    ledger: Ledger, verdict: Verdict, mark: str, items: int, settled: tuple[str, tuple[Any, ...]]
) -> None:
    """A page with items is marked over runs, any other for its run; what is no item is not marked at all."""
    ledger.request_ended(hold_of(ledger, mark), verdict, "reason", "trace", items)
    assert only(ledger) == settled


@pytest.mark.parametrize(
    ("verdict", "mark", "items", "settled"),
    [
        (Verdict.DONE, "auto", 1, ("done", ("leads", True))),
        (Verdict.DONE, "auto", 0, ("done", ("leads", False))),
        (Verdict.DONE, "run", 1, ("done", ("leads", False))),
        (Verdict.DONE, "none", 1, ("done", ("none",))),
        (Verdict.REJECTED, "auto", 0, ("done", ("leads", False))),
        (Verdict.REJECTED, "none", 0, ("rejected", ("none",))),
        (Verdict.BACK, "auto", 1, ("back", (0,))),
    ],
)
def test_a_page_that_led_on_says_so(
    ledger: Ledger, verdict: Verdict, mark: str, items: int, settled: tuple[str, tuple[Any, ...]]
) -> None:
    """Done, or refused with an errback that led on: others must see where to; kept over runs as far as any item is."""
    hold = hold_of(ledger, mark)
    hold.leads = True
    ledger.request_ended(hold, verdict, "reason", "trace", items)
    assert only(ledger) == settled


def test_an_item_that_begins_anew_has_not_led_on(ledger: Ledger) -> None:
    """What a void try led to does not count."""
    hold = hold_of(ledger)
    hold.leads = True
    hold.restart()
    hold.open = 1
    ledger.request_ended(hold, Verdict.DONE, items=1)
    assert only(ledger) == ("done", ("keep",))


def test_a_look_is_in_no_ledger(ledger: Ledger) -> None:
    """A page that is another session's is never settled, whatever became of it here."""
    look = Look(b"d" * 16, 0, 1, "slot", "auto", b"payload")
    look.open = 1
    ledger.child_queued(look)
    ledger.request_ended(look, Verdict.DONE)
    ledger.child_safe(look)
    ledger.hand_back(look)
    assert look.is_over
    assert not ledger.outbox
    assert not ledger.has(look.digest)


@pytest.mark.parametrize("mark", ["auto", "run", "none"])
@pytest.mark.parametrize(("attempts", "wait"), [(0, 60), (1, 120), (2, 240), (20, 3600)])
def test_a_failed_item_waits_doubling_and_jittered(ledger: Ledger, mark: str, attempts: int, wait: float) -> None:
    """failed carries the wait in ms (doubling from the first to the longest, a quarter more or less) and its reason."""
    ledger.request_ended(hold_of(ledger, mark, attempts=attempts), Verdict.FAILED, "target", "tail", 1)
    verb, (delay, allowed, reason, trace) = only(ledger)
    assert (verb, allowed, reason, trace) == ("failed", 3, "target", "tail")
    assert wait * 750 <= delay <= wait * 1250


@pytest.mark.parametrize("verdicts", list(itertools.permutations(Verdict, 3)))
def test_of_several_requests_the_gravest_verdict_holds(ledger: Ledger, verdicts: tuple[Verdict, ...]) -> None:
    """Failed, then back, then done, then rejected, in whatever order they come; nothing is settled before the last."""
    hold = hold_of(ledger)
    hold.open = 3
    for verdict in verdicts:
        assert not ledger.outbox
        ledger.request_ended(hold, verdict, verdict.name, "")
    assert only(ledger)[0] == max(verdicts).name.lower()
    assert hold.reason == max(verdicts).name


def test_the_items_of_all_requests_count(ledger: Ledger) -> None:
    """A page of an item's earlier request yielded items: the mark is kept although the last request's page did not."""
    hold = hold_of(ledger)
    hold.open = 2
    ledger.request_ended(hold, Verdict.DONE, items=2)
    ledger.request_ended(hold, Verdict.DONE)
    assert only(ledger) == ("done", ("keep",))


def test_children_are_safe_before_their_parent_is_done(ledger: Ledger) -> None:
    """The item is settled when the last push of what it led to was answered, not before."""
    hold = hold_of(ledger)
    ledger.child_queued(hold)
    ledger.child_queued(hold)
    ledger.request_ended(hold, Verdict.DONE)
    ledger.child_safe(hold)
    assert not ledger.outbox
    ledger.child_safe(hold)
    assert only(ledger) == ("done", ("run",))


def test_a_restarted_item_knows_nothing_of_its_former_requests(ledger: Ledger) -> None:
    """After a lost session an item begins anew: the items and verdict of before do not count."""
    hold = hold_of(ledger)
    hold.open = 2
    ledger.request_ended(hold, Verdict.FAILED, "target", "tail", items=1)
    hold.restart()
    hold.open = 1
    ledger.request_ended(hold, Verdict.DONE)
    assert only(ledger) == ("done", ("run",))


def test_back_with_a_delay_is_told_in_milliseconds(ledger: Ledger) -> None:
    """hand_back() counts nothing; its delay reaches the store in ms."""
    ledger.hand_back(hold_of(ledger), 1.5)
    assert only(ledger) == ("back", (1500,))


def test_a_buried_item_carries_its_reason(ledger: Ledger) -> None:
    """bury() sends the item to the dead letters at once, whatever its requests do."""
    hold = hold_of(ledger)
    ledger.bury(hold, "corrupt", "tail")
    ledger.request_ended(hold, Verdict.DONE)
    assert only(ledger) == ("dead", ("corrupt", "tail"))


def test_a_dropped_hold_says_nothing(ledger: Ledger) -> None:
    """What another session has taken over is never settled from here."""
    hold = hold_of(ledger)
    ledger.drop(hold)
    ledger.request_ended(hold, Verdict.DONE)
    ledger.hand_back(hold)
    ledger.bury(hold, "reason", "")
    assert (len(ledger), ledger.outbox) == (0, [])


def test_sent_is_told_while_the_item_stays_held(ledger: Ledger) -> None:
    """mark_sent() settles nothing: the outcome still does."""
    hold = hold_of(ledger)
    ledger.mark_sent(hold)
    assert only(ledger) == ("sent", ())
    assert ledger.is_held(hold)
    ledger.request_ended(hold, Verdict.REJECTED)
    assert only(ledger)[0] == "rejected"


def test_the_outbox_is_taken_oldest_first(ledger: Ledger) -> None:
    """take_outbox() takes no more than its limit and leaves the rest in order."""
    holds = [Hold(bytes([number]), number, 1, "slot", "auto", b"") for number in range(5)]
    for hold in holds:
        ledger.add(hold)
        ledger.hand_back(hold)
    taken = [[settled.hold for settled in ledger.take_outbox(2)] for _ in range(4)]
    assert taken == [holds[:2], holds[2:4], holds[4:], []]


def test_only_what_is_with_the_engine_is_overdue(ledger: Ledger) -> None:
    """overdue() gives holds without progress since then, but not what waits in the window and needs none."""
    hold = hold_of(ledger)
    hold.progress = 10.0
    assert list(ledger.overdue(10.5)) == [hold]
    assert list(ledger.overdue(10.0)) == []
    hold.open = 0
    assert list(ledger.overdue(10.5)) == []


def test_its_repr_counts(ledger: Ledger) -> None:
    """The state shows without a debugger."""
    hold_of(ledger)
    ledger.mark_sent(next(iter(ledger)))
    assert repr(ledger) == "<Ledger: 1 held, 1 to be settled>"
