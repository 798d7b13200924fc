"""pool_settle: verdicts, rests for a site and for all, probes, and what a stale holder cannot do."""

from __future__ import annotations

import pytest

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.pool_scripts import Backoff, Lease, Rest, Verdict
from scrapy_lease.store.taking import View
from tests.lua.bed import TTL
from tests.lua.pool_bed import BACKOFF, HOUR, Member, PoolBed, ids


def ban(bed: PoolBed, member: Member, site: str, *names: str) -> None:
    """Have these resources banned at a site, and given back."""
    leases = member.get(99)
    banned = [lease for lease in leases if lease.id in names]
    assert [member.say(lease, "ban", site) for lease in banned] == ["+"] * len(names)
    assert set(member.back(*leases)) == {"+"}


def test_a_stale_holder_changes_nothing(bed: PoolBed) -> None:
    """X1: what another holds now, or nobody, a former holder cannot give back, judge or take away: it is lost."""
    old, other = bed.member("old", ttl=TTL), bed.member("b", ttl=HOUR)
    bed.add("p1")
    (lease,) = old.get()
    bed.pass_time(TTL + 1)
    bed.recover("old")
    (theirs,) = other.get()
    before = bed.dump()
    for verb, args in (("back", ()), ("ban", ("shop",)), ("broken", ()), ("ok", ("shop",)), ("gone", ("x",))):
        assert old.say(lease, verb, *args) == "-"
        assert other.say(Lease("p1", lease.fence, b"", "", None, 0, {}), verb, *args) == "-"
    now = bed.dump()
    sessions = {bed.scope.namespace.session(sid).encode() for sid in ("old", "b")}
    assert {key: now[key] for key in now.keys() - sessions} == {key: before[key] for key in before.keys() - sessions}
    assert bed.member("c").get() == ()
    assert other.back(theirs) == "+"


def test_a_holder_cannot_change_the_expiry(bed: PoolBed) -> None:
    """X2: taken, judged and given back, a resource expires when its provider said."""
    member = bed.member()
    bed.add("p1", "p2", life=300_000)
    expiries = bed.client.zrange(bed.pool.key("expiries"), 0, -1, withscores=True)
    first, second = member.get(2)
    member.say(first, "ban", "shop")
    member.say(first, "ok", "shop")
    member.back(first)
    member.say(second, "broken")
    assert bed.client.zrange(bed.pool.key("expiries"), 0, -1, withscores=True) == expiries
    (lease,) = member.get()
    assert lease.life is not None
    assert 290_000 < lease.life <= 300_000


def test_a_late_verdict_counts_while_nobody_else_holds(bed: PoolBed) -> None:
    """The lease decides, not the clock: a session that is over may still say what became of what nobody took."""
    member = bed.member()
    bed.add("p1")
    (lease,) = member.get()
    bed.pass_time(TTL + 1)
    assert member.back(lease) == "+"
    assert bed.place("p1") == "free"


def test_banned_at_a_site_it_serves_others(bed: PoolBed) -> None:
    """A ban counts for its site only, and says so to whoever gets the resource for another."""
    member = bed.member()
    bed.add("p1", "p2", "p3")
    ban(bed, member, "shop", "p1")
    assert bed.place("p1") == "spotted"
    assert sorted(ids(member.get(9, "shop"))) == ["p2", "p3"]
    (lease,) = bed.member("b").get(9, "news")
    assert lease.id == "p1"
    assert lease.rests.keys() == {"shop"}
    assert 9000 < lease.rests["shop"].left <= 10_000
    assert lease.rests["shop"].strikes == 1


def test_a_rest_doubles_up_to_the_longest(bed: PoolBed) -> None:
    """Each ban in a row rests twice as long; bans while it rests already do not count."""
    member = bed.member()
    bed.add("p1", "p2", "p3")
    (lease,) = [lease for lease in member.get(9) if lease.id == "p1"]
    backoff = Backoff(10_000, 30_000)
    for length in (10_000, 20_000, 30_000, 30_000):
        assert member.say(lease, "ban", "shop", backoff) == "+"
        assert member.say(lease, "ban", "shop", backoff) == "+"
        rest = bed.client.zrange(bed.pool.key("benched"), 0, -1)
        now = int(bed.client.hget(bed.scope.namespace.clock, "now"))
        (left,) = [int(entry[5:21]) - now for entry in rest]
        assert length - 1000 < left <= length
        bed.pass_time(length + 1)
        bed.run(bed.scripts.beat("a", ttl=HOUR, node="host"))


