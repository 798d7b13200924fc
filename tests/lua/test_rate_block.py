"""rate_block, rate_look: pauses that sites ask for, one step per event; what sessions tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.servers import Server
from tests.lua.rate_bed import HOUR, SECOND, RateBed
from tests.state.pool_wire import run

FIRST, LONGEST = 5 * SECOND, 900 * SECOND


@pytest.fixture
def bed(server: Server) -> Iterator[RateBed]:
    return RateBed(server)


def block(bed: RateBed, address: str = "10.0.0.1", wait: int = 0, **options: Any) -> tuple[int, int]:
    chosen = {"first": FIRST, "longest": LONGEST, "share": 0, "escalate": 5, **options}
    return run(bed.rates.block(f"ip {address} shop", "site shop", address, wait=wait, **chosen))


def blocked(bed: RateBed) -> dict[str, float]:
    return run(bed.rates.look("nobody", "{}", keep=SECOND, waits=""))[0]


def pass_time(bed: RateBed, seconds: float) -> None:
    """Let both clocks go on; the lease clock takes a second of each look at most."""
    for _ in range(int(seconds)):
        bed.pass_time(SECOND)
        blocked(bed)


def test_a_pause_is_as_long_as_was_asked_for(bed: RateBed) -> None:
    """Of the address at the site, and of nothing else; then it is over."""
    assert block(bed, wait=20 * SECOND) == (20 * SECOND, 0)
    assert blocked(bed) == {"ip 10.0.0.1 shop": 20.0}
    pass_time(bed, 19)
    assert blocked(bed) == {"ip 10.0.0.1 shop": 1.0}
    pass_time(bed, 1)
    assert blocked(bed) == {}


def test_eight_answers_at_once_are_one_event(bed: RateBed) -> None:
    """Without a time: the first pause, not eight steps of it; with one: the longest that was asked for."""
    assert [block(bed)[0] for _ in range(8)] == [FIRST] * 8
    assert [block(bed, wait=wait * SECOND)[0] for wait in (3, 9, 6)] == [FIRST, 9 * SECOND, 9 * SECOND]


def test_pauses_in_a_row_double(bed: RateBed) -> None:
    """Up to the longest; after a quiet time they begin anew."""
    lengths = []
    for _ in range(5):
        length = block(bed, longest=30 * SECOND)[0]
        lengths.append(length // SECOND)
        pass_time(bed, length // SECOND)
    assert lengths == [5, 10, 20, 30, 30]
    pass_time(bed, 200)
    assert block(bed)[0] == FIRST


def test_a_part_of_it_is_left_to_chance(bed: RateBed) -> None:
    """A quarter at most, so that not all hosts come back at once."""
    assert block(bed, share=1000)[0] == 0.75 * FIRST


def test_enough_addresses_within_a_minute_are_the_site(bed: RateBed) -> None:
    """The fifth; the same one again is no other, and what is long ago does not count."""
    for number in (1, 2, 3, 4, 4, 4):
        assert block(bed, f"10.0.0.{number}")[1] == 0
    pass_time(bed, 61)
    assert block(bed, "10.0.0.5")[1] == 0
    for number in (1, 2, 3):
        assert block(bed, f"10.0.0.{number}", wait=7 * SECOND)[1] == 0
    assert block(bed, "10.0.0.4", wait=7 * SECOND)[1] == 7 * SECOND
    assert blocked(bed)["site shop"] == 7.0


def test_a_stepped_clock_ends_no_pause(bed: RateBed) -> None:
    """It lies on the lease clock: an hour's step is a second of it."""
    block(bed, wait=20 * SECOND)
    bed.pass_time(HOUR)
    assert blocked(bed) == {"ip 10.0.0.1 shop": 19.0}


def test_what_others_limit_is_heard_of_while_they_live(bed: RateBed) -> None:
    """Each text once, however many say it, and not one's own; for as long as it was told to count."""

    def look(sid: str, spec: str) -> list[str]:
        return run(bed.rates.look(sid, spec, keep=3 * SECOND, waits=""))[1]

    assert look("a", "one") == []
    assert look("b", "two") == ["one"]
    assert look("c", "two") == ["one"]
    for _ in range(3):
        bed.pass_time(SECOND)
        others = look("a", "one")
    assert others == []


def test_what_waits_is_kept_with_its_session(bed: RateBed) -> None:
    """Until it is told that nothing does; of a session that there is not nothing is kept."""
    bed.session("a")
    for sid in ("a", "none"):
        run(bed.rates.look(sid, "one", keep=SECOND, waits="[]"))
    assert bed.client.hget(bed.space.session("a"), "waits") == b"[]"
    assert not bed.client.exists(bed.space.session("none"))
    run(bed.rates.look("a", "one", keep=SECOND, waits=""))
    assert bed.client.hmget(bed.space.session("a"), "waits", "waited") == [None, None]
