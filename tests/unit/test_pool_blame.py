"""Who is to blame, and what is said of them to the store."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.pool.blame import Blame, Refusals, sentence_of
from scrapy_lease.leases.pool.options import Judgement, PoolOptions
from scrapy_lease.leases.pool.shelf import Lease, Rest, Shelf, Use
from scrapy_lease.leases.pool.sites import Sites
from tests.unit.pool_parts import OTHER, SITE, Clock, granted, open_session


class Court:
    """Three leases, and what was said of them; it is the bench of a `Blame`."""

    def __init__(self, known: int = 10, names: str = "abc", **options: Any) -> None:
        self.clock = Clock()
        self.options = PoolOptions("default", **{"concurrency": 9, "backoff": (30.0, 100.0), **options})
        self.session = open_session()
        self.shelf = Shelf(self.options, self.session, self.clock)
        self.leases = [self.shelf.add(granted(name), self.clock.now) for name in names]
        self.sites = Sites(self.clock)
        self.known = known
        self.is_useful = True
        self.is_more_to_try = False
        self.said: list[tuple[str, str, tuple[Any, ...]]] = []
        self.parted: list[tuple[str, str, tuple[Any, ...]]] = []
        self.viewed: list[tuple[str, str, bool, str]] = []
        self.counted: list[str] = []
        self.blame = Blame(self.options, self.sites, self, self.clock)

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        self.said.append((lease.id, verb, args))

    def tell_view(self, lease: Lease, site: str, *, is_serving: bool) -> None:
        self.viewed.append((lease.id, site, is_serving, lease.suspects.get(site, "")))
        lease.told.add(site)

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        self.parted.append((lease.id, verb, args))
        self.shelf.part(lease, verb, args)

    def is_of_use(self, lease: Lease) -> bool:
        return self.is_useful

    def has_untried(self, site: str) -> bool:
        return self.is_more_to_try

    def count(self, what: str) -> None:
        self.counted.append(what)

    def use(self, lease: Lease, site: str = SITE) -> Use:
        is_probe = self.shelf.begin(lease, site)
        return Use(lease, site, self.session.epoch, self.sites.begin(site) or is_probe)

    def judge(self, lease: Lease, kind: Any, url: str = "", refusals: Refusals | None = None, **options: Any) -> str:
        """Judge a use that begins and ends here."""
        use = self.use(lease, options.pop("site", SITE))
        return self.blame.judge(use, Judgement(kind, url, **options), refusals)

    @property
    def banned(self) -> list[str]:
        """Who was banned, in order."""
        return [name for name, verb, _ in self.said if verb in ("ban", "hang")]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("ok", "pass"), ("target", "pass"), ("unused", "pass"), ("back", "pass"), ("ban", "again"), ("hang", "again"),
        ("broken", "again"), ("expired", "again"), ("limited", "again"), ("logged_out", "again"),
    ],
)  # fmt: skip
def test_sentences(kind: str, sentence: str) -> None:
    """What says something of the lease or the account goes out again, everything else goes on."""
    court = Court()
    assert court.judge(court.leases[0], kind) == sentence_of(kind) == sentence


@pytest.mark.parametrize("kind", ["ok", "target", "logged_out", "unused", "back"])
def test_no_word_about_a_good_lease(kind: str) -> None:
    """What says nothing new of a lease is not told to the store."""
    court = Court()
    court.judge(court.leases[0], kind)
    assert not court.said
    assert not court.parted


@pytest.mark.parametrize(
    ("story", "bans"),
    [
        ("x1", 0), ("x1 x1", 0), ("x1 x2", 1), ("x1 ok x2", 0), ("x1 ok x2 x3", 1), ("x1 target x2", 1),
        ("x1 back x2", 1), ("x1 x1 x2", 1), ("x x", 1),
    ],
)  # fmt: skip
def test_two_refusals_in_a_row_are_a_ban(story: str, bans: int) -> None:
    """One refusal is a suspicion; a second of another URL, with nothing served between, is a ban."""
    court = Court()
    for event in story.split():
        kind, url = ("ban", event[1:]) if event.startswith("x") else (event, "/1")
        court.judge(court.leases[0], kind, url)
    assert len(court.banned) == bans


def test_suspicions_are_of_a_lease_at_a_site() -> None:
    """Refusals of different leases, or at different sites, do not add up."""
    court = Court()
    for lease in court.leases:
        for site in (SITE, OTHER):
            court.judge(lease, "ban", f"{site}/{lease.id}", site=site)
    assert not court.banned


def test_a_ban_is_for_the_site_and_doubles() -> None:
    """The rest lasts the first time of the backoff, doubled with each ban in a row up to the longest."""
    court = Court()
    lease = court.leases[0]
    for strikes, whole in enumerate((30, 60, 100, 100), 1):
        court.judge(lease, "hang")
        name, verb, (site, first, longest, share) = court.said[-1]
        assert (name, verb, site, first, longest) == ("a", "hang", SITE, 30_000, 100_000)
        assert 0 <= share <= 1000
        assert lease.rests[SITE].strikes == strikes
        assert lease.rests[SITE].until - court.clock.now == pytest.approx(whole * (1 - share / 4000))
        court.clock.now = lease.rests[SITE].until


def test_what_was_under_way_does_not_lengthen_a_rest() -> None:
    """Several requests that hang together ban once; one that is served late does not end the rest."""
    court = Court()
    lease = court.leases[0]
    uses = [court.use(lease) for _ in range(4)]
    for use in uses[:3]:
        court.blame.judge(use, Judgement("hang"), None)
    until = lease.rests[SITE].until
    court.blame.judge(uses[3], Judgement("ok"), None)
    assert court.banned == ["a"]
    assert lease.rests[SITE].until == until
    assert [verb for _, verb, _ in court.said] == ["hang"]


def test_a_banned_lease_without_other_work_goes_back() -> None:
    """What this process cannot use any more is given back, with the ban said before."""
    court = Court()
    court.is_useful = False
    court.judge(court.leases[0], "hang")
    assert court.banned == ["a"]
    assert court.parted == [("a", "back", (0,))]


@pytest.mark.parametrize(("kind", "verdict"), [("ok", "ok"), ("ban", "ban"), ("target", ""), ("unused", "")])
def test_a_probe_decides(kind: str, verdict: str) -> None:
    """After a rest: served, the rest is over and the store hears of it; refused once, it rests; else the next tells."""
    court = Court()
    lease = court.leases[0]
    lease.rests[SITE] = Rest(0, 1)
    court.judge(lease, kind, "/1")
    assert [verb for _, verb, _ in court.said] == ([verdict] if verdict else [])
    assert lease.rests[SITE].strikes == (2 if kind == "ban" else 1) if kind != "ok" else SITE not in lease.rests
    assert not lease.probes


def test_what_was_broken_and_serves_is_mended() -> None:
    """The first page after a rest for all ends the strikes, here and in the store."""
    court = Court()
    lease = court.leases[0]
    lease.strikes = 2
    court.judge(lease, "ok")
    assert court.said == [("a", "ok", (SITE,))]
    assert lease.strikes == 0


@pytest.mark.parametrize(("seconds", "rest"), [(7.5, 7500), (0.0, 30_000), (-5.0, 30_000)])
def test_a_limit_rests_as_long_as_it_says(seconds: float, rest: int) -> None:
    """retry_after is the rest, exactly; without one that makes sense it is that of a ban."""
    court = Court()
    lease = court.leases[0]
    court.judge(lease, "limited", retry_after=seconds)
    (_, _, (_, first, longest, share)) = court.said[0]
    assert (first, longest) == (rest, rest if seconds > 0 else 100_000)
    if seconds > 0:
        assert share == 0
        assert lease.rests[SITE].until - court.clock.now == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "is_minted", "verb"),
    [("broken", False, "broken"), ("broken", True, "gone"), ("hang", True, "gone"), ("expired", False, "gone")],
)
def test_what_is_of_no_use_ends(kind: str, is_minted: bool, verb: str) -> None:
    """What cannot be reached ends for all; what its provider took back, or a minted id, is gone."""
    court = Court(is_minted=is_minted)
    court.judge(court.leases[0], kind)
    assert [(name, said) for name, said, _ in court.parted] == [("a", verb)]
    assert not court.said


def refuse(court: Court, refusals: Refusals, leases: str, url: str = "/x") -> list[str]:
    by_id = {lease.id: lease for lease in court.leases}
    return [court.judge(by_id[name], "ban", url, refusals) for name in leases]


def test_a_url_refused_on_three_that_serve_is_rejected() -> None:
    """Three leases that each serve the site refused it: it is the URL, and none of them is suspected any more."""
    court = Court()
    for lease in court.leases:
        lease.serves.add(SITE)
    refusals = Refusals()
    assert refuse(court, refusals, "abc") == ["again", "again", "rejected"]
    assert not any(lease.suspects for lease in court.leases)
    assert refuse(court, Refusals(), "ab", "/y") == ["again"] * 2
    assert not court.banned


@pytest.mark.parametrize(
    ("good", "leases", "known", "last"),
    [
        ("ab", "abc", 10, "again"), ("", "abc", 10, "again"), ("abc", "aab", 10, "again"), ("abc", "ab", 10, "again"),
        ("abc", "aba", 2, "rejected"), ("a", "aaa", 1, "rejected"), ("a", "aa", 1, "again"), ("a", "aba", 2, "again"),
    ],
)  # fmt: skip
def test_what_it_takes_to_blame_the_url(good: str, leases: str, known: int, last: str) -> None:
    """Three refusals, on three leases that serve the site; of a smaller pool on all of it."""
    court = Court(known=known)
    for lease in court.leases:
        if lease.id in good:
            lease.serves.add(SITE)
    assert refuse(court, Refusals(), leases)[-1] == last


@pytest.mark.parametrize(("proof", "last"), [("", "again"), ("a", "rejected"), ("cd", "again")])
def test_a_site_that_begins_to_refuse_all_is_not_the_url(proof: str, last: str) -> None:
    """That leases served before is no proof while there is another URL to ask for; what one serves since then is."""
    court = Court(names="abcd")
    court.is_more_to_try = True
    for lease in court.leases:
        court.judge(lease, "ok")
    refusals = Refusals()
    assert refuse(court, refusals, "ab") == ["again"] * 2
    for lease in court.leases:
        if lease.id in proof:
            court.judge(lease, "ok", "/other")
    assert refuse(court, refusals, "cd")[-1] == last


def test_a_lease_that_refuses_again_and_serves_others_is_another_witness() -> None:
    """A node that can have two leases only can still tell that it is the URL."""
    court = Court(names="ab")
    refusals = Refusals()
    for name in "abb":
        for lease in court.leases:
            court.judge(lease, "ok")
        sentence = refuse(court, refusals, name)
    assert sentence == ["rejected"]


def test_a_url_that_is_suspected_makes_no_lease_suspect() -> None:
    """Once a lease that refused it serves others, the next that refuse it, and another such URL, are not banned."""
    court = Court(names="abc")
    first, second = Refusals(), Refusals()
    refuse(court, first, "a", "/x")
    refuse(court, second, "b", "/y")
    for lease in court.leases:
        court.judge(lease, "ok", "/other")
    refuse(court, first, "c", "/x")
    refuse(court, second, "c", "/y")
    assert not court.banned
    assert not court.leases[2].suspects


def test_a_lease_may_serve_after_it_refused() -> None:
    """Whether the leases serve the site counts when the last one refuses, not when each did."""
    court = Court()
    refusals = Refusals()
    refuse(court, refusals, "ab")
    for lease in court.leases:
        lease.serves.add(SITE)
    assert refuse(court, refusals, "c") == ["rejected"]


@pytest.mark.parametrize(
    ("leases", "served", "known", "banned"),
    [("abcd", "", 10, "cd"), ("abcd", "c", 10, "d"), ("aaa", "", 10, ""), ("aaa", "", 1, "a"), ("abab", "", 2, "ab")],
)
def test_who_refuses_the_only_url_there_is(leases: str, served: str, known: int, banned: str) -> None:
    """The third lease and those after it are banned, but for who serves the site: it is not asked for for ever."""
    court = Court(known=known, names="abcd")
    for lease in court.leases:
        if lease.id in served:
            lease.served.add(SITE)
    assert set(refuse(court, Refusals(), leases)) == {"again"}
    assert court.banned == list(banned)


@pytest.mark.parametrize(("is_more_to_try", "is_minted"), [(True, False), (False, True)])
def test_who_refuses_one_url_is_not_banned_for_it(is_more_to_try: bool, is_minted: bool) -> None:
    """While there is another URL, that one tells. Ids made for the asking would be replaced again and again."""
    court = Court(names="abcd", is_minted=is_minted)
    court.is_more_to_try = is_more_to_try
    refuse(court, Refusals(), "abcd")
    assert not court.banned
    assert not court.parted


@pytest.mark.parametrize(
    ("served", "is_more_to_try", "banned"), [("abc", False, []), ("abc", True, ["b", "c"]), ("ac", False, ["b", "c"])]
)
def test_only_what_is_refused_is_left(served: str, is_more_to_try: bool, banned: list[str]) -> None:
    """Several URLs that nobody gets, and nothing else to ask for: if all three served the site, none pays for them."""
    court = Court()
    court.is_more_to_try = is_more_to_try
    for lease in court.leases:
        if lease.id in served:
            lease.served.add(SITE)
    a, b, c = court.leases
    first, second = Refusals(), Refusals()
    said = [
        court.judge(lease, "ban", f"/{number}", (first, second)[number])
        for lease, number in ((a, 0), (b, 1), (b, 0), (c, 1), (c, 0))
    ]
    assert court.banned == banned
    assert said[-1] == ("rejected" if not banned else "again")


def test_without_refusals_no_url_is_blamed() -> None:
    """Whose tries nobody counts, the URL cannot be told from its leases."""
    court = Court()
    for lease in court.leases:
        lease.serves.add(SITE)
    assert [court.judge(lease, "ban", "/x") for lease in court.leases] == ["again"] * 3


def test_refusals_tell_what_to_avoid() -> None:
    """The next try must not get a lease that refused already."""
    court = Court()
    refusals = Refusals()
    refuse(court, refusals, "ab")
    assert refusals.ids == {"a", "b"}


@pytest.mark.parametrize("kind", ["ban", "hang", "broken", "expired", "limited"])
def test_a_void_use_blames_nobody(kind: str) -> None:
    """What a use tells whose lease is over, or whose session is lost, changes nothing; its request goes out again."""
    court = Court()
    over, void = court.use(court.leases[0]), court.use(court.leases[1])
    court.shelf.remove(court.leases[0])
    assert court.blame.judge(over, Judgement(kind, "/1"), Refusals()) == "again"
    court.session.lose()
    assert court.blame.judge(void, Judgement(kind, "/1"), Refusals()) == "again"
    assert not court.said
    assert not court.parted
    assert not court.leases[1].suspects


def test_the_store_pauses_the_site_instead() -> None:
    """When the store blames the site, the lease does not rest, and the site is closed until the store says more."""
    court = Court()
    lease = court.leases[0]
    court.judge(lease, "hang")
    court.blame.unrest(lease, SITE)
    assert SITE not in lease.rests
    assert not court.sites.is_open(SITE)


def test_a_probe_of_a_site_that_is_refused_closes_it_at_once() -> None:
    """No second request follows before the store has answered."""
    court = Court()
    court.sites.heard(SITE, 5)
    court.sites.heard(SITE, 0)
    assert court.judge(court.leases[0], "ban", "/1") == "again"
    assert court.banned == ["a"]
    assert not court.sites.is_open(SITE)
