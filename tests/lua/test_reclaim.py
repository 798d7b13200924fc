"""reclaim: what a session leaves behind, in small steps, by whoever meets it."""

from __future__ import annotations

import pytest

from tests.lua.bed import TTL, Bed, Session, entry, names, settlement


def die(bed: Bed, sid: str, want: int = 1000) -> None:
    """Let a session lease items and expire; others live on."""
    session = bed.session(sid, ttl=TTL)
    session.lease(want=want)
    bed.pass_time(TTL + 1)


@pytest.fixture
def living(bed: Bed) -> Session:
    session = bed.session("living", ttl=10**9)
    session.push(*(entry(i) for i in range(3)))
    return session


def test_the_living_are_left_alone(bed: Bed, living: Session) -> None:
    """Nothing is taken from a session before its deadline."""
    living.lease()
    assert bed.reclaim("living") == (0, -1)
    assert living.standing().leased == 3


def test_an_expired_session_is_told_and_reclaimed(bed: Bed, living: Session) -> None:
    """A lease names a session that is over; its items are pending again with one death, and it is told no more."""
    die(bed, "dead", want=2)
    assert living.standing().expired == "dead"
    assert bed.reclaim("dead") == (2, 0)
    assert living.standing().expired == ""
    grants = living.lease()
    assert names(grants) == ["0", "1", "2"]
    assert [(grant.attempts, grant.deaths) for grant in grants] == [(0, 1), (0, 1), (0, 0)]
    assert bed.counter("taken_over") == 2


def test_a_closed_session_counts_nothing(bed: Bed, living: Session) -> None:
    """A clean close is no death: items come back at once, with nothing counted."""
    closing = bed.session("closing")
    closing.lease()
    closing.close()
    assert living.standing().expired == "closing"
    assert bed.reclaim("closing") == (3, 0)
    assert {grant.deaths for grant in living.lease()} == {0}
    assert bed.counter("taken_over") == 0


def test_a_hundred_at_a_time(bed: Bed, living: Session) -> None:
    """One call moves at most a hundred items and tells how many are left."""
    living.push(*(entry(f"more {i}") for i in range(247)))
    die(bed, "dead")
    assert [bed.reclaim("dead") for _ in range(4)] == [(100, 150), (100, 50), (50, 0), (0, 0)]
    standing = living.standing()
    assert (standing.ready, standing.leased, standing.expired) == (250, 0, "")


def test_suspects_come_back_apart(bed: Bed, living: Session) -> None:
    """An item that two sessions died with waits a while of its own before it is pending again."""
    for round_ in range(2):
        die(bed, f"dead {round_}")
        bed.reclaim(f"dead {round_}")
    standing = living.standing()
    assert (standing.ready, standing.delayed) == (0, 3)
    scores = [score for _, score in bed.client.zrange(bed.scope.key("delayed"), 0, -1, withscores=True)]
    assert len(set(scores)) == 3
    bed.pass_time(65536)
    assert [grant.deaths for grant in living.lease()] == [2, 2, 2]


def test_too_many_deaths_end_an_item(bed: Bed, living: Session) -> None:
    """The death that reaches the limit makes it a dead letter with the reason deaths."""
    for round_ in range(2):
        die(bed, f"dead {round_}", want=1)
        bed.reclaim(f"dead {round_}", deaths=2)
    letter = bed.dead(0)
    assert letter is not None
    assert (letter.reason, letter.deaths, letter.attempts) == ("deaths", 2, 0)
    assert bed.record(0) is None
    assert names(living.lease()) == ["1", "2"]


@pytest.mark.parametrize("policy", ["refetch", "park"])
def test_what_was_sent_is_parked_where_asked(bed: Bed, living: Session, policy: str) -> None:
    """With park, an item that a dead session may have sent is a doubtful dead letter; unsent ones are pending again."""
    dying = bed.session("dying")
    grants = dying.lease(want=2)
    dying.settle(settlement(grants[0], "sent"))
    bed.pass_time(TTL + 1)
    assert bed.reclaim("dying", policy=policy) == (2, 0)
    letter = bed.dead(0)
    assert (letter and letter.reason) == ("doubtful" if policy == "park" else None)
    assert names(living.lease()) == (["1", "2"] if policy == "park" else ["0", "1", "2"])


def test_a_closed_session_parks_nothing(bed: Bed, living: Session) -> None:
    """A session that closed has said what it sent: nothing is doubtful."""
    closing = bed.session("closing")
    closing.settle(settlement(closing.lease(want=1)[0], "sent"))
    closing.close()
    bed.reclaim("closing", policy="park")
    assert bed.dead(0) is None


def test_a_late_result_of_what_was_taken_over_is_refused(bed: Bed, living: Session) -> None:
    """Once another holds the item, the first holder's result is not accepted, and the new fence is higher."""
    slow = bed.session("slow")
    (old,) = slow.lease(want=1)
    bed.pass_time(TTL + 1)
    bed.reclaim("slow")
    (new,) = living.lease(want=1)
    assert (new.digest, new.fence > old.fence) == (old.digest, True)
    assert slow.settle(settlement(old)) == "-"
    assert living.settle(settlement(new)) == "+"


def test_an_unknown_session_has_nothing(bed: Bed) -> None:
    """Reclaiming a session that never was moves nothing."""
    bed.session("a", ttl=TTL)
    assert bed.reclaim("nobody") == (0, 0)
