"""What a pool has here and lacks: what is asked of the store, taken in, given back and said.

An idle lease is given back after ``keep`` s, or soon when others wait for more than is free; what others have a right
to (``yields``) as soon as its request ends; what is recalled at once.

A take is made as soon as something is wanted that the last one was not asked for, each second while anybody waits here
(twice as often while nothing is leased; more often at first while it has less than its share, which others give up
now), and with each heartbeat while this session has anything or waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from scrapy_lease.leases.pool.accounts import Terms
from scrapy_lease.leases.pool.bench import Bench
from scrapy_lease.leases.pool.blame import Blame
from scrapy_lease.leases.pool.desk import Desk
from scrapy_lease.leases.pool.options import PoolOptions, PoolStore, Standing, Taken
from scrapy_lease.leases.pool.past import RENEWAL
from scrapy_lease.leases.pool.shelf import Lease, Shelf, Word
from scrapy_lease.leases.pool.sites import Sites
from scrapy_lease.leases.pool.strays import stray_of
from scrapy_lease.leases.pool.turns import Turns
from scrapy_lease.leases.pool.vitals import Vitals
from scrapy_lease.leases.pool.wants import Asks, Line, Waiter, asks_for, can_be_offered, learn_ties
from scrapy_lease.leases.session import Session, boot_time

#: Seconds between takes while anybody waits here (leases rotate that are a second old); while they have nothing at all.
LOOK, STARVING = 1.05, 0.5
#: Seconds between takes while a session has less than its share, and for how long: what others give up lies idle else.
HUNGRY, HUNGER = 0.1, 1.5
#: Seconds that an idle lease stays while others wait for more than is free.
BRIEF = 0.25
#: Sites whose pauses are asked for along the way.
SITES = 64


class Stock(Bench):
    """See the module's docstring.

    :param demand: requests for each site that wait elsewhere in this process.
    :param on_places: called when a request may start that could not before.
    """

    def __init__(
        self, options: PoolOptions, store: PoolStore, session: Session, line: Line, *, count: Callable[[str], None],
        demand: Callable[[], Mapping[str, int]], on_places: Callable[[], None],
    ) -> None:  # fmt: skip
        self.shelf = Shelf(options, session)
        self.sites = Sites()
        self.turns = Turns(options, store, session, self)
        #: What accounts need besides; None: of other resources.
        self.desk = None if options.account is None else Desk(options.account, self)
        self.blame = Blame(options, self.sites, self) if self.desk is None else self.desk.health
        self.count = count
        #: Leases to be given back as soon as their requests end.
        self.owed = 0
        #: Sites for which a request outside was refused.
        self.missed: set[str] = set()
        #: How the pool stood in the store at the last answer.
        self.standing: Standing | None = None
        self.vitals = Vitals(options)
        self.is_closed = False
        #: Does a request wait for an account that is here?
        self.is_awaited = False
        #: Called when a resource has left the pool for good by a word of this process.
        self.on_gone: Callable[[], None] = lambda: None
        #: Called with a lease that is about to end here, before the store is told.
        self.on_parting: Callable[[Lease], None] = lambda lease: None
        #: Tells of a site whether a request that waits outside was not refused there yet.
        self.untried: Callable[[str], bool] = lambda site: False
        self._options, self._session, self._line = options, session, line
        self._demand = demand
        self._on_places = on_places
        self._is_to_look = False
        self._last_take = float("-inf")
        #: Clock time (s) of the last take when its share was here, or nothing was wanted.
        self._last_had = boot_time()
        #: Leases that the store knows this session to wait for.
        self._missing = 0
        #: What it is no use to ask for before a second has passed: sites, and wants of sticky keys.
        self._vain: set[str] = set()

    def __repr__(self) -> str:
        return f"<Stock of {self._options.name}: {self.shelf!r}, {self._missing} missing, {self.owed} owed>"

    # for the pool

    def miss(self, site: str) -> None:
        """A request outside found no place."""
        if not self.is_closed:
            self.missed.add(site)
            self._lack(site)

    def lack(self, waiter: Waiter) -> None:
        """Somebody waits: see to it now, unless it is for what is here, or the store has just been asked."""
        if self.shelf.kept(waiter.keep, waiter.site, waiter.avoided) is not None:
            return
        if not waiter.sticky or self.shelf.bound(waiter.sticky, waiter.site, waiter.avoided) is None:
            self._lack(waiter.want)

    def offer(self) -> None:
        """Ask at once for sticky keys for which there was nothing, if they can be tied to what is here."""
        if wants := can_be_offered(self._line, self.shelf, self.sites, self._options):
            self._vain -= wants
            self.turns.wake()

    def look(self) -> None:
        """Ask how the pool stands, if this session has anything to do with it."""
        self._is_to_look = True
        self.turns.wake()

    def say(self, lease: Lease, verb: str, args: tuple[Any, ...]) -> None:
        if verb == "ok":
            # What ends a rest or a pause lets more be had.
            self._vain.clear()
        super().say(lease, verb, args)

    def leave(self, lease: Lease) -> None:
        """The lease has ended: say so, by its farewell."""
        assert lease.farewell is not None
        self.on_parting(lease)
        if self.desk is not None:
            self.desk.takes_leave(lease)
        verb, args = lease.farewell
        if boot_time() - lease.since > RENEWAL:
            for site in lease.serves & lease.sites:
                self.tell_view(lease, site, is_serving=True)
        self.shelf.remove(lease)
        self.turns.outbox.append(Word(lease, verb, args))
        if verb == "back":
            self.count("released")
        # With one lease less, more may be wanted.
        self._vain.clear()
        if self._line or self.missed or self.owed:
            self.turns.wake()
        else:
            self.turns.nudge()

    def pay(self, lease: Lease) -> None:
        """Give an idle lease back to whom it is owed."""
        self.owed -= 1
        self.part(lease, "back", (0,))
        self.turns.wake()

    def close(self) -> None:
        """Begin no more; each lease is given back with its last request."""
        self.is_closed = True
        self.missed.clear()
        for lease in self.shelf:
            self.part(lease, "back", (0,))

    def give_all_back(self) -> None:
        """Give back what has requests still, too: they are not valid any more."""
        for lease in self.shelf:
            self._end_now(lease)

    # for the turns

    def held(self) -> list[Lease]:
        """Return what is leased to this process."""
        return list(self.shelf)

    def pause(self) -> float:
        """Return the seconds after which there is something to do, if nothing happens before."""
        pause = max(0.0, self._next_look()) if self._line or self.missed else LOOK
        return pause if self.desk is None else min(pause, self.desk.ready_in)

    def tidy(self) -> None:
        """Give back what lies idle; let wait no longer who waited for the end of a rest."""
        standing, now = self.standing, time.monotonic()
        is_pressed = standing is not None and standing.waiting > standing.free
        keep = min(BRIEF, self._options.keep) if is_pressed else self._options.keep
        for lease in list(self.shelf.open.values()):
            if not lease.uses and (now - lease.idle_since >= keep or self.shelf.is_ending(lease)):
                self.part(lease, "back", (0,))
        if self.desk is not None:
            self.desk.tell_all()
        self._on_places()

    def asks(self) -> Asks | None:
        """Return what to ask for; empty: nothing any more; None: no call is needed now."""
        if self.is_closed:
            was_missing, self._missing = self._missing, 0
            return Asks([], []) if was_missing else None
        demand = self._demand() if self.missed else {}
        if not demand:
            self.missed.clear()
        asks = asks_for(self._line, demand, self.shelf, self.sites, self._options)
        is_awaited = bool(self._line or self.missed or self.is_awaited)
        more = () if self.desk is None else self.desk.wants(is_awaited=is_awaited)
        self.is_awaited = False
        considered = {waiter.site for waiter in self._line if not waiter.sticky} | demand.keys() | self.missed
        considered |= asks.wants
        if not more and not self._is_due(asks):
            self._vain |= considered
            return None
        self._vain = considered
        self._last_take, self._is_to_look = boot_time(), False
        if not asks.sites or not self._is_short:
            self._last_had = self._last_take
        self._line.mark_asked()
        others = self.shelf.used_sites() - {site for site, _ in asks.sites}
        sites = [*asks.sites, *((site, 0) for site in islice(others, SITES))]
        return Asks(sites, [*asks.ties, *self.shelf.ties.to_tell()], self.vitals.answered_ago, more)

    def took(self, asks: Asks, taken: Taken, asked: float) -> None:
        """Take in the answer to a take that was sent at clock time *asked* (s)."""
        for granted in taken.leases:
            lease = self.shelf.add(granted, asked)
            if lease.purse is not None:
                lease.purse.on_low = self.turns.wake
            self.count("leased")
        for (site, _), left in zip(asks.sites, taken.pauses, strict=True):
            self.sites.heard(site, left / 1000)
        deferred = learn_ties(asks.ties, taken, asked, self.shelf, self.sites)
        self._missing = asks.unmet(taken) + len(deferred)
        if not self._missing:
            self._vain = {site for (site, _), left in zip(asks.sites, taken.pauses, strict=True) if left}
        self._line.mark_tried(deferred)
        self._stand(taken.standing)
        for id_ in taken.recalled:
            self._recall(id_)
        if self.desk is not None:
            self.desk.took(taken, asked)
        if self.is_closed:
            self.close()
        self._on_places()
        for waiter in self._line:
            self.lack(waiter)

    def answered(self, word: Word, reply: str) -> None:
        """Take in what the store says of a word."""
        if self.desk is not None and word.verb in ("uses", "slow") and reply != "-":
            self.desk.health.weighed(word.lease, word.verb, reply)
            return
        if word.is_ban and reply in "+!":
            self.count("banned")
        if reply == "=":
            self.blame.unrest(word.lease, word.args[0])
        elif reply == "!":
            if word.lease.farewell is None:
                self.count("broken")
            self.part(word.lease, "back", (0,))
        elif reply == "-":
            self.lost(word.lease)
        elif word.verb == "gone":
            self.on_gone()

    def terms(self, asks: Asks) -> Terms | None:
        """Return how accounts may be used now, None: they are none."""
        return None if self.desk is None else self.desk.terms(asks.more)

    def other_days(self, wall: int) -> None:
        """The server's clock is at *wall* ms, which is not among the days that it was told."""
        if self.desk is not None:
            self.desk.calendar.learn(wall)
        self.turns.wake()

    def lost(self, lease: Lease) -> None:
        """The lease is over: the store says so."""
        if lease.is_held:
            self.count("lost")
            self.on_parting(lease)
            self.shelf.remove(lease)

    def reported(self) -> None:
        """The store and this process agree on what is leased."""
        self._vain.clear()
        self.shelf.ties.confirm_all()
        self._on_places()

    def _lack(self, want: str) -> None:
        if want not in self._vain:
            self.turns.wake()

    def _is_due(self, asks: Asks) -> bool:
        if asks.wants - self._vain:
            return True
        if self._is_to_look and (self.shelf or self._missing or self._line or self.missed):
            return True
        return bool(asks.sites or self._missing) and self._next_look() <= 0

    @property
    def _is_short(self) -> bool:
        """Has this session less than its share, as far as it knows?"""
        return len(self.shelf) < (1 if self.standing is None else self.standing.share)

    def _next_look(self) -> float:
        is_hungry = self._is_short and self._last_take - self._last_had < HUNGER
        pause = HUNGRY if is_hungry else LOOK if self.shelf else STARVING
        return self._last_take + pause - boot_time()

    def _stand(self, standing: Standing) -> None:
        self.standing = standing
        # What is on its way back was not there yet when the store counted.
        ending = sum(word.is_end for word in self.turns.outbox)
        self.vitals.stands(standing, len(self.shelf) + ending)
        self.owed = max(0, standing.yields - ending)
        for lease in list(self.shelf.open.values()):
            if self.owed and not lease.uses:
                self.pay(lease)

    def _recall(self, id_: str) -> None:
        lease = self.shelf.get(id_)
        if lease is not None:
            self._end_now(lease)
        elif not any(word.id == id_ for word in self.turns.outbox):
            self.turns.outbox.append(Word(stray_of(id_, self._session), "back", (0,)))
            self.turns.nudge()

    def _end_now(self, lease: Lease) -> None:
        self.shelf.part(lease, "back", (0,))
        self.leave(lease)