def test_jitter_takes_up_to_a_quarter(bed: PoolBed) -> None:
    """A random share spreads the ends of rests."""
    member = bed.member()
    bed.add("p1")
    (lease,) = member.get()
    member.say(lease, "broken", Backoff(10_000, 60_000, 1000))
    now = int(bed.client.hget(bed.scope.namespace.clock, "now"))
    assert now + 7000 < bed.client.zscore(bed.pool.key("resting"), "p1") <= now + 7500


def test_a_probe_decides_the_return_to_a_site(bed: PoolBed) -> None:
    """When its rest is over one session gets it, ahead of others; what it says of it ends the rest or doubles it."""
    member, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add("p1", "p2", "p3", "p4")
    ban(bed, member, "shop", "p1", "p2")
    bed.pass_time(10_001)
    first, second = member.get(2, "shop")
    probe, plain = (first, second) if first.rests else (second, first)
    assert (probe.rests, plain.rests) == ({"shop": Rest(0, 1)}, {})
    (again,) = other.get(1, "shop")
    assert {probe.id, again.id} == {"p1", "p2"}
    assert member.say(probe, "ok", "shop") == other.say(again, "ban", "shop") == "+"
    member.back(probe)
    other.back(again)
    assert (bed.place(probe.id), bed.place(again.id)) == ("free", "spotted")
    assert sorted(ids(member.get(9, "shop"))) == sorted({"p3", "p4", probe.id} - {plain.id})


def test_a_broken_one_rests_for_all(bed: PoolBed) -> None:
    """A broken resource serves nobody until its rest is over; its next use is a probe, which doubles or ends it."""
    member = bed.member(ttl=HOUR)
    bed.add("p1")
    (lease,) = member.get()
    assert member.say(lease, "broken") == "+"
    assert bed.place("p1") == "resting"
    assert member.get() == ()
    bed.pass_time(10_000)
    (probe,) = member.get()
    assert probe.strikes == 1
    member.say(probe, "broken")
    bed.pass_time(10_000)
    assert member.get() == ()
    bed.pass_time(10_000)
    (probe,) = member.get()
    assert probe.strikes == 2
    member.say(probe, "ok", "")
    member.back(probe)
    assert member.get()[0].strikes == 0


def test_banned_at_many_sites_it_is_the_resource(bed: PoolBed) -> None:
    """A resource that rests for three sites at once rests for all, once it is given back; its next use is a probe."""
    member = bed.member(ttl=HOUR)
    bed.add(*range(9))
    (lease,) = member.get()
    assert [member.say(lease, "ban", site) for site in ("a", "b", "c")] == ["+", "+", "!"]
    assert bed.place(lease.id) == "leased"
    assert member.back(lease) == "+"
    assert bed.place(lease.id) == "resting"
    assert bed.events()[-1]["why"] == "sites"
    bed.pass_time(10_000)
    assert {each.id: each.strikes for each in member.get(9)}[lease.id] == 1


def test_what_is_banned_everywhere_stays_with_who_may_not_know(bed: PoolBed) -> None:
    """The holder, which may have heard no answer, is the only one to have it, for as long as its rest and after."""
    member, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add(*range(9))
    (lease,) = member.get()
    bans = [Verdict(lease.id, lease.fence, "ban", (site, BACKOFF)) for site in ("a", "b", "c", "d")]
    assert member.settle(*bans) == "++!!"
    bed.pass_time(10_001)
    assert lease.id not in ids(other.get(9))
    assert member.report(lease) == [lease.fence]
    assert member.back(lease) == "+"
    assert ids(other.get(9)) == [lease.id]


def test_what_is_banned_everywhere_rests_also_when_its_holder_dies(bed: PoolBed) -> None:
    """The lease ends with the session, and then the resource rests until less than three sites are left."""
    member, other = bed.member("a"), bed.member("b", ttl=HOUR)
    bed.add(*range(9))
    (lease,) = member.get()
    for site, first in (("a", 68_000), ("b", 69_000), ("c", 67_000), ("d", 90_000)):
        member.say(lease, "ban", site, Backoff(first, first))
    bed.pass_time(TTL)
    assert bed.recover("a") == (1, 0)
    assert bed.place(lease.id) == "resting"
    bed.pass_time(68_000 - TTL - 500)
    assert lease.id not in ids(other.get(9))
    bed.pass_time(500)
    assert ids(other.get(9)) == [lease.id]


