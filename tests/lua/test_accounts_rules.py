"""Rules of accounts in the store that only show where several of them meet: an operator's word, a lost tail, seats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scrapy_lease.store.pool_scripts import Lease
from tests.helpers.servers import Server
from tests.lua.account_bed import BACKOFF, DAY, HOUR, MINUTE, SECOND, SITE, AccountBed, Member

BAD = "-" * 30
TTL = 5 * SECOND


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


def ailing(bed: AccountBed) -> int:
    """How many of those that are held are to be left alone, as the floor counts them."""
    return int(bed.client.hget(bed.pool.key("meta"), "ailing") or 0)


def freed(bed: AccountBed, ill: Callable[[Member, Lease], object] = lambda one, lease: None) -> Member:
    """An operator freed ``x`` while it was held, with *ill* before; its holder never heard of it and is over."""
    bed.add("x", "y", "z")
    one = bed.member("a", ttl=TTL)
    ill(one, one.one())
    assert bed.change("free", "x") == "+"
    bed.pass_time(TTL)
    return bed.member("b")


# an operator


def test_what_was_freed_while_it_was_held_is_waited_for(bed: AccountBed) -> None:
    """Its holder may not have heard of it: until its session is over for certain no word of an operator counts."""
    bed.add("x")
    bed.member("a", ttl=TTL).one()
    bed.change("free", "x")
    assert bed.cool("x", length=1) == "="
    assert bed.place("x") == "resting"
    bed.pass_time(TTL - 1)
    two = bed.member("b")
    assert two.names() == []
    bed.pass_time(1)
    assert two.names() == ["x"]


def test_the_doubt_ends_with_that_rest(bed: AccountBed) -> None:
    """Of one that was freed once, and rests for another reason later, an operator's word counts."""
    two = freed(bed)
    bed.client.zadd(bed.pool.key("free"), {"y": 1e15, "z": 1e15})
    two.say(two.one(), "cool", MINUTE)
    assert bed.place("x") == "resting"
    assert bed.cool("x", length=HOUR) == "+"


def test_who_is_freed_is_without_a_stain(bed: AccountBed) -> None:
    """What failed before does not count, it is active, and it is not counted as ailing any more."""
    two = freed(bed, lambda one, lease: one.uses(lease, BAD))
    assert ailing(bed) == 0
    two.take()
    assert bed.place("x") == "free"


def test_old_failures_are_forgotten_with_a_word(bed: AccountBed) -> None:
    """Nineteen failures, freed, one more: that is one."""
    two = freed(bed, lambda one, lease: one.uses(lease, "-" * 19))
    (lease,) = (each for each in two.get(3) if each.id == "x")
    assert two.uses(lease, "-") == "+"


@pytest.mark.parametrize("is_held", [True, False])
def test_the_longest_of_two_rests_holds(bed: AccountBed, is_held: bool) -> None:
    """An hour, and then a minute, is an hour; it is counted once."""
    bed.add("x", "y")
    one = bed.member()
    lease = one.one()
    if not is_held:
        one.back(lease)
    bed.cool(lease.id, length=HOUR)
    bed.cool(lease.id, length=MINUTE)
    assert ailing(bed) == is_held
    if is_held:
        one.back(lease)
    assert ailing(bed) == 0
    bed.pass_time(HOUR - 1)
    assert lease.id not in one.names(2)
    bed.pass_time(1)
    assert lease.id in one.names(2)


def test_an_interval_holds_over_a_drain(bed: AccountBed) -> None:
    """When it is next used is of the account, wherever it was meanwhile."""
    bed.add("x")
    one = bed.member(interval=MINUTE)
    one.back(one.one(), delay=MINUTE)
    bed.change("drain", "x")
    bed.change("undrain", "x")
    bed.pass_time(MINUTE - 1)
    assert one.names() == []
    bed.pass_time(1)
    assert one.names() == ["x"]


# what is gone, and comes again


def test_what_is_gone_is_forgotten(bed: AccountBed) -> None:
    """Registered again it is new: with its quota, without a jar, without failures, and nobody is counted as ailing."""
    bed.add("x", "y", "z")
    one = bed.member(quota=20)
    lease = one.one()
    one.say(lease, "jar", b"cookies")
    one.more(lease)
    assert one.uses(lease, BAD) == "!"
    one.say(lease, "gone", "deleted")
    assert ailing(bed) == 0
    bed.add("x")
    assert bed.place("x") == "cold"
    (again,) = (each for each in one.get(3) if each.id == "x")
    assert (again.permits.count, again.permits.used, again.jar) == (10, 10, b"")


