"""rate_take: who gets how much where several sessions ask, spread evenly or not, and in sliding windows."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator

import pytest

from tests.helpers.servers import Server
from tests.lua.rate_bed import HOUR, SECOND, RateBed, Taker


@pytest.fixture
def bed(server: Server) -> Iterator[RateBed]:
    return RateBed(server)


def crowd(bed: RateBed, number: int, limit: int, **options: object) -> list[Taker]:
    return [bed.session(f"s{i}", limit, **options) for i in range(number)]


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("order", ["fixed", "random"])
def test_who_wants_all_gets_its_share(bed: RateBed, nodes: int, order: str) -> None:
    """Over ten windows each has its share within 20 %, whoever comes first; together they have it all."""
    limit, takers, had = 10 * nodes, crowd(bed, nodes, 10 * nodes), Counter[str]()
    dice = random.Random(nodes)
    for _ in range(11):
        for _ in range(10):
            turn = takers if order == "fixed" else dice.sample(takers, nodes)
            for taker in turn:
                had[taker.sid] += taker.get(2 * limit)
            bed.pass_time(SECOND / 10)
    assert sum(had.values()) == 11 * limit
    # The first window knows only who asked already.
    assert all(abs(count - 11 * 10) <= 0.2 * 110 + limit for count in had.values())
    later = Counter[str]()
    for _ in range(10):
        for _ in range(10):
            for taker in takers:
                later[taker.sid] += taker.get(2 * limit)
            bed.pass_time(SECOND / 10)
    assert all(8 * 10 <= count <= 12 * 10 for count in later.values())


def test_what_others_do_not_use_is_used(bed: RateBed) -> None:
    """Who wants little leaves the rest to who wants all; together they use it up."""
    greedy, modest = crowd(bed, 2, 40)
    total = 0
    for _ in range(5):
        for tenth in range(10):
            total += greedy.get(80) + (modest.get(1) if tenth % 5 == 0 else 0)
            bed.pass_time(SECOND / 10)
    assert total == 5 * 40


def test_a_dead_session_keeps_its_share_for_one_window_at_most(bed: RateBed) -> None:
    """And only for the first half of that."""
    dead, living = crowd(bed, 2, 20)
    assert (living.get(20), dead.get(10)) == (20, 0)
    bed.pass_time(SECOND)
    assert (dead.get(10), living.get(20)) == (10, 10)
    bed.pass_time(SECOND)
    assert living.get(20) == 10
    bed.pass_time(0.8 * SECOND)
    assert living.get(20) == 6
    bed.pass_time(1.2 * SECOND)
    assert living.get(20) == 20


def test_fewer_permits_than_sessions_go_one_by_one(bed: RateBed) -> None:
    """Where it is tight, one session does not take all that there is."""
    takers = crowd(bed, 4, 3)
    for _ in range(3):
        got = [taker.get(3) for taker in takers]
        bed.pass_time(SECOND)
    assert sorted(got) == [0, 1, 1, 1]


def test_paced_grants_are_spread_over_the_window(bed: RateBed) -> None:
    """No more than the part of the limit that is due and a twentieth; by the end all of it."""
    one = bed.session(limit=100, is_paced=True)
    got = []
    for _ in range(20):
        got.append(one.get(100))
        bed.pass_time(50)
    assert (sum(got), max(got)) == (100, 5)


@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_sliding_window_never_holds_more_than_its_limit(bed: RateBed, ahead: int, seed: int) -> None:
    """However permits are spent within the life of their slices, every window of that length has at most 20 of them."""
    dice, limit = random.Random(seed), 20
    one, spent, total = bed.session(limit=limit, sliding=ahead), deque[float](), 0
    slices: list[tuple[float, int]] = []
    for _ in range(400):
        taken = one.take(dice.randint(1, 8))
        if taken.permits:
            slices.append((bed.wire.now + taken.left, taken.permits))
        bed.pass_time(dice.choice((0, 1, 7, 20, 30)))
        for ends, permits in slices:
            if bed.wire.now < ends and dice.random() < 0.6:
                spent.extend([bed.wire.now] * permits)
                total += permits
                slices = [(end, number) for end, number in slices if (end, number) != (ends, permits)]
        while spent and spent[0] <= bed.wire.now - SECOND:
            spent.popleft()
        assert len(spent) <= limit
    assert total > limit


def test_a_sliding_limit_is_used_up(bed: RateBed) -> None:
    """Steady demand gets 95 % of it."""
    one, got = bed.session(limit=100, sliding=1), 0
    one.get(100)
    bed.pass_time(SECOND)
    for _ in range(1000):
        got += one.get(100)
        bed.pass_time(10)
    assert 0.95 * 1000 <= got <= 1000


def test_a_sliding_slice_lives_for_a_twentieth(bed: RateBed) -> None:
    """Of the window at most, and unspent permits of it come back."""
    one = bed.session(limit=10, sliding=1)
    taken = one.take(10)
    assert 0 < taken.left <= 50
    one.take(0, back=[(taken.until, 4)])
    assert one.get(10) == 4


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_step_costs_a_sliding_limit_one_window(bed: RateBed, step: int) -> None:
    """A clock that is stepped gives the limit once more, and goes on from there."""
    one = bed.session(limit=10, sliding=1)
    assert one.get(20) == 10
    bed.pass_time(step)
    one.beat()
    assert (one.get(20), one.get(20)) == (10, 0)
    bed.pass_time(500)
    assert one.get(20) == 0
    bed.pass_time(600)
    assert one.get(20) == 10


def test_a_small_step_back_frees_nothing_of_a_sliding_limit(bed: RateBed) -> None:
    """What was granted by the clock before it counts as granted now."""
    one = bed.session(limit=10, sliding=1)
    assert one.get(20) == 10
    bed.pass_time(-300)
    assert one.get(20) == 0
    bed.pass_time(900)
    assert one.get(20) == 0