def test_a_site_ejects_at_most_half_a_pool(bed: PoolBed) -> None:
    """A ban that would eject more than half pauses the site; the pool stays whole, and other sites notice nothing."""
    member = bed.member(ttl=HOUR)
    bed.add("p1", "p2", "p3", "p4")
    leases = member.get(4)
    assert [member.say(lease, "ban", "shop") for lease in leases] == ["+", "+", "=", "="]
    member.back(*leases)
    taken = member.take(("shop", 1), ("news", 4))
    assert len(taken.leases) == 4
    assert 9000 < taken.pauses[0] <= 10_000
    assert taken.pauses[1] == 0


def test_one_probe_decides_on_a_paused_site(bed: PoolBed) -> None:
    """After the pause one session gets one lease for the site; a ban doubles the pause, an answer ends it."""
    member, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add("p1", "p2")
    leases = member.get(2)
    assert [member.say(lease, "ban", "shop") for lease in leases] == ["+", "="]
    member.back(*leases)
    bed.pass_time(10_001)
    taken = member.take(("shop", 2))
    assert len(taken.leases) == 1
    waiting = other.take(("shop", 2))
    assert waiting.leases == ()
    assert 0 < waiting.pauses[0] <= 1000
    again = member.take(("shop", 2))
    assert (again.leases, again.pauses) == ((), (-1,))
    assert member.say(taken.leases[0], "ban", "shop") == "="
    member.back(*taken.leases)
    assert 19_000 < other.take(("shop", 2)).pauses[0] <= 20_000
    bed.pass_time(20_001)
    (probe,) = other.get(2, "shop")
    assert other.say(probe, "ok", "shop") == "+"
    assert other.take(("shop", 0)).pauses == (0,)


def test_a_prober_that_gave_its_lease_back_gets_another(bed: PoolBed) -> None:
    """What was leased for a probe and could not be used for it does not keep the site paused."""
    member = bed.member("a", ttl=HOUR)
    bed.add("p1", "p2")
    leases = member.get(2)
    for lease in leases:
        member.say(lease, "ban", "shop")
    member.back(*leases)
    bed.pass_time(10_001)
    member.back(*member.get(1, "shop"))
    assert len(member.get(2, "shop")) == 1


def test_a_probe_that_nobody_answers_for_is_repeated(bed: PoolBed) -> None:
    """The prober of a site died: half a minute later another may probe."""
    member, other = bed.member("a"), bed.member("b", ttl=HOUR)
    bed.add("p1", "p2")
    leases = member.get(2)
    for lease in leases:
        member.say(lease, "ban", "shop", Backoff(1000, 1000))
    member.back(*leases)
    bed.pass_time(1001)
    assert len(member.get(1, "shop")) == 1
    bed.pass_time(30_001)
    assert len(other.get(1, "shop")) == 1


@pytest.mark.parametrize("verb", ["hang", "broken", "gone"])
def test_a_pool_is_silent_from_the_first_failure_that_no_answer_follows(bed: PoolBed, verb: str) -> None:
    """Further failures, of whomever, do not begin it anew; an answer, of whomever, ends it."""
    args = {"hang": ("shop",), "gone": ("broken",)}.get(verb, ())
    member, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add(*range(9))
    first, second, third = member.get(3)
    assert member.take().standing.silent == 0
    member.say(first, verb, *args)
    bed.pass_time(5000)
    (theirs,) = other.get()
    other.say(theirs, verb, *args)
    assert 5000 <= member.take().standing.silent < 6000
    assert other.take(answered=7000).standing.silent >= 5000
    assert other.take(answered=1000).standing.silent == 0
    assert member.take(answered=9000).standing.silent == 0
    member.say(second, verb, *args)
    bed.pass_time(2000)
    assert 2000 <= other.take().standing.silent < 3000
    member.say(third, "ban", "news")
    assert other.take(answered=0).standing.silent == 0
    member.say(third, "ban", "shop")
    assert other.take().standing.silent == 0


def test_a_site_that_refuses_all_does_not_make_the_pool_silent(bed: PoolBed) -> None:
    """While it is paused for that a probe without an answer is not counted; a second one in a row is."""
    member = bed.member(ttl=HOUR)
    bed.add("p1", "p2")
    leases = member.get(2)
    assert [member.say(lease, "ban", "shop") for lease in leases] == ["+", "="]
    member.back(*leases)
    silent = []
    for _ in range(2):
        bed.pass_time(20_001)
        (probe,) = member.get(1, "shop")
        assert member.say(probe, "hang", "shop") == "="
        silent.append(member.take().standing.silent)
        member.back(probe)
    assert silent[0] == 0 < silent[1]