# seats


@pytest.mark.parametrize("why", ["slow", "cold"])
def test_a_seat_that_comes_free_of_an_ailing_account_serves_nobody(bed: AccountBed, why: str) -> None:
    """It is left alone, or is cold, while another has it still; who said so is not told that it is to be given back."""
    bed.add("x", "y", "z", "v")
    one, two, three = (bed.member(sid, holders=3) for sid in "abc")
    (mine,) = (lease for lease in one.get(4) if lease.id == "x")
    (its,) = (lease for lease in two.get(4) if lease.id == "x")
    if why == "cold":
        assert one.uses(mine, BAD) == "!"
        bed.pass_time(2 * MINUTE)
    else:
        bed.cool("x", length=HOUR)
        one.take()
    two.back(its)
    assert bed.places("x") == {"leased"}
    assert "x" not in three.names(4)
    assert one.take().recalled == (() if why == "cold" else ("x",))


def test_who_comes_at_the_same_moment_is_behind_who_waited(bed: AccountBed) -> None:
    """One that waits, and was there before the account came back, has it, even within a millisecond."""
    bed.add("x")
    one, two, three = (bed.member(sid) for sid in "abc")
    lease = one.one()
    assert two.names() == []
    one.back(lease)
    assert three.names() == []
    assert two.names() == ["x"]


# a server that lost its tail


def test_a_seat_is_leased_anew_beside_another_holder(bed: AccountBed) -> None:
    """The server does not know of the second one, whose place is free there."""
    bed.add("x")
    one, two = (bed.member(sid, holders=2) for sid in "ab")
    first, second = one.one(), two.one()
    bed.client.hset(bed.pool.key("leases"), "x", bed.client.hget(bed.pool.key("leases"), "x").split(b"\0")[0])
    bed.client.zadd(bed.pool.key("free"), {"x": 1})
    bed.be_another_server()
    assert one.report(first) == [first.fence]
    assert two.report(second) != [0]


def test_what_is_free_there_is_leased_anew_and_active(bed: AccountBed) -> None:
    """From where the server believes it to be, active or cold; it is active when it comes back."""
    bed.add("x", "y")
    one = bed.member()
    one.back(one.one())
    before = {key: bed.client.dump(key) for key in bed.client.scan_iter(bed.pool.key("*"))}
    assert (bed.place("x"), bed.place("y")) == ("free", "cold")
    leases = one.get(2)
    for key in list(bed.client.scan_iter(bed.pool.key("*"))):
        bed.client.delete(key)
    for key, value in before.items():
        bed.client.restore(key, 0, value)
    bed.be_another_server()
    fences = one.report(*leases)
    assert (bed.place("x"), bed.place("y")) == ("leased", "leased")
    for lease, fence in zip(leases, fences, strict=True):
        one.back(replace(lease, fence=fence))
    assert (bed.place("x"), bed.place("y")) == ("free", "free")


def test_what_is_benched_there_is_lost_and_stays_cold(bed: AccountBed) -> None:
    """A report of one that was demoted meanwhile changes nothing."""
    bed.add("x", "y", "z")
    one = bed.member()
    lease = one.one()
    one.say(lease, "demote", "refused", BACKOFF)
    bed.be_another_server()
    assert one.report(lease) == [0]
    bed.pass_time(2 * MINUTE)
    one.take()
    assert bed.place("x") == "cold"


@pytest.mark.parametrize(("day", "used"), [(-1, 20), (1, 15)])
def test_what_is_told_of_another_day(bed: AccountBed, day: int, used: int) -> None:
    """Of one that is over it counts nothing; of a later one than the server knows it is all there was."""
    bed.add("x")
    one = bed.member(quota=40)
    lease = one.one()
    today = lease.permits.day
    bed.be_another_server()
    if day > 0:
        bed.pass_time(DAY)
    one.report(lease, told=[(5, today + day * DAY)])
    assert one.more(lease).used == used


# the floor, and who is slow


