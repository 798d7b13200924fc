"""account_settle: health, cooling, the floor, recovery by one probe, jars; operators; sessions that are over."""

from __future__ import annotations

import pytest

from scrapy_lease.store.pool_scripts import Backoff, Lease, Verdict
from tests.helpers.servers import Server
from tests.lua.account_bed import BACKOFF, DAY, MINUTE, SECOND, SITE, AccountBed, Member


@pytest.fixture
def bed(server: Server) -> AccountBed:
    return AccountBed(server)


@pytest.fixture
def six(bed: AccountBed) -> tuple[Member, list[Lease]]:
    """A session that holds six accounts, which are all there are."""
    bed.add(*"uvwxyz")
    one = bed.member()
    return one, list(one.get(6))


# success rate


@pytest.mark.parametrize(
    ("results", "answer"),
    [("-" * 19, "+"), ("+" * 17 + "---", "!"), ("+" * 18 + "--", "+"), ("-" * 3 + "+" * 17, "!")],
)
def test_the_success_rate_counts_from_twenty_uses_on(
    six: tuple[Member, list[Lease]], results: str, answer: str
) -> None:
    """Below nine of ten over twenty uses an account is demoted, at nineteen uses not, and at nine of ten not."""
    one, leases = six
    assert one.uses(leases[0], results) == answer


def test_uses_of_several_words_and_holders_add_up(bed: AccountBed) -> None:
    """What one session saw goes on with the next: the twentieth use decides, whoever had the ones before."""
    bed.add(*"xyz")
    one, two = bed.member("a"), bed.member("b")
    lease = one.one()
    assert one.uses(lease, "+" * 10 + "---") == "+"
    one.back(lease)
    lease = two.one()
    assert lease.id == "x"
    assert two.uses(lease, "+" * 6) == "+"
    assert two.uses(lease, "+") == "!"


def test_the_rate_rolls(six: tuple[Member, list[Lease]]) -> None:
    """Old faults are forgotten, and old merits too."""
    one, leases = six
    assert one.uses(leases[0], "--" + "+" * 60 + "-----") == "+"
    assert one.uses(leases[1], "+" * 1000) == "+"
    assert one.uses(leases[1], "-" * 6) == "!"