def test_how_it_served_goes_with_the_lease(bed: PoolBed) -> None:
    """The next holder is told when a site was served last, and of a suspicion; a ban ends that, `free` both."""
    member, other = bed.member("a", ttl=HOUR), bed.member("b", ttl=HOUR)
    bed.add(*range(9))
    bed.change("drain", *range(1, 9))
    (lease,) = member.get()
    assert member.say(lease, "view", "shop", 1, "") == member.say(lease, "view", "shop", 0, "/x") == "+"
    member.say(lease, "view", "news", 0, "/y")
    member.back(lease)
    bed.pass_time(2000)
    (lease,) = other.get()
    assert (lease.views["news"], lease.views["shop"].suspect) == (View(None, "/y"), "/x")
    assert 2000 <= lease.views["shop"].served < 3000
    other.say(lease, "ban", "shop")
    other.say(lease, "view", "news", 0, "")
    other.back(lease)
    (lease,) = member.get()
    assert [(site, view.suspect) for site, view in lease.views.items()] == [("shop", "")]
    assert member.say(lease, "back") == "+"
    bed.change("free", "0")
    assert member.get()[0].views == {}


def test_so_many_sites_are_kept(bed: PoolBed) -> None:
    """Of too many the one that was served longest ago is forgotten, suspicions last."""
    member = bed.member(ttl=HOUR)
    bed.add("p1")
    (lease,) = member.get()
    member.say(lease, "view", "suspect", 0, "/x")
    for number in range(40):
        member.say(lease, "view", f"s{number}", 1, "")
        bed.pass_time(1000)
    member.back(lease)
    assert set(member.get()[0].views) == {"suspect", *(f"s{number}" for number in range(9, 40))}


def test_gone_is_gone(bed: PoolBed) -> None:
    """A resource of no more use leaves no trace; registered again it is new."""
    member = bed.member()
    bed.add("p1", life=HOUR)
    (lease,) = member.get()
    member.say(lease, "ban", "shop")
    assert member.say(lease, "gone", "refused") == "+"
    parts = ("resources", "leases", "held", "expiries", "rests", "benched", "free", "spotted")
    assert not any(bed.client.exists(bed.pool.key(part)) for part in parts)
    assert bed.add("p1") == "+"
    assert member.get()[0].rests == {}


def test_entries_of_one_call_come_in_turn(bed: PoolBed) -> None:
    """Several verdicts on one resource count one after the other, none after its lease ended."""
    member = bed.member()
    bed.add("p1", "p2")
    lease = member.get(1)[0]
    verbs = (("ban", ("shop", BACKOFF)), ("back", (0,)), ("broken", (BACKOFF,)))
    assert member.settle(*(Verdict(lease.id, lease.fence, verb, args) for verb, args in verbs)) == "++-"
    assert bed.place(lease.id) == "spotted"


def test_a_repeated_settle_changes_nothing(bed: PoolBed) -> None:
    """The last number again gives the same answer; a lower one is refused."""
    member, other = bed.member("a"), bed.member("b")
    bed.add("p1")
    (lease,) = member.get()
    assert member.say(lease, "back", n=1) == "+"
    (theirs,) = other.get()
    assert member.say(lease, "back", n=1) == "+"
    assert bed.holder("p1") == "b"
    member.say(theirs, "back", n=2)
    with pytest.raises(StoreRefused, match="older"):
        member.say(lease, "back", n=1)
    assert bed.holder("p1") == "b"


def test_a_word_under_an_old_fence_acknowledges_nothing(bed: PoolBed) -> None:
    """A holder that is asked to give back, and speaks of an earlier lease, still holds: it is asked again."""
    member, other = bed.member("a"), bed.member("b", ttl=2 * TTL)
    bed.add("p1")
    (old,) = member.get()
    member.back(old)
    member.get()
    bed.change("revoke", "p1")
    assert member.back(old) == "-"
    assert member.take().recalled == ("p1",)
    bed.pass_time(TTL)
    assert other.take().standing.expired == "a"
    assert bed.recover("a") == (1, 0)
    assert bed.place("p1") == "aside"


def test_large_batches(bed: PoolBed) -> None:
    """More resources than one command takes as arguments are taken and given back in one call."""
    member = bed.member()
    names = [str(number) for number in range(9000)]
    assert bed.add(*names) == "+" * 9000
    leases = member.get(8500)
    assert len(set(ids(leases))) == 8500
    assert member.back(*leases) == "+" * 8500
    assert member.take().standing.free == 9000
