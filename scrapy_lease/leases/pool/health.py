"""How accounts do: whose fault is whose, the success rate, slowness, and what a site asks of them.

- Only what is said of the account counts: a fault of the site, of a proxy or of the way there is nobody's here.
- A refusal counts as a failure; the second in a row, of another URL, benches the account. So does a second page in a
  row that shows it as logged out, whatever was done between, and the failure of its probe after a rest.
- The success rate is the store's to judge: it adds up what all holders told, within a second, of a failure at once.
- A slow answer is weighed against those that others were given at that site meanwhile, which the store has.

What this cannot do: tell an account that is slow from a slow way to the site, as long as it always goes the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from scrapy_lease.leases.pool.accounts import LEAST, LONGEST, AccountOptions
from scrapy_lease.leases.pool.blame import Refusals, sentence_of
from scrapy_lease.leases.pool.options import Judgement, Sentence
from scrapy_lease.leases.pool.past import key_of
from scrapy_lease.leases.pool.shelf import Lease, Use
from scrapy_lease.leases.session import boot_time

#: Seconds between two words of how an account does, while it does well.
TELL = 1.0
#: Answers of which one word tells how long they took.
SAMPLES = 6
#: Pages in a row that show an account as logged out, after which it is benched.
LOGOUTS = 2


class Bench(Protocol):
    """Where the verdicts go."""

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Tell the store; the lease stays."""

    def part(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        """Let the lease end, with its last request, by this verb."""

    def count(self, what: str) -> None:
        """Count an event."""


class Health:
    """See the module's docstring; stands where :class:`~.blame.Blame` does.

    :param clock: the boot-time clock, in s.
    """

    def __init__(self, options: AccountOptions, bench: Bench, clock: Callable[[], float] = boot_time) -> None:
        self._options = options
        self._bench = bench
        self._clock = clock

    def judge(self, use: Use, judgement: Judgement, refusals: Refusals | None = None) -> Sentence:
        """Note what a judgement says of the account; the use is over, and its request still counts on the lease."""
        kind, lease = judgement.kind, use.lease
        if use.is_valid and not self._is_parting(lease):
            if kind == "ok":
                self._served(use, judgement)
            elif kind == "ban":
                self._refused(use, judgement.url)
            elif kind == "logged_out":
                self._logged_out(lease)
            elif kind == "limited":
                self._cool(lease, judgement.retry_after)
            elif kind == "cold":
                self._demote(lease, judgement.why or "refused")
        return sentence_of(kind)

    def cool(self, lease: Lease, seconds: float) -> None:
        """Let it rest for so long, 0: for the usual time."""
        if not self._is_parting(lease):
            self._cool(lease, seconds)

    def unrest(self, lease: Lease, site: str) -> None:
        """The store has weighed it, and spares it: too many are left alone already."""

    def tell(self, lease: Lease, *, is_last: bool = False) -> None:
        """Tell the store how the account did since the last word, if it is time; *is_last*: in any case."""
        health, now = lease.health, self._clock()
        if not health.results or (now - health.told < TELL and not is_last):
            return
        samples = [part for site, at, ms in health.samples for part in (site, round((now - at) * 1000), ms)]
        minimum = round(self._options.min_success * 1000)
        self._bench.say(lease, "uses", (health.results, LEAST, minimum, *self._rest(), samples))
        health.results, health.told = "", now
        health.samples.clear()

    def weighed(self, lease: Lease, verb: str, reply: str) -> None:
        """The store has weighed how an account does; ``!``: it is to be left alone."""
        if reply == "!" and lease.farewell is None:
            self._bench.count("demoted" if verb == "uses" else "cooled")
            self._bench.part(lease, "back", (0,))

    def _served(self, use: Use, judgement: Judgement) -> None:
        lease, health = use.lease, use.lease.health
        health.logouts, health.refused = 0, None
        health.results += "+"
        if use.is_probe:
            lease.strikes = 0
            self._bench.say(lease, "ok", (use.site,))
        if judgement.seconds > self._options.slow:
            milliseconds = round(judgement.seconds * 1000)
            self._bench.say(lease, "slow", (use.site, 0, milliseconds, self._cooldown))
        elif judgement.seconds > 0:
            health.samples.append((use.site, self._clock(), round(judgement.seconds * 1000)))
            del health.samples[:-SAMPLES]
        if judgement.retry_after > 0:
            self._cool(lease, judgement.retry_after)

    def _refused(self, use: Use, url: str) -> None:
        lease, health, key = use.lease, use.lease.health, key_of(url)
        is_second = health.refused is not None and (health.refused != key or not key)
        health.refused = key
        if use.is_probe or is_second:
            self._demote(lease, "refused")
        else:
            self._failed(lease)

    def _logged_out(self, lease: Lease) -> None:
        lease.health.logouts += 1
        if lease.health.logouts >= LOGOUTS:
            self._demote(lease, "logged out")
        else:
            self._failed(lease)

    def _failed(self, lease: Lease) -> None:
        lease.health.results += "-"
        self.tell(lease, is_last=True)

    def _cool(self, lease: Lease, seconds: float) -> None:
        self._bench.count("cooled")
        self._bench.part(lease, "cool", (round(seconds * 1000) or self._cooldown,))

    def _demote(self, lease: Lease, why: str) -> None:
        lease.health.results += "-"
        self._bench.count("demoted")
        self._bench.part(lease, "demote", (why, *self._rest()))

    def _is_parting(self, lease: Lease) -> bool:
        return lease.farewell is not None and lease.farewell[0] != "back"

    def _rest(self) -> tuple[int, int, int]:
        return self._cooldown, round(LONGEST * 1000), random.randrange(1001)

    @property
    def _cooldown(self) -> int:
        return round(self._options.cooldown * 1000)
