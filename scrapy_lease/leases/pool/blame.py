"""Who is to blame: the narrowest culprit pays.

- A refusal by a site (``ban``) makes the lease a suspect there; the second in a row, of another URL, is a ban,
  whichever process holds it by then.
- A URL that was refused on three leases, each of which serves that site, here or where it was lately, is itself
  refused; they are innocent. While there is another URL to ask for, one of them must have served since: the site may
  have begun to refuse everything.
- Where there is no other URL to ask for, the third lease that refuses one, and those after it, are banned unless they
  serve the site: else it would be asked for without end. With half of the pool so, it is the site, which is paused.
- Where all URLs there are to ask for were refused, what serves the site, or did, is not banned before each has been
  tried on three leases: it may well be them.
- A hang is uncertain, so it is blamed on the lease at that site, like a ban and at once.
- What cannot be reached, or was taken back, is of no use to anybody.

The store weighs what the processes say: a resource that is banned at three sites rests for all; a site at which half of
the pool is banned is paused instead.

What this cannot do: tell a URL that hangs for everybody from leases that hang; each such request rests another lease.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from scrapy_lease.leases.pool.options import Judgement, PoolOptions, Sentence
from scrapy_lease.leases.pool.past import key_of
from scrapy_lease.leases.pool.shelf import Lease, Rest, Use
from scrapy_lease.leases.pool.sites import Sites
from scrapy_lease.leases.session import boot_time

#: Leases that serve a site and must have refused a URL before it is the URL; of a smaller pool, all.
WITNESSES = 3
#: What becomes of a response or exception, the URL's guilt aside.
_SENTENCES: dict[str, Sentence] = {
    "ok": "pass", "target": "pass", "unused": "pass", "back": "pass", "cut": "pass", "ban": "again", "hang": "again",
    "broken": "again", "expired": "again", "limited": "again", "logged_out": "again", "cold": "again",
}  # fmt: skip


def sentence_of(kind: str) -> Sentence:
    """Return what becomes of what was judged *kind*, if nothing more is known."""
    return _SENTENCES[kind]


class Refusals:
    """The refusals of one request, over all its tries: on which leases."""

    __slots__ = ("_leases", "_repeats", "_tries", "is_proved")

    def __init__(self) -> None:
        #: Has one of the leases served the site since it refused?
        self.is_proved = False
        self._leases: dict[str, Lease] = {}
        self._tries = 0
        #: How often a lease refused again that had served since: as good as another one, where no other can be had.
        self._repeats = 0

    def __repr__(self) -> str:
        return f"<Refusals: {self._tries} on {sorted(self._leases)}>"

    @property
    def ids(self) -> frozenset[str]:
        """The resources that refused, to be avoided by the next try."""
        return frozenset(self._leases)

    def add(self, lease: Lease, site: str) -> None:
        """It was refused on *lease*."""
        self.is_proved = self.is_proved or any(site in other.serves for other in self._leases.values())
        self._repeats += lease.id in self._leases and site in lease.serves
        lease.refused(site)
        self._leases[lease.id] = lease
        self._tries += 1

    def are_the_urls(self, site: str, known: int) -> bool:
        """Have enough of *known* leases that serve *site*, or did, refused it?"""
        good = sum(lease.has_served(site) for lease in self._leases.values())
        return self._tries >= WITNESSES and good + self._repeats >= max(1, min(WITNESSES, known))

    def are_many(self, known: int) -> bool:
        """Have enough of *known* leases refused it to be witnesses, if they served the site?"""
        return self._tries >= WITNESSES and len(self._leases) >= max(1, min(WITNESSES, known))

    def acquit(self, site: str, suspect: str) -> list[Lease]:
        """The leases are not suspected for the URL of this key any more. Return those that were."""
        acquitted = [lease for lease in self._leases.values() if lease.suspects.get(site) == suspect]
        for lease in acquitted:
            del lease.suspects[site]
        return acquitted


class Bench(Protocol):
    """Where the verdicts go."""

    @property
    def known(self) -> int:
        """Resources of the pool, as far as is known."""

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Tell the store; the lease stays."""

    def tell_view(self, lease: Lease, site: str, *, is_serving: bool) -> None:
        """Tell the store how the lease serves the site, for its next holder: at once what is said against it."""

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Let the lease end, with its last request, by this verb."""

    def is_of_use(self, lease: Lease) -> bool:
        """Is there anything that this process could do with the lease?"""

    def has_untried(self, site: str) -> bool:
        """Is there a request to *site* at hand that was not refused yet?"""

    def count(self, what: str) -> None:
        """Count an event."""


class Blame:
    """See the module's docstring.

    :param clock: the boot-time clock, in s.
    """

    def __init__(
        self, options: PoolOptions, sites: Sites, bench: Bench, clock: Callable[[], float] = boot_time
    ) -> None:
        self._options = options
        self._sites = sites
        self._bench = bench
        self._clock = clock

    def judge(self, use: Use, judgement: Judgement, refusals: Refusals | None) -> Sentence:
        """Blame whom a judgement blames; the use is over, and its request still counts on the lease."""
        lease, site, kind = use.lease, use.site, judgement.kind
        sentence = sentence_of(kind)
        if use.is_valid:
            if kind == "ok":
                self._serves(use)
            elif kind == "ban":
                sentence = self._refused(use, judgement.url, refusals)
            elif kind == "hang":
                self._ban(lease, site, "hang")
            elif kind == "limited":
                self._limit(lease, site, judgement.retry_after)
            elif kind == "broken":
                self._broken(lease)
            elif kind == "expired":
                self._bench.count("expired")
                self._bench.part(lease, "gone", ("expired",))
        if use.is_probe:
            lease.probes.discard(site)
            self._sites.ended(site)
        return sentence

    def unrest(self, lease: Lease, site: str) -> None:
        """The store has paused the site instead of banning the lease there."""
        lease.rests.pop(site, None)
        self._sites.pause(site)

    def _serves(self, use: Use) -> None:
        """Served: the store is told only if it thinks otherwise. What was sent before a ban is no probe of it."""
        lease, site = use.lease, use.site
        lease.serves.add(site)
        if lease.suspects.pop(site, None) is not None or site not in lease.told:
            self._bench.tell_view(lease, site, is_serving=True)
        if use.is_probe or lease.strikes:
            lease.strikes = 0
            lease.rests.pop(site, None)
            self._sites.served(site)
            self._bench.say(lease, "ok", (site,))

    def _refused(self, use: Use, url: str, refusals: Refusals | None) -> Sentence:
        lease, site, key = use.lease, use.site, key_of(url)
        is_undecided = False
        if refusals is not None:
            refusals.add(lease, site)
            is_alone = not self._bench.has_untried(site)
            if (refusals.is_proved or is_alone) and refusals.are_the_urls(site, self._bench.known):
                for acquitted in refusals.acquit(site, key):
                    self._bench.tell_view(acquitted, site, is_serving=False)
                return "rejected"
            if refusals.is_proved:
                # It is the URL that is suspected: what it meets must not pay for it.
                return "again"
            are_many = refusals.are_many(self._bench.known)
            is_innocent = lease.has_served(site) or self._is_minted(lease)
            if is_alone and are_many and not is_innocent:
                self._ban(lease, site)
                return "again"
            # All there is to ask for has been refused once: that may be the URLs, and is soon known.
            is_undecided = is_alone and not are_many and lease.has_served(site)
        suspected = lease.suspects.get(site)
        if use.is_probe or (suspected is not None and (suspected != key or not key) and not is_undecided):
            self._ban(lease, site)
        elif suspected != key:
            lease.suspects[site] = key
            self._bench.tell_view(lease, site, is_serving=False)
        return "again"

    def _is_minted(self, lease: Lease) -> bool:
        return self._options.is_minted or (self._options.is_owned and lease.until is not None)

    def _ban(self, lease: Lease, site: str, verb: str = "ban") -> None:
        if self._is_minted(lease):
            self._replace(lease, "broken" if verb == "hang" else "banned")
        else:
            self._rest(lease, site, *self._backoff(), verb)

    def _limit(self, lease: Lease, site: str, seconds: float) -> None:
        if seconds > 0:
            self._rest(lease, site, int(seconds * 1000), int(seconds * 1000), 0)
        else:
            self._rest(lease, site, *self._backoff())

    def _rest(self, lease: Lease, site: str, first: int, longest: int, share: int, verb: str = "ban") -> None:
        """Let it rest for the site, as the store does: a rest that runs is not lengthened by what was under way."""
        lease.suspects.pop(site, None)
        before, now = lease.rests.get(site), self._clock()
        if before is not None and before.until > now:
            return
        strikes = before.strikes + 1 if before is not None else 1
        whole = min(longest, first * 2 ** min(strikes - 1, 30)) / 1000
        lease.rests[site] = Rest(now + whole * (1 - share / 4000), strikes)
        if site in self._sites:
            self._sites.pause(site)
        self._bench.say(lease, verb, (site, first, longest, share))
        if not self._bench.is_of_use(lease):
            self._bench.part(lease, "back", (0,))

    def _broken(self, lease: Lease) -> None:
        if self._is_minted(lease):
            self._replace(lease, "broken")
        else:
            self._bench.count("broken")
            self._bench.part(lease, "broken", self._backoff())

    def _replace(self, lease: Lease, reason: str) -> None:
        self._bench.part(lease, "gone", (reason,))

    def _backoff(self) -> tuple[int, int, int]:
        first, longest = self._options.backoff
        return int(first * 1000), int(longest * 1000), random.randrange(1001)
