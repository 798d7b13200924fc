"""A pool as one process uses it: leases are reused here, and asked for and given back in the turns of one task.

:meth:`Pool.take_now` and :meth:`Pool.end` do all that a request costs, without I/O. Nothing is handed out while the
session is not confirmed, or has not reported to the store under its present id. A place that comes free goes to whoever
waits longest and can use it; those who wait outside are told by ``on_room``.
A sticky key has the resource that the store has tied it to, and waits for that while another process has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set

from scrapy_lease.exceptions import NoResource
from scrapy_lease.leases.pool.blame import Refusals, sentence_of
from scrapy_lease.leases.pool.options import UNUSED, Judgement, PoolOptions, PoolStore, Sentence, Standing
from scrapy_lease.leases.pool.shelf import AFTER_CUT, Lease, Use
from scrapy_lease.leases.pool.stock import Stock
from scrapy_lease.leases.pool.ties import Own
from scrapy_lease.leases.pool.wants import Line, Waiter
from scrapy_lease.leases.session import Beat, Session

_NONE: frozenset[str] = frozenset()


class Pool:
    """See the module's docstring.

    :param session: open when :meth:`start` is called; whoever renews it tells the pool (:meth:`beaten`).
    :param count: called with the name of an event: ``leased``, ``reused``, ``released``, ``lost``, ``banned``,
        ``broken``, ``expired``, ``waited``.
    :param demand: returns, for each site, how many requests that wait elsewhere in this process could start now if they
        had a lease; not those inside :meth:`take`.
    :param on_room: called when a request that was refused by :meth:`take_now` or :meth:`has_room` might start now. It
        may call both.
    """

    def __init__(
        self, options: PoolOptions, store: PoolStore, session: Session, *, count: Callable[[str], None],
        demand: Callable[[], Mapping[str, int]], on_room: Callable[[], None],
    ) -> None:  # fmt: skip
        self.options = options
        self._session = session
        self._count = count
        self._on_room = on_room
        self._line = Line()
        #: Site, sticky key and lease to be kept of requests outside that wait for a place on a lease that is here.
        self._held_up: set[tuple[str, str, str]] = set()
        self._stock = Stock(
            options, store, session, self._line, count=count, demand=demand, on_places=self._serve_all
        )  # fmt: skip
        self._shelf = self._stock.shelf
        self._sites = self._stock.sites
        self._turns = self._stock.turns

    def __repr__(self) -> str:
        return f"<Pool {self.options.name}: {len(self._shelf)} leases, {len(self._line)} waiting>"

    @property
    def is_usable(self) -> bool:
        """Was anything in the pool free or leased by anybody when the store answered last? True before that."""
        return not self._stock.vitals.is_empty

    @property
    def is_in_use(self) -> bool:
        """Is a request on any of its leases here?"""
        return any(lease.uses for lease in self._shelf)

    @property
    def standing(self) -> Standing | None:
        """How the pool stood at the last answer of the store; None before the first."""
        return self._stock.standing

    @property
    def useless_for(self) -> float:
        """Seconds for which nothing in the pool has been usable: nothing was there, or nothing answered; 0: it is."""
        return self._stock.vitals.useless_for

    def filled_by(self, register: Callable[[], Awaitable[None]], ask: Callable[[], None]) -> None:
        """Name who fills the pool.

        :param register: awaited before a report to a new server, which may not know what was put in lately.
        :param ask: called when a resource has left for good.
        """
        self._turns.before_report, self._stock.on_gone = register, ask

    def parting_with(self, on_parting: Callable[[Lease], None]) -> None:
        """Name who is told that a lease is about to end here, in time to keep its jar."""
        self._stock.on_parting = on_parting

    def keep_jar(self, lease: Lease, jar: bytes) -> None:
        """Keep what belongs to an account that is leased here: its next holder finds it as ``lease.jar``."""
        lease.jar = jar
        if lease.is_held:
            self._stock.say(lease, "jar", (jar,))

    def cool(self, id_: str, seconds: float) -> None:
        """Let an account that is leased here rest for so long as soon as its requests end; 0: as the options say."""
        lease, desk = self._shelf.get(id_), self._stock.desk
        if lease is not None and desk is not None:
            desk.health.cool(lease, seconds)

    def watched_by(self, untried: Callable[[str], bool]) -> None:
        """Name who knows of a site whether a request that waits outside was not refused there yet."""
        self._stock.untried = untried

    def start(self) -> None:
        """Begin to make turns, on the running loop; the session is open."""
        self._turns.start()

    def close(self) -> None:
        """Hand out nothing more: who waits is told at once, and each lease is given back when its requests end."""
        self._stock.close()
        for waiter in self._line:
            self._line.discard(waiter)
            if not waiter.future.done():
                waiter.future.set_exception(NoResource(self.options.name, waiter.site, "closed"))

    async def stop(self) -> None:
        """Close, give everything back, and make no more turns; the session is still open.

        Uses that have not ended are not valid any more. Takes at most two seconds: what the store did not hear of comes
        back with the end of the session.
        """
        self.close()
        self._stock.give_all_back()
        await self._turns.stop()

    # hot

    def take_now(self, site: str, *, sticky: str = "", avoid: Set[str] = _NONE, keep: str = "") -> Use | None:
        """Start a request to *site* on a lease that is here; None: there is none for it now. No I/O.

        :param sticky: requests of one key go through one resource, of all processes, as long as it may serve the site.
            Of what the store has not said which that is there is none: :meth:`take` asks it.
        :param avoid: ids that the request must not get.
        :param keep: an id that serves the request, and no other, while this process has it and it may.
        """
        use = self._start(site, sticky, avoid, keep)
        if use is None and not sticky and self._shelf.kept(keep, site, avoid) is None:
            self._stock.miss(site)
        return use

    def has_room(self, site: str) -> bool:
        """Would :meth:`take_now` succeed for *site*?"""
        if self._find(site, "", _NONE) is not None:
            return True
        self._stock.miss(site)
        return False

    def has_other(self, ids: Set[str], site: str, coming: int) -> bool | None:
        """Is there a lease that is none of *ids* for one more request to *site*, besides *coming*?

        True too where the pool had something free when the store answered last. None: there is no such lease at all.
        """
        standing, others = self._stock.standing, [lease for lease in self._shelf if lease.id not in ids]
        if standing is None or standing.free > 0:
            return True
        fit = (lease for lease in others if lease.id in self._shelf.open and site not in lease.rests)
        places = sum(max(0, self.options.concurrency - lease.uses) for lease in fit)
        return places > coming if others else None

    def has_room_beside(self, site: str, coming: int) -> bool:
        """Could one more request to *site* start now, besides *coming* that are about to?"""
        if not self.has_room(site):
            return False
        if not coming:
            return True
        places, concurrency = 0, self.options.concurrency
        for lease in self._shelf.open.values():
            if site not in lease.rests:
                places += lease.places(concurrency)
                if places > coming:
                    return True
        return False

    def may_come(self, site: str, sticky: str, coming: int, coming_of_key: int, keep: str = "") -> bool:
        """May one more request come for its lease now, besides *coming* that are about to?

        One of a sticky key may where the lease that the key is tied to has a place. Where the store has to say which
        that is, one at a time comes to ask.

        :param coming_of_key: how many of *coming* have the same sticky key, or keep the same lease.
        :param keep: as for :meth:`take_now`.
        """
        if (kept := self._shelf.kept(keep, site)) is not None:
            if self._find(site, "", _NONE, keep) is not None and self._shelf.places_on(kept, site) > coming_of_key:
                return True
            self._held_up.add((site, "", keep))
            self._stock.is_awaited = True
            return False
        if not sticky:
            return self.has_room_beside(site, coming)
        if self._shelf.bound(sticky, site) is None:
            return not coming_of_key and not self._line.has_key(sticky) and self.has_room_beside(site, coming)
        lease = self._find(site, sticky, _NONE)
        if lease is not None and self._shelf.places_on(lease, site) > coming_of_key:
            return True
        self._held_up.add((site, sticky, ""))
        return False

    def lacks(self, site: str, sticky: str) -> bool:
        """Does a request that waits elsewhere want a lease more than those here and those that are asked for?"""
        return not sticky or (self._shelf.bound(sticky, site) is None and not self._line.has_key(sticky))

    def end(self, use: Use, judgement: Judgement, refusals: Refusals | None = None) -> Sentence:
        """End a use, exactly once (a second call changes nothing), and blame whom the judgement blames.

        The place is free at once, or a moment after a download was cut off; the store is told in a later turn.

        :param refusals: those of the request over all its tries: without them no URL is ever to blame.
        :returns: ``pass``: the response or exception goes on; ``again``: the request goes out again on another lease;
            ``rejected``: its URL is refused to all.
        """
        if use.is_over:
            return sentence_of(judgement.kind)
        use.is_over = True
        lease = use.lease
        if lease.purse is not None:
            use.settle_up(lease.purse, judgement.kind)
        self._stock.vitals.judged(judgement.kind)
        if judgement.kind == "ok" and not use.is_probe and not lease.suspects and use.site in lease.told:
            lease.serves.add(use.site)
            sentence: Sentence = "pass"
        else:
            sentence = self._stock.blame.judge(use, judgement, refusals)
        if judgement.kind == "cut":
            asyncio.get_running_loop().call_later(max(AFTER_CUT, self.options.grace), self._vacate, lease)
        else:
            self._vacate(lease)
        return sentence

    def _vacate(self, lease: Lease) -> None:
        if self._shelf.end(lease):
            self._stock.leave(lease)
        elif self._stock.owed and not lease.uses and lease.is_held:
            self._stock.pay(lease)
        elif self._line or self._stock.missed or self._held_up:
            self._serve_all()

    # waiting

    async def take(
        self, site: str, *, sticky: str = "", avoid: Set[str] = _NONE, timeout: float | None = None, keep: str = "",
        make: Callable[[], Own] | None = None,
    ) -> Use:  # fmt: skip
        """Start a request to *site* as soon as there is a lease for it.

        :param avoid: ids that the request gets again only when the store had nothing else.
        :param timeout: seconds to wait; None: as the pool's options say.
        :param make: makes what the sticky key is tied to, if it has nothing yet: it gets nothing else.
        :param keep: as for :meth:`take_now`.
        :raises NoResource: in vain (``wait``, or ``empty`` when nothing in the pool is usable), or ``closed``.
        """
        use = self._start(site, sticky, avoid, keep)
        if use is not None:
            return use
        if self._stock.is_closed:
            raise NoResource(self.options.name, site, "closed")
        self._count("waited")
        waiter = Waiter(site, sticky, avoid, keep, make)
        self._line.add(waiter)
        self._stock.lack(waiter)
        try:
            async with asyncio.timeout(self.options.wait if timeout is None else timeout):
                return await waiter.future
        except TimeoutError:
            self._give_up(waiter)
            raise NoResource(self.options.name, site, "wait" if self.is_usable else "empty") from None
        except BaseException:
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: Waiter) -> None:
        """Who gave up waiting may have been served in the same turn of the loop."""
        self._line.discard(waiter)
        future = waiter.future
        if future.done() and not future.cancelled() and future.exception() is None:
            self.end(future.result(), UNUSED)

    # what is told

    def let_go(self, sticky: str) -> None:
        """What a key is tied to here is not needed any more: give it back with its last request."""
        lease = self._shelf.get(self._shelf.ties.id_of(sticky))
        if lease is not None:
            self._stock.part(lease, "back", (0,))

    def beaten(self, beat: Beat | None) -> None:
        """A heartbeat was answered; None: the session is lost."""
        if beat is not None:
            self._serve_all()
        self._stock.look()

    def lost(self) -> None:
        """The session is lost: its uses are not valid; what it held is reported once there is another."""
        self._turns.wake()

    def regained(self) -> None:
        """There is another session: report under it what the lost one held."""
        self._turns.wake()

    def _find(self, site: str, sticky: str, avoid: Set[str], keep: str = "") -> Lease | None:
        session = self._session
        if self._turns.epoch != session.epoch or not session.is_confirmed:
            return None
        if self._sites.pauses and not self._sites.is_open(site):
            return None
        return self._shelf.find(site, sticky, avoid, keep)

    def _start(self, site: str, sticky: str, avoid: Set[str], keep: str = "") -> Use | None:
        lease = self._find(site, sticky, avoid, keep)
        if lease is None:
            return None
        if lease.used:
            self._count("reused")
        is_probe = self._shelf.begin(lease, site, sticky)
        if self._sites.pauses and self._sites.begin(site):
            is_probe = True
        return Use(lease, site, self._turns.epoch, is_probe)

    def _serve_all(self) -> None:
        """Give free places to whom they are due, and tell those outside if some are left for them."""
        in_vain = set()
        for waiter in self._line if self._shelf.open else ():
            if waiter.want in in_vain or waiter.future.done():
                continue
            avoid = waiter.avoided
            use = self._start(waiter.site, waiter.sticky, avoid, waiter.keep)
            if use is not None:
                self._line.discard(waiter)
                waiter.future.set_result(use)
            elif not avoid:
                in_vain.add(waiter.want)
        if self._line:
            self._stock.offer()
        missed = self._stock.missed
        if missed and self._shelf.open and any(self._find(site, "", _NONE) is not None for site in missed):
            missed.clear()
            self._on_room()
        elif any(self._is_due(*place) for place in self._held_up):
            self._held_up.clear()
            self._on_room()

    def _is_due(self, site: str, key: str, keep: str) -> bool:
        """Has the lease that a key is tied to, or that is kept, a place, or is it gone?"""
        here = self._shelf.kept(keep, site) if keep else self._shelf.bound(key, site)
        return here is None or self._find(site, key, _NONE, keep) is not None
