"""The rate limits of one process: permits are spent here, synchronously, and fetched in slices by one task.

A request has *needs*: one counter for each limit on each of its keys. It spends permits of all of them or of none, at
the instant at which it is sent. Before that it may have *reserved* them, so that of several that start at once none
counts on what another will spend; a reservation is no promise: permits end with their window.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from scrapy_lease.exceptions import OtherDays, SessionLost, StoreRefused, StoreUnavailable
from scrapy_lease.leases.rates.counter import Counter
from scrapy_lease.leases.rates.days import Calendar
from scrapy_lease.leases.rates.words import DAY, CounterName, Limit, RateAsk, RateOptions, RateStore
from scrapy_lease.leases.session import Session, boot_time

logger = logging.getLogger(__name__)

#: Seconds between rounds: at most, at least.
STEP, SHORTEST = 0.5, 0.002
#: Seconds before a call without an answer is repeated: at first, at most.
RETRY, LONGEST_RETRY = 0.1, 1.0
#: Seconds between looks at what lies idle; seconds after which an unused counter is forgotten.
TIDY, FORGET = 1.0, 60.0
#: Seconds that giving back may take at the end.
STOP = 2.0

Needs = Sequence[Counter]


class Rates:
    """See the module's docstring. Lives as long as the session: a part of whoever owns that.

    :param demand: returns the permits that requests at hand want of each counter, those with a reservation aside.
    :param on_room: called when requests that were refused might get their permits now, or it shows that they will not.
    :param is_alone: does the crawl go on without the store? Then each counter gives a part of its limit by itself.
    :param lateness: returns the seconds by which what is sent now leaves this host late.
    :param on_call: called when the store is about to be asked: what else there is to ask leaves with it.
    :param on_forget: called when counters are forgotten that nobody used for long.
    """

    def __init__(
        self, options: RateOptions, store: RateStore, session: Session, *, demand: Callable[[], Mapping[Counter, int]],
        on_room: Callable[[], None], is_alone: Callable[[], bool] = lambda: False,
        lateness: Callable[[], float] = lambda: 0.0, on_call: Callable[[], None] = lambda: None,
        on_forget: Callable[[], None] = lambda: None, clock: Callable[[], float] = boot_time,
    ) -> None:  # fmt: skip
        self._options = options
        self._store = store
        self._session = session
        self._demand = demand
        self._on_room = on_room
        self._is_alone = is_alone
        self._lateness = lateness
        self._on_call = on_call
        self._on_forget = on_forget
        self._clock = clock
        self._counters: dict[str, Counter] = {}
        #: Those that may have to ask for something: of some thousand keys few do.
        self._active: dict[Counter, None] = {}
        self._wanted: set[Counter] = set()
        self._numbers = itertools.count(1)
        self._home = random.randrange(1 << 16)
        self._calendar = Calendar(options.timezone)
        self._generation = session.generation
        self._wake = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._tidied = clock()
        #: Clock time (s) at which it was looked what is wanted.
        self._noted = float("-inf")
        self._failures = 0
        self._is_missed = self._has_minted = False
        self._complaint = ""

    def __repr__(self) -> str:
        return f"<Rates: {len(self._counters)} counters>"

    # hot

    def counter(self, rule: str, key: str, limit: Limit) -> Counter:
        """Return the counter of *limit* on *key*, both of a *rule*."""
        label = f"{rule}\0{key}\0{limit.window}"
        found = self._counters.get(label)
        if found is None or found.limit != limit:
            is_day = limit.window == DAY and self._options.algorithm == "fixed"
            zone = f"\0{self._options.timezone}" if is_day else ""
            name = CounterName(rule, f"{rule} {key}"[:200], label + zone, 0, self._options.shards)
            found = Counter(name, limit, self._options, self._home, self._numbers.__next__, self._clock)
            self._counters[label] = found
        return found

    def may_spend(self, needs: Needs, cost: int) -> bool:
        """Are permits for *cost* here, of each counter, besides those that are reserved? If not, they are asked for."""
        now = self._clock()
        for counter in needs:
            if counter.purse.at(now) - counter.reserved < cost and not self._mint(counter, cost):
                self.miss()
                return False
        return True

    def spend(self, needs: Needs, cost: int) -> bool:
        """Spend *cost* permits of each counter at this instant, whoever has reserved them, or of none."""
        now = self._clock()
        for counter in needs:
            if counter.purse.at(now) < cost and not self._mint(counter, cost):
                self.miss()
                return False
        for counter in needs:
            if counter.spend(cost, now) and counter not in self._active:
                # The others of such requests will be asked soon, too.
                self._active.update(dict.fromkeys(needs))
                self._wake.set()
        return True

    def opens_in(self, needs: Needs) -> float:
        """Return the seconds after which all counters may have permits; 0: any moment."""
        return max((counter.opens_in for counter in needs if not counter.purse.permits), default=0.0)

    def miss(self) -> None:
        """Somebody waits for permits."""
        self._is_missed = True
        self._wake.set()

    # what is told

    def start(self) -> None:
        """Begin to ask, on the running loop; the session is open."""
        self._task = asyncio.ensure_future(self._run())

    def beaten(self) -> None:
        """A heartbeat was answered, or the session is lost: a new server is told what was granted lately."""
        if self._generation == self._session.generation:
            return
        self._generation = self._session.generation
        for counter in self._counters.values():
            for lane in counter.lanes:
                lane.must_tell = bool(lane.recent)
            self._active[counter] = None
        self._wake.set()

    async def stop(self) -> None:
        """Give back what is not spent, and ask no more; the session is still open."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP):
                await asyncio.gather(*self._calls, return_exceptions=True)
                for counter in self._counters.values():
                    self._give_back(counter, 0)
                await asyncio.gather(*self._calls, return_exceptions=True)
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # inside

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                wait = self._round()
            except Exception as error:
                self._complain(error)
                wait = STEP
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(SHORTEST, min(STEP, wait))):
                    await self._wake.wait()
            await asyncio.sleep(0)

    def _round(self) -> float:
        """Ask for what is due; return the seconds after which something else may be."""
        if self._is_missed or self._clock() - self._noted >= STEP:
            self._note_demand()
        if self._has_minted and not self._is_alone():
            self._has_minted = False
            for counter in self._counters.values():
                counter.purse.take_out(counter.purse.permits, -1)
        if self._ask():
            self._ask(rides=True)
            self._on_call()
        wait = STEP
        for counter in list(self._active):
            due_in = counter.due_in()
            wait = min(wait, due_in)
            if not counter.is_calling and due_in == float("inf"):
                del self._active[counter]
        if self._clock() - self._tidied > TIDY:
            self._tidy()
        return wait

    def _ask(self, *, rides: bool = False) -> bool:
        """Ask for all that is due, in one pipeline; is there any?"""
        due = [(counter, shard) for counter in self._active if (shard := counter.due(rides=rides)) is not None]
        for counter, shard in due:
            self._call(counter, shard, counter.ask(shard, self._days(counter)))
        return bool(due)

    def _note_demand(self) -> None:
        self._noted = self._clock()
        demand, late = self._demand(), self._lateness()
        for counter in self._wanted - demand.keys():
            counter.wanted = 0
        for counter, permits in demand.items():
            counter.wanted = permits
            counter.hurry(late)
        self._wanted = set(demand)
        self._active.update(dict.fromkeys(demand))

    def _tidy(self) -> None:
        """Give back what lies idle, forget counters that nobody uses."""
        now = self._tidied = self._clock()
        for counter in self._counters.values():
            if counter.surplus > 0:
                self._give_back(counter, counter.need)
        forgotten = [label for label, each in self._counters.items() if each.used < now - FORGET and each.is_idle]
        for label in forgotten:
            del self._counters[label]
        if forgotten:
            self._on_forget()

    def _give_back(self, counter: Counter, keep: int) -> None:
        for shard in range(len(counter.lanes)):
            ask = counter.give_back(shard, self._days(counter), keep=keep)
            if ask is not None:
                self._call(counter, shard, ask)

    def _call(self, counter: Counter, shard: int, ask: RateAsk) -> None:
        self._active[counter] = None
        task = asyncio.ensure_future(self._exchange(counter, shard, ask))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _exchange(self, counter: Counter, shard: int, ask: RateAsk) -> None:
        session, lane = self._session, counter.lanes[shard]
        sid, asked = session.sid, self._clock()
        if session.is_lost or session.is_closed or not sid:
            counter.failed(shard, RETRY)
            return
        previous = lane.sid if lane.sid != sid else ""
        try:
            granted = await self._store.take(sid, lane.n, replace(counter.name, shard=shard), ask, previous=previous)
        except OtherDays as error:
            self._calendar.correct(error.wall)
            lane.unanswered = replace(ask, days=self._days(counter))
            counter.failed(shard, 0.0)
        except SessionLost:
            if sid == session.sid:
                session.lose()
            counter.failed(shard, RETRY)
        except StoreUnavailable:
            self._failures += 1
            counter.failed(shard, min(LONGEST_RETRY, RETRY * self._failures) * random.uniform(0.75, 1.25))
        except StoreRefused as error:
            self._complain(error)
            lane.unanswered = None
            counter.failed(shard, LONGEST_RETRY)
        else:
            self._failures, lane.sid = 0, sid
            counter.answered(shard, asked, granted, self._lateness())
            if self._is_missed and (granted.permits or counter.opens_in):
                self._is_missed = False
                self._on_room()
        self._wake.set()

    def _days(self, counter: Counter) -> tuple[int, ...]:
        is_day = counter.limit.window == DAY and self._options.algorithm == "fixed"
        return self._calendar.days() if is_day else ()

    def _mint(self, counter: Counter, cost: int) -> bool:
        """Where the store is away and the crawl goes on: a part of the limit, by this host's clock."""
        if not self._is_alone():
            return False
        self._has_minted = True
        counter.mint(max(1, counter.limit.permits // max(1, self._session.live)))
        return counter.has(cost)

    def _complain(self, error: Exception) -> None:
        """Log each fault once, not with every round."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("Asking for permits of rate limits failed; it is tried again", exc_info=error)
