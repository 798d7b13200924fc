"""Keeps a pool filled: one session of all buys at a time, and only when the pool is low.

Each node looks at what its own last take said of the pool, which costs nothing. Only when that is low, and now and then
to keep the measure of use fresh, it asks the store, which knows who has the duty, how much is used, what the buy limits
leave, and whether the provider has failed just now. Who is told to buy says each second that it is still at it; who
dies gives no word, and some seconds later another buys.

What it cannot do: get back what a session that died had bought and not registered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from scrapy_lease.exceptions import LeaseError, OtherDays, SessionLost, StoreUnavailable
from scrapy_lease.leases.lanes import Lane
from scrapy_lease.leases.pool.calendar import Calendar
from scrapy_lease.leases.pool.complaints import Complaints, name_of
from scrapy_lease.leases.pool.purchase import Bought, Purchase
from scrapy_lease.leases.pool.register import Register
from scrapy_lease.leases.pool.supply import Level, Limit, Refilled, RefillStore, Source
from scrapy_lease.leases.session import Session

logger = logging.getLogger(__name__)

R = TypeVar("R")

#: Seconds between two turns.
TURN = 1.0
#: Seconds after which a node asks although nothing seems low.
LOOK = 30.0
#: First and longest wait (ms) after a failure of the source.
BACKOFF = (2_000, 300_000)
#: First and longest wait (s) until what was always in the pool, and is missing, is registered again.
TOP_UP = (60.0, 3600.0)
#: Seconds for which leaving waits for what was bought to be registered.
LAST_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class RefillOptions:
    """How one pool is filled.

    :param name: of the pool, for the log and the numbers of calls.
    :param batch: as many are bought at a time.
    :param floor: as many should be free.
    :param limits: of what is bought and how often; no two alike in window and kind.
    :param goods: what people call the resources.
    :param calendar: more are bought once a local day, and when none is known, whatever the floor; the cold ones become
        active then, also where nothing can be bought.
    """

    name: str
    batch: int = 20
    floor: int = 10
    limits: tuple[Limit, ...] = ()
    goods: str = "proxies"
    calendar: Calendar | None = None


class Refiller(Generic[R]):
    """See the module's docstring.

    :param stock: resources that are always there: registered at the start, and again when some are missing.
    :param source: where more come from; None: nowhere.
    :param standing: how the pool stood at this node's last look; None: not known.
    :param count: counts in a stat: ``count("refilled", number)``.
    """

    def __init__(
        self, options: RefillOptions, store: RefillStore[R], session: Session, *, stock: Sequence[R] = (),
        source: Source[R] | None = None, standing: Callable[[], Level | None], count: Callable[[str, int], None],
    ) -> None:  # fmt: skip
        self._options = options
        self._store = store
        self._session = session
        self._stock = stock
        self._source = source
        self._standing = standing
        self._count = count
        self._register = Register(f"refill/{options.name}/register", store, session)
        self._complaints = Complaints(logger, f"Pool {options.name}")
        self._told: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._purchase: Purchase[R] | None = None
        self._buying: asyncio.Task[Bought] | None = None
        self._bought: Bought | None = None
        self._granted = 0
        self._lane = Lane(f"refill/{options.name}", session, self._send)
        self._lane_of = ""
        self._forecast = 0
        self._asked = self._not_before = float("-inf")
        self._top_up_at, self._top_up_wait = float("-inf"), TOP_UP[0]

    def __repr__(self) -> str:
        state = "buys" if self._buying is not None else "watches"
        return f"<Refiller of pool {self._options.name}: {state}>"

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.ensure_future(self._run())

    def poke(self) -> None:
        """Something left the pool for good: ask now, whatever the last look said."""
        self._asked = self._not_before = float("-inf")
        self._wake.set()

    async def again(self) -> None:
        """Register again what a new server may not know; to be awaited before the session reports to it."""
        await self._register.again()

    async def stop(self) -> None:
        """Buy no more. What has been bought is registered if that takes no time, and the duty is given back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._buying is not None:
            if self._purchase is not None and self._purchase.has_arrived:
                await asyncio.wait({self._buying}, timeout=LAST_WAIT)
            self._buying.cancel()
            await asyncio.gather(self._buying, return_exceptions=True)
            self._end_purchase()
        with contextlib.suppress(LeaseError):
            while self._bought is not None:
                await self._call()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._turn()
            except (StoreUnavailable, SessionLost) as error:
                logger.debug("Pool %s: %s", self._options.name, error)
            except LeaseError as error:
                self._complaints.tell(str(error), f"its refill cannot go on as it is: {error}")
            except Exception as error:
                self._complaints.tell(name_of(error), f"its refill failed: {name_of(error)}; it goes on")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN * random.uniform(0.8, 1.2)):
                    await self._wake.wait()

    async def _turn(self) -> None:
        if not self._session.is_confirmed:
            return
        await self._register.again()
        await self._top_up()
        if self._buying is not None and self._buying.done():
            self._end_purchase()
        if self._bought is not None:
            await self._call()
        if self._source is not None or self._options.calendar is not None:
            await self._call()

    async def _top_up(self) -> None:
        now, standing = time.monotonic(), self._standing()
        is_missing = self._top_up_at < 0 or (standing is not None and standing.known < len(self._stock))
        if not self._stock or not is_missing or now < self._top_up_at:
            return
        self._top_up_at = now + self._top_up_wait
        self._top_up_wait = min(TOP_UP[1], 2 * self._top_up_wait)
        new = (await self._register.add(self._stock)).count("+")
        self._gained(new)
        self._tell_once("stock", f"has the {len(self._stock)} {self._options.goods} of its list, {new} of them new")

    async def _call(self) -> None:
        """Make the next call, or the last one again if it got no answer."""
        if self._lane_of != self._session.sid:
            self._lane.forget()
            self._lane_of = self._session.sid
        try:
            made = await self._lane.run(self._next)
        except OtherDays as error:
            assert self._options.calendar is not None
            self._options.calendar.learn(error.wall)
            return
        if made is None:
            return
        (state, _), answer = made
        if state == "ask":
            self._answered(answer)
        elif state == "done":
            self._bought = None

    async def _send(self, sid: str, number: int, call: tuple[str, Mapping[str, Any]]) -> Refilled:
        state, details = call
        if self._options.calendar is not None:
            details = {**details, "daily": self._options.calendar.now().marks}
        return await self._store.refill(sid, number, state, [limit[:3] for limit in self._options.limits], **details)

    def _next(self) -> tuple[str, Mapping[str, Any]] | None:
        if self._buying is not None:
            return "busy", {}
        if self._bought is not None:
            return "done", self._result(self._bought)
        return ("ask", self._needs()) if self._is_due() else None

    def _is_due(self) -> bool:
        now = time.monotonic()
        return now >= self._not_before and (now >= self._asked + LOOK or self._is_low())

    def _is_low(self) -> bool:
        standing = self._standing()
        if standing is None or self._source is None:
            return False
        if self._options.calendar is not None:
            return standing.known == 0
        if self._source.target:
            return standing.known < self._source.target
        return standing.free < max(1, self._options.floor + self._forecast)

    def _needs(self) -> Mapping[str, Any]:
        floor, batch = self._options.floor, self._options.batch
        if self._source is None:
            return {"floor": 0, "batch": 0, "target": 0, "most": 0}
        return {"floor": floor, "batch": batch, "target": self._source.target, "most": self._source.most}

    def _result(self, bought: Bought) -> Mapping[str, Any]:
        result: dict[str, Any] = {"bought": bought.count, "gained": bought.gained}
        if bought.failure is not None:
            result["failed"] = (*BACKOFF, random.randrange(1001), round(1000 * bought.failure.wait))
        return result

    def _answered(self, answer: Refilled) -> None:
        self._asked = time.monotonic()
        self._forecast = answer.forecast
        self._gained(answer.moved)
        # Who waits for the same moment must not all come at it.
        self._not_before = self._asked + min(LOOK, answer.wait / 1000 * random.uniform(1.0, 1.1))
        if answer.status == "limit":
            self._tell_limit(self._options.limits[answer.limit - 1], answer.wait / 1000)
        elif answer.status == "buy":
            self._not_before = float("-inf")
            self._buy(answer)

    def _buy(self, answer: Refilled) -> None:
        assert self._source is not None
        self._granted = answer.count
        self._purchase = Purchase(self._source, self._register, needs_news=self._options.calendar is None)
        clock = answer.wall - round(1000 * time.monotonic())
        purchase = self._purchase.make(answer.count, lambda: clock + round(1000 * time.monotonic()))
        self._buying = asyncio.ensure_future(purchase)
        self._buying.add_done_callback(lambda _: self._wake.set())

    def _end_purchase(self) -> None:
        """Take the result of the purchase that is done; one that was cancelled may have bought all it was granted."""
        assert self._buying is not None
        task, self._buying, self._purchase = self._buying, None, None
        self._bought = bought = Bought(self._granted) if task.cancelled() else task.result()
        if bought.gained:
            self._gained(bought.gained)
            self._told.discard("limit")
            self._tell_once("bought", f"is being refilled: {bought.gained} new {self._options.goods} to begin with")
        if bought.failure is not None:
            self._complaints.tell(bought.failure.kind, f"no {self._options.goods} bought: {bought.failure}")

    def _gained(self, number: int) -> None:
        if number:
            self._count("refilled", number)

    def _tell_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.info("Pool %s %s", self._options.name, text)

    def _tell_limit(self, limit: Limit, wait: float) -> None:
        if limit.is_call or "limit" in self._told:
            return
        self._told.add("limit")
        logger.warning(
            "Pool %s: the buy limit of %s is reached over all hosts; no %s are bought for %.0f s, so requests may wait",
            self._options.name, limit.text, self._options.goods, wait,
        )  # fmt: skip
