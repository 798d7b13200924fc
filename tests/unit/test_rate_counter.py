"""One counter in one process: what it asks for and when, what it may spend until when, what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest

from scrapy_lease.leases.rates import Counter, CounterName, Limit, RateOptions
from scrapy_lease.leases.rates.slices import Purse, Slice


@dataclass
class Answer:
    """What a store might answer."""

    permits: int = 0
    left: int = 1000
    wait: int = 1000
    free: int = 0
    until: int = 1
    is_grace: bool = False


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def counter_of(clock: Clock, limit: tuple[int, int] = (10, 1000), **options: object) -> Counter:
    return Counter(CounterName("api", "api", "api"), Limit(*limit), RateOptions(**options), 0, count(1).__next__, clock)


def fill(counter: Counter, clock: Clock, answer: Answer, wanted: int = 1, way: float = 0.0) -> int:
    """Let a counter ask for *wanted* and be answered after *way* s; return what it asked for."""
    counter.wanted = wanted
    shard = counter.due()
    assert shard is not None
    asked = clock.now
    want = counter.ask(shard, ()).want
    clock.now += way
    counter.answered(shard, asked, answer)
    return want


def test_permits_end_with_their_window(clock: Clock) -> None:
    """Counted from before the call was sent, and a twentieth of the window (50 ms at most) earlier than that."""
    counter = counter_of(clock)
    fill(counter, clock, Answer(3, left=500), wanted=3, way=0.2)
    assert counter.has(3)
    clock.now += 0.24
    assert counter.has(3)
    clock.now += 0.02
    assert not counter.has(1)


@pytest.mark.parametrize(
    ("limit", "free", "late", "seconds"),
    [(1000, 0, 0.0, 0.05), (1000, 0, 0.08, 0.08), (1000, 0, 9.0, 0.25), (1000, 900, 0.08, 0.005), (10, 9, 0.0, 0.05)],
)
def test_what_is_left_of_a_window_depends_on_how_soon_it_arrives(
    clock: Clock, limit: int, free: int, late: float, seconds: float
) -> None:
    """Longer before its end nothing is spent where this process is slow, a quarter of it at most; less where most of a
    great limit is nobody's."""
    counter = counter_of(clock, (limit, 1000))
    counter.wanted = 1
    counter.ask(0, ())
    counter.answered(0, clock.now, Answer(1, left=1000, free=free), late)
    clock.now += 0.999 - seconds - 0.001
    assert counter.has(1)
    clock.now += 0.002
    assert not counter.has(1)


def test_nobody_asks_before_another_window_is_there(clock: Clock) -> None:
    """In the last moments, in which nothing of it may be spent, a call would be for nothing."""
    counter = counter_of(clock, (1000, 1000))
    fill(counter, clock, Answer(1, left=1000, free=0), wanted=1)
    clock.now += 0.96
    assert counter.due() is None
    assert 0.04 < counter.opens_in <= 0.043
    assert counter.due_in() == counter.opens_in
    clock.now += counter.opens_in
    assert counter.due() == 0


def test_nobody_asks_while_there_is_enough(clock: Clock) -> None:
    """Nothing is asked for without demand; with it as much as is wanted, and no more than the limit."""
    counter = counter_of(clock)
    assert counter.due() is None
    assert fill(counter, clock, Answer(7), wanted=99) == 10
    counter.wanted = 5
    assert counter.due() is None


def test_a_full_counter_is_not_asked_before_its_window_ends(clock: Clock) -> None:
    """What waits knows when; asking again before would be for nothing."""
    counter = counter_of(clock)
    fill(counter, clock, Answer(0, wait=400), wanted=3)
    assert counter.due() is None
    assert 0.4 <= counter.opens_in < 0.5
    clock.now += counter.opens_in
    assert counter.due() is not None


def test_what_is_kept_for_others_is_asked_for_again_soon(clock: Clock) -> None:
    """They may not need it; a new server is asked again soon, too."""
    for answer in (Answer(0, free=5), Answer(0, is_grace=True)):
        counter = counter_of(clock)
        fill(counter, clock, answer, wanted=3)
        assert counter.opens_in == 0
        clock.now += 0.3
        assert counter.due() is not None


def test_a_call_without_an_answer_is_repeated_as_it_was(clock: Clock) -> None:
    """Same number, same words, whatever is wanted by then."""
    counter = counter_of(clock)
    counter.wanted = 3
    ask, number = counter.ask(0, ()), counter.lanes[0].n
    assert counter.due() is None
    counter.failed(0, 0.1)
    assert counter.due() is None
    clock.now += 0.1
    counter.wanted = 9
    assert counter.due() == 0
    assert (counter.ask(0, ()), counter.lanes[0].n) == (ask, number)