def test_a_demoted_account_is_left_alone_when_it_comes_back(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """It stays its holder's until that gives it back; then it rests, and is cold after that."""
    one, leases = six
    one.uses(leases[0], "-" * 20)
    assert bed.place("u") == "leased"
    one.back(leases[0])
    assert bed.place("u") == "bench"
    bed.pass_time(MINUTE)
    one.take()
    assert bed.place("u") == "cold"
    assert bed.events("demote") == ["u failures"]


@pytest.mark.parametrize("is_reclaimed", [True, False])
def test_who_never_heard_of_a_demotion_changes_nothing(bed: AccountBed, is_reclaimed: bool) -> None:
    """The holder died, or its next report does not name it: the account is left alone all the same."""
    bed.add(*"xyz")
    one = bed.member()
    one.uses(one.one(), "-" * 20)
    if is_reclaimed:
        bed.end("a")
        bed.reclaim("a")
    else:
        one.report()
    assert bed.place("x") == "bench"


def test_a_fault_that_all_have_benches_half_of_them(six: tuple[Member, list[Lease]]) -> None:
    """Whatever fails, half of the pool goes on; the last account is never benched for its rate."""
    one, leases = six
    assert "".join(one.uses(lease, "-" * 20) for lease in leases) == "!!!==="


def test_one_account_alone_is_not_benched(bed: AccountBed) -> None:
    """A pool of one keeps it."""
    bed.add("x")
    one = bed.member()
    assert one.uses(one.one(), "-" * 50) == "="


def test_those_on_the_bench_count_for_the_floor(bed: AccountBed) -> None:
    """Also after they were given back, and until they are back."""
    bed.add(*"uvwx")
    one = bed.member()
    leases = one.get(4)
    for lease in leases[:2]:
        assert one.uses(lease, "-" * 20) == "!"
        one.back(lease)
    assert one.uses(leases[2], "-" * 20) == "="
    bed.change("free", "u")
    assert one.uses(leases[2], "-") == "!"


# recovery


def test_recovery_by_one_probe(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """Its next use is a probe, told by its strikes: served, all is forgotten."""
    one, leases = six
    one.uses(leases[0], "-" * 20)
    one.back(leases[0])
    bed.pass_time(MINUTE)
    probe = one.one()
    assert (probe.id, probe.strikes) == ("u", 1)
    one.say(probe, "ok", SITE)
    assert one.uses(probe, "-" * 19) == "+"
    one.back(probe)
    assert one.one().strikes == 0


def test_a_probe_that_fails_doubles_the_rest(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """One failed use is enough then, and the floor does not hold: it was benched before."""
    one, leases = six
    lease, rest = leases[0], MINUTE
    for strikes in range(4):
        assert lease.strikes == strikes
        one.say(lease, "demote", "refused", BACKOFF)
        bed.pass_time(rest - 1)
        assert one.names() == []
        bed.pass_time(1)
        lease, rest = one.one(), 2 * rest


def test_what_is_known_for_certain_needs_no_floor(six: tuple[Member, list[Lease]]) -> None:
    """Accounts that cannot log in are of no use, however many they are."""
    one, leases = six
    assert "".join(one.say(lease, "demote", "logged out", BACKOFF) for lease in leases) == "++++++"
    assert one.names() == []


# cooling


def test_a_site_that_asks_for_a_pause_is_obeyed(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """The account cools for just that time, for all sessions, and is active again."""
    one, leases = six
    one.say(leases[0], "cool", 90 * SECOND)
    assert bed.place("u") == "resting"
    bed.pass_time(90 * SECOND - 1)
    assert one.names() == []
    bed.pass_time(1)
    again = one.one()
    assert (again.id, again.strikes) == ("u", 0)


def paces(*times: int) -> list[str | int]:
    """Answers that just came, each after so many ms."""
    return [part for ms in times for part in (SITE, 0, ms)]


def test_who_is_slow_while_others_are_not_cools(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """Slower than twice the median of what others were answered meanwhile."""
    one, leases = six
    bed.pass_time(10 * SECOND)
    one.uses(leases[1], "+", paces(200, 300, 400))
    assert one.say(leases[0], "slow", SITE, 0, 3000, MINUTE) == "!"
    one.back(leases[0])
    assert bed.place("u") == "resting"
    assert bed.events("cool") == ["u slow"]


def test_just_twice_the_median_is_not_too_slow(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """The limit itself is allowed."""
    one, leases = six
    bed.pass_time(10 * SECOND)
    one.uses(leases[1], "+", paces(100, 1500, 2900))
    assert one.say(leases[0], "slow", SITE, 0, 3000, MINUTE) == "+"
    assert one.say(leases[0], "slow", SITE, 0, 3001, MINUTE) == "!"


def test_a_slow_site_benches_nobody(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """It was fast until now: what was answered to others that asked before does not count against anyone."""
    one, leases = six
    bed.pass_time(60 * SECOND)
    for lease in leases:
        one.uses(lease, "+++", paces(100, 110, 120))
    bed.pass_time(4 * SECOND)
    answers = [one.say(lease, "slow", SITE, 0, 3900, MINUTE) for lease in leases]
    bed.pass_time(4 * SECOND)
    answers += [one.say(lease, "slow", SITE, 0, 4000, MINUTE) for lease in leases]
    assert set(answers) == {"+"}


def test_too_few_others_are_no_measure(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """An account's own answers, those of another site, and two of others say nothing."""
    one, leases = six
    bed.pass_time(10 * SECOND)
    one.uses(leases[0], "+++", paces(100, 100, 100))
    one.uses(leases[1], "++", [*paces(100, 100), "elsewhere", 0, 100])
    assert one.say(leases[0], "slow", SITE, 0, 3000, MINUTE) == "+"


def test_slowness_obeys_the_floor(bed: AccountBed) -> None:
    """Of two accounts one stays."""
    bed.add("x", "y")
    one = bed.member()
    leases = one.get(2)
    bed.pass_time(10 * SECOND)
    for other, lease in (leases, leases[::-1]):
        one.uses(other, "+", paces(100, 100, 100))
        answer = one.say(lease, "slow", SITE, 0, 3000, MINUTE)
    assert answer == "="


# jars


def test_the_jar_goes_on_to_the_next_holder(bed: AccountBed) -> None:
    """Any bytes, as the last holder left them; they survive the death of that one."""
    bed.add("x")
    one, two = bed.member("a"), bed.member("b")
    lease = one.one()
    assert lease.jar == b""
    assert one.say(lease, "jar", b"\x00\xff" * 400) == "+"
    bed.end("a")
    bed.reclaim("a")
    assert two.one().jar == b"\x00\xff" * 400


def test_a_stale_holder_changes_nothing(bed: AccountBed) -> None:
    """Neither jar nor results nor rest of an account that another has by now."""
    bed.add("x", "y", "z")
    one, two = bed.member("a"), bed.member("b")
    stale = one.one()
    bed.end("a")
    bed.reclaim("a")
    lease = two.one()
    assert lease.id == stale.id
    late = bed.member("a")
    before = bed.dump()
    words = [("jar", (b"evil",)), ("uses", ("-" * 20, 20, 900, BACKOFF, [])), ("cool", (MINUTE,)),
             ("demote", ("x", BACKOFF)), ("slow", (SITE, 0, 9000, MINUTE)), ("back", (0, 5, 0))]  # fmt: skip
    assert late.settle(*(Verdict(stale.id, stale.fence, verb, args) for verb, args in words)) == "-" * 6
    after = bed.dump()
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == {bed.space.session("a").encode()}


def test_a_repeated_word_counts_once(six: tuple[Member, list[Lease]]) -> None:
    """The reply was lost: ten failures are no twenty."""
    one, leases = six
    verdict = Verdict(leases[0].id, leases[0].fence, "uses", ("-" * 10, 20, 900, BACKOFF, []))
    assert [one.settle(verdict, n=1) for _ in range(3)] == ["+"] * 3
    assert one.settle(verdict, n=2) == "!"


# several holders


def test_other_holders_are_told_of_a_demotion(bed: AccountBed) -> None:
    """The place of an account follows when the last of them has given it back."""
    bed.add(*"xyz")
    one, two = bed.member("a", holders=0), bed.member("b", holders=0)
    first, second = one.one(), two.one()
    assert first.id == second.id == "x"
    one.say(first, "demote", "logged out", BACKOFF)
    assert bed.places("x") == {"leased"}
    assert two.take().recalled == ("x",)
    two.back(second)
    assert bed.place("x") == "bench"


def test_other_holders_are_told_that_an_account_is_gone(bed: AccountBed) -> None:
    """Nothing of it is left, and their words are void."""
    bed.add("x")
    one, two = bed.member("a", holders=0), bed.member("b", holders=0)
    first, second = one.one(), two.one()
    one.say(first, "gone", "deleted")
    assert bed.place("x") == "gone"
    assert two.take().recalled == ("x",)
    assert two.back(second) == "-"
    assert two.take().recalled == ()


def test_an_ailing_account_gets_no_more_holders(bed: AccountBed) -> None:
    """Its seats are taken from the moment that it is known to be bad."""
    bed.add(*"xyz")
    one, two = bed.member("a", holders=0), bed.member("b", holders=0)
    one.uses(one.one(), "-" * 20)
    assert two.names(3) == ["y", "z"]


# operators


def test_an_operator_cools_an_account(bed: AccountBed) -> None:
    """A free one at once; of one that is held its holder is told, and it cools when that gives it back."""
    bed.add("x", "y")
    one = bed.member()
    held, idle = one.get(2)
    one.back(idle)
    assert bed.cool("x", "y", "who", length=MINUTE) == "++-"
    assert (bed.place("y"), bed.place("x")) == ("resting", "leased")
    assert one.take().recalled == ("x",)
    one.back(held)
    assert bed.place("x") == "resting"
    bed.pass_time(MINUTE)
    assert sorted(one.names(2)) == ["x", "y"]


def test_an_operator_frees_an_account(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """A benched one is active at once, without a stain; one that is held after the longest time of any session."""
    one, leases = six
    one.say(leases[0], "demote", "refused", BACKOFF)
    bed.change("free", "u")
    freed = one.one()
    assert (freed.id, freed.strikes) == ("u", 0)
    bed.change("free", "u")
    assert one.take().recalled == ("u",)
    assert one.names() == []
    bed.pass_time(365 * DAY)
    bed.member("b")
    assert bed.member("c").names() == ["u"]


@pytest.mark.parametrize("state", ["cold", "free", "bench", "resting", "spent", "leased"])
def test_a_drained_account_is_handed_out_to_nobody(bed: AccountBed, state: str) -> None:
    """Wherever it is; and it is back where it belongs when the operator says so."""
    bed.add("x", "y", "z")
    one = bed.member(quota=3)
    lease = one.one() if state != "cold" else None
    words = {"free": ("back", (0, 1, lease.permits.day if lease else 0)), "bench": ("demote", ("x", BACKOFF)),
             "resting": ("cool", (MINUTE,)), "spent": ("back", (0, 0, 0))}  # fmt: skip
    if state in words:
        verb, args = words[state]
        one.settle(Verdict("x", lease.fence, verb, args))
    assert bed.place("x") == state
    assert bed.change("drain", "x") == "+"
    if state == "leased":
        one.back(lease, unspent=3)
    assert bed.place("x") == "aside"
    assert one.names(3) == ["y", "z"]
    bed.change("undrain", "x")
    assert bed.place("x") == {"leased": "free"}.get(state, state)


def test_registering_again_changes_nothing_but_the_body(bed: AccountBed, six: tuple[Member, list[Lease]]) -> None:
    """A list that is read again brings no account back from the bench, nor out of the hands of its holder."""
    one, leases = six
    one.say(leases[0], "demote", "refused", Backoff(MINUTE, DAY))
    one.say(leases[1], "jar", b"cookies")
    assert bed.add("u", "v") == "=="
    assert (bed.place("u"), bed.place("v")) == ("bench", "leased")
    one.back(leases[1])
    assert one.one().jar == b"cookies"