def test_what_rests_counts_for_the_floor(bed: AccountBed) -> None:
    """Half of the pool stays in use, whatever the others rest for."""
    bed.add(*"uvwxyz")
    one = bed.member()
    leases = one.get(6)
    for lease in leases[:3]:
        one.say(lease, "cool", HOUR)
    assert one.uses(leases[3], BAD) == "="
    assert one.say(leases[4], "cool", HOUR) == "+"


def test_others_count_that_asked_after_one_did(bed: AccountBed) -> None:
    """Not those that asked before, and were answered meanwhile: the site may have been fast until then."""
    bed.add(*"uvwxyz")
    one = bed.member()
    leases = one.get(6)
    bed.pass_time(MINUTE)
    for age, answer in ((4950, "+"), (4850, "!")):
        one.uses(leases[1], "+++", [SITE, age, 100] * 3)
        assert one.say(leases[0], "slow", SITE, 0, 5000, MINUTE) == answer


def test_of_a_site_the_last_answers_are_kept(bed: AccountBed) -> None:
    """As many as a median needs, and not of all times."""
    bed.add("x", "y", "z")
    one = bed.member()
    lease = one.one()
    bed.pass_time(MINUTE)
    for _ in range(3):
        one.uses(lease, "+", [SITE, 0, 100] * 30)
    (packed,) = bed.client.hvals(bed.pool.key("paces"))
    assert len(msgspec.msgpack.decode(packed)) == 64


def test_the_median_is_of_sorted_answers(bed: AccountBed) -> None:
    """In whatever order they came."""
    bed.add(*"uvwxyz")
    one = bed.member()
    leases = one.get(6)
    bed.pass_time(MINUTE)
    one.uses(leases[1], "+++", [SITE, 0, 100, SITE, 0, 5000, SITE, 0, 200])
    assert one.say(leases[0], "slow", SITE, 0, 6000, MINUTE) == "!"


def test_a_slow_answer_is_an_answer(bed: AccountBed) -> None:
    """What others are held against: three that were slow, and one that was more than twice as slow."""
    bed.add(*"uvwxyz")
    one = bed.member()
    leases = one.get(6)
    bed.pass_time(MINUTE)
    assert [one.say(lease, "slow", SITE, 0, 4000, MINUTE) for lease in leases[:3]] == ["+"] * 3
    assert one.say(leases[3], "slow", SITE, 0, 9000, MINUTE) == "!"


def test_who_ails_is_told_so_again(bed: AccountBed) -> None:
    """Until it is given back: what it does meanwhile neither counts against it nor saves it."""
    bed.add(*"uvwxyz")
    one = bed.member()
    lease = one.one()
    assert one.uses(lease, BAD) == "!"
    assert one.uses(lease, "+" * 30) == one.uses(lease, BAD) == one.say(lease, "slow", SITE, 0, 1, 1) == "!"
    one.back(lease)
    assert bed.events("demote") == ["u failures"]
    bed.pass_time(2 * MINUTE)
    (again,) = (each for each in one.get(6) if each.id == "u")
    assert again.strikes == 1
    assert one.uses(again, "-") == "+"


@pytest.mark.parametrize("word", [("cool", MINUTE), ("demote", "refused", BACKOFF)])
def test_permits_go_back_with_every_end(bed: AccountBed, word: tuple[Any, ...]) -> None:
    """However a lease ends, what was not spent of its day is the next holder's."""
    bed.add("x")
    one = bed.member(quota=10)
    lease = one.one()
    one.say(lease, *word, 7, lease.permits.day)
    bed.pass_time(2 * MINUTE)
    assert one.one().permits.count == 7


def test_what_an_operator_asked_for_outlasts_what_the_site_asks_for(bed: AccountBed) -> None:
    """Of two rests the longer holds when the lease ends with the shorter."""
    bed.add("x")
    one = bed.member()
    lease = one.one()
    bed.cool("x", length=HOUR)
    one.say(lease, "cool", MINUTE)
    bed.pass_time(HOUR - 1)
    assert one.names() == []
    bed.pass_time(1)
    assert one.names() == ["x"]


def test_all_holders_give_back_what_is_to_cool(bed: AccountBed) -> None:
    """The site asked one of them to wait."""
    bed.add("x")
    one, two = (bed.member(sid, holders=2) for sid in "ab")
    mine, its = one.one(), two.one()
    one.say(mine, "cool", HOUR)
    assert two.take().recalled == ("x",)
    two.back(its)
    assert bed.place("x") == "resting"