def test_what_was_granted_lately_is_told_with_each_call(clock: Clock) -> None:
    """A server that lost its tail can count it again; what was granted long before an answer is safe."""
    counter = counter_of(clock, (10, 60_000))
    fill(counter, clock, Answer(2, until=7))
    counter.spend(2, clock.now)
    clock.now += 2
    fill(counter, clock, Answer(1, until=7))
    counter.spend(1, clock.now)
    counter.wanted = 5
    assert list(counter.ask(0, ()).recent) == [(1, 7, 2), (2, 7, 1)]
    clock.now += 4
    counter.answered(0, clock.now, Answer(1, until=7))
    counter.spend(1, clock.now)
    assert [row[0] for row in counter.ask(0, ()).recent] == [3]


def test_what_nobody_needs_is_given_back(clock: Clock) -> None:
    """Of a long window; of a short one it is worth no call."""
    long, short = counter_of(clock, (10, 60_000)), counter_of(clock)
    for counter in (long, short):
        fill(counter, clock, Answer(8, left=50_000, until=7), wanted=8)
        counter.wanted = 3
    assert (long.surplus, short.surplus) == (5, 0)
    ask = long.give_back(0, (), keep=3)
    assert ask is not None
    assert (ask.back, ask.want) == ([(7, 5)], 0)
    assert long.has(3)
    assert not long.has(4)


def test_reserved_permits_are_nobody_elses(clock: Clock) -> None:
    """Of several that start at once none counts on what another will spend."""
    counter = counter_of(clock)
    fill(counter, clock, Answer(3), wanted=3)
    counter.reserved += 2
    assert (counter.has(1), counter.has(2)) == (True, False)
    assert counter.due() is None


def test_use_is_foreseen(clock: Clock) -> None:
    """Who spends much asks for more at once, before it has nothing left."""
    counter = counter_of(clock, (10_000, 1000))
    fill(counter, clock, Answer(300), wanted=300)
    for _ in range(250):
        clock.now += 0.002
        counter.spend(1, clock.now)
    counter.wanted = 1
    assert counter.due() is None
    assert [counter.spend(1, clock.now) for _ in range(40)].index(True) > 20
    assert counter.due() == 0
    assert counter.ask(0, ()).want > 50


def test_another_shard_is_tried_before_waiting(clock: Clock) -> None:
    """A shard that is full is left alone until its window ends; the others are asked meanwhile, once each."""
    counter = counter_of(clock, shards=3)
    counter.wanted = 1
    asked = []
    while (shard := counter.due()) is not None:
        asked.append(shard)
        counter.ask(shard, ())
        counter.answered(shard, clock.now, Answer(0, wait=400))
    assert sorted(asked) == [0, 1, 2]
    assert counter.opens_in > 0


def test_a_slice_for_a_store_far_away_lasts_longer(clock: Clock) -> None:
    """A sliding slice is asked for as many slots as an answer takes, of half a window at most."""
    counter = counter_of(clock, algorithm="sliding")
    counter.wanted = 1
    assert counter.ask(0, ()).sliding == 1
    counter.answered(0, clock.now - 0.099, Answer(0, wait=10))
    clock.now += 1
    assert counter.ask(0, ()).sliding == 6


def test_slices_that_end_first_are_spent_first(clock: Clock) -> None:
    """And what is given back is of those that last longest."""
    purse = Purse(clock)
    purse.add(Slice(0, 2, 102.0, 3))
    purse.add(Slice(0, 1, 101.0, 3))
    purse.spend(4)
    assert purse.take_out(9, 0) == [(2, 2)]
    purse.add(Slice(0, 1, 101.0, 1))
    purse.add(Slice(0, 1, 100.5, 1))
    clock.now = 100.9
    assert purse.permits == 2
    clock.now = 101.0
    assert purse.permits == 0


def test_alone_a_node_gives_itself_a_part(clock: Clock) -> None:
    """Once in each window, by its own clock."""
    counter = counter_of(clock)
    for _ in range(3):
        counter.mint(4)
    assert counter.purse.permits == 4
    counter.spend(4, clock.now)
    clock.now += 0.9
    counter.mint(4)
    assert counter.purse.permits == 0
    clock.now += 0.1
    counter.mint(4)
    assert counter.purse.permits == 4
