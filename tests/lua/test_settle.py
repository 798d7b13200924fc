"""settle: what became of leased items, accepted from who holds them and from nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.scripts import Grant, Settlement
from tests.lua.bed import TTL, Bed, Session, entry, names, settlement

ENDS: dict[str, tuple] = {
    "done": ("keep",), "rejected": (), "failed": (0, 3, "r", "t"), "dead": ("r", "t"), "back": (0,), "sent": (),
}  # fmt: skip


@pytest.fixture
def holder(bed: Bed) -> Session:
    session = bed.session("a")
    session.push(*(entry(i) for i in range(5)))
    return session


@pytest.mark.parametrize("verb", ENDS)
def test_only_the_holder_is_heard(bed: Bed, holder: Session, verb: str) -> None:
    """Another session, another fence, or an item that is not leased: the answer is -, and nothing changes."""
    grants = holder.lease(want=2)
    stranger = bed.session("b")
    wrong = Settlement(grants[0].digest, grants[0].fence - 1, verb, ENDS[verb])
    idle = Settlement(entry(4).digest, grants[0].fence, verb, ENDS[verb])
    before = bed.record(0, "a"), bed.record(1, "a"), bed.record(4, "a"), holder.standing()
    assert stranger.settle(settlement(grants[0], verb, *ENDS[verb])) == "-"
    assert holder.settle(wrong, idle) == "--"
    assert (bed.record(0, "a"), bed.record(1, "a"), bed.record(4, "a"), holder.standing()) == before


@pytest.mark.parametrize("close", [False, True])
def test_the_record_decides_not_the_clock(bed: Bed, holder: Session, close: bool) -> None:
    """A result of a session that is over is welcome while nobody took the item."""
    grants = holder.lease(want=2)
    bed.pass_time(TTL + 1)
    if close:
        holder.close()
    assert holder.settle(settlement(grants[0])) == "+"
    bed.reclaim("a")
    assert holder.settle(settlement(grants[1])) == "-"


def test_each_item_settles_once(holder: Session, bed: Bed) -> None:
    """Twice in one call, or again later, counts once; sent does not end a lease."""
    (grant,) = holder.lease(want=1)
    assert holder.settle(settlement(grant, "sent"), settlement(grant, "back", 0), settlement(grant)) == "++-"
    assert holder.settle(settlement(grant)) == "-"
    assert names(holder.lease(want=5)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("verb", ENDS)
def test_a_repeated_settle_changes_nothing(bed: Bed, holder: Session, verb: str) -> None:
    """The last number again gives the stored reply and changes nothing; an older one is refused."""
    (grant,) = holder.lease(want=1)
    answer = holder.settle(settlement(grant, verb, *ENDS[verb]))
    before = bed.dump()
    assert holder.settle(settlement(grant, verb, *ENDS[verb]), n=1) == answer
    assert bed.dump() == before
    holder.settle()
    with pytest.raises(StoreRefused, match="older"):
        holder.settle(settlement(grant), n=1)


def test_done_leaves_nothing_but_the_mark(bed: Bed, holder: Session) -> None:
    """After done neither record nor request nor lease is left, and the run counts it."""
    assert holder.settle(*map(settlement, holder.lease())) == "+" * 5
    left = {key.rsplit(b":", 1)[1] for key in bed.client.scan_iter() if b":job:" in key and b":done:" not in key}
    assert left == {b"meta", b"members", b"producing"}
    assert bed.counter("done") == 5


def test_handing_back_counts_nothing(bed: Bed, holder: Session) -> None:
    """An item handed back is pending at its old place, with its attempts and deaths as they were."""
    grants = holder.lease(want=3)
    assert holder.settle(settlement(grants[1], "back", 0), settlement(grants[0], "back", 0)) == "++"
    again = holder.lease(want=5)
    assert names(again) == ["0", "1", "3", "4"]
    assert {(grant.attempts, grant.deaths) for grant in again} == {(0, 0)}


def test_failures_are_counted_until_the_item_is_dead(bed: Bed, holder: Session) -> None:
    """Each failure delays the item and counts; the last allowed one makes it a dead letter with reason and trace."""
    for attempt in range(3):
        (grant,) = holder.lease(want=1)
        assert (names([grant]), grant.attempts) == (["0"], attempt)
        answer = holder.settle(settlement(grant, "failed", 1000, 3, "target", f"trace {attempt} ü"))
        assert answer == ("!" if attempt == 2 else "+")
        bed.pass_time(1000)
    letter = bed.dead(0)
    assert letter is not None
    assert (letter.reason, letter.trace, letter.attempts, letter.deaths) == ("target", "trace 2 ü", 3, 0)
    assert abs(letter.at - bed.client.time()[0]) < 5
    assert bed.client.hget(bed.scope.key("payload"), entry(0).digest) == b"payload of 0"
    assert (bed.counter("failed"), bed.counter("died")) == (3, 1)
    assert names(holder.lease(want=1)) == ["1"]


def test_dead_at_once(bed: Bed, holder: Session) -> None:
    """An item that nobody can fetch is a dead letter without an attempt; it is not pending any more."""
    (grant,) = holder.lease(want=1)
    assert holder.settle(settlement(grant, "dead", "payload", "")) == "!"
    letter = bed.dead(0)
    assert letter is not None
    assert (letter.reason, letter.attempts, letter.slot) == ("payload", 0, "shop.example")
    assert bed.record(0) is None
    assert names(holder.lease()) == ["1", "2", "3", "4"]


def test_sent_is_kept_with_the_lease(bed: Bed, holder: Session) -> None:
    """sent marks the lease, twice as well as once, and the item may still end in any way."""
    (grant,) = holder.lease(want=1)
    for _ in range(2):
        assert holder.settle(settlement(grant, "sent")) == "+"
        assert bed.record(0, "a").sent
    assert holder.settle(settlement(grant, "failed", 0, 3, "r", "")) == "+"
    assert not bed.record(0, "a").sent


def test_a_thousand_at_once(bed: Bed, holder: Session) -> None:
    """A call of a thousand mixed outcomes treats each as if it were alone."""
    holder.settle(*map(settlement, holder.lease()))
    holder.push(*(entry(f"m{i}") for i in range(1000)))
    grants = holder.lease(want=1000)
    outcome: list[Callable[[Grant], Settlement]] = [
        lambda grant: settlement(grant),
        lambda grant: settlement(grant, "done", "run"),
        lambda grant: settlement(grant, "back", 0),
        lambda grant: settlement(grant, "dead", "r", ""),
        lambda grant: Settlement(grant.digest, 1, "done", ("keep",)),
    ]
    answer = holder.settle(*(outcome[i % 5](grant) for i, grant in enumerate(grants)))
    assert answer == "+++!-" * 200
    standing = holder.standing()
    assert (standing.ready, standing.leased, bed.counter("died"), bed.counter("done")) == (200, 200, 200, 405)
