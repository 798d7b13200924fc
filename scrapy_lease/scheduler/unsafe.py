"""``LEASE_ON_STORE_DOWN = "unsafe_local"``: a crawl that goes on while the store is away, and tells it afterwards.

::

    leased ──the store is silent──► alone ──confirmed again──► reconciling ──all claimed──► leased

*Alone* a node fetches what it holds and what it discovers; the latter it grants to itself, under fence 0. Nothing of it
is settled before the store, back again, has granted it too. Then each is claimed by name:

==========================  ===================================================================================
answer                      what becomes of the item
==========================  ===================================================================================
granted                     it has its fence, and is settled when it is over
contended                   in the grace of a server that restarted, or while the job is paused: asked again;
                            else another session has it: given up here
waiting, over, led on       given up here: the store answers for it
==========================  ===================================================================================

What it cannot do: keep two nodes from fetching one page meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from scrapy_lease.backlog.lanes import Ask, Outgoing
from scrapy_lease.leases.items import Hold, Ledger
from scrapy_lease.runtime import Runtime
from scrapy_lease.scheduler.found import Found, Source
from scrapy_lease.scheduler.silence import Silence
from scrapy_lease.scheduler.tries import Tries
from scrapy_lease.scheduler.under_way import new_hold
from scrapy_lease.store.messages import Answer, Claim, Grant, Standing

logger = logging.getLogger(__name__)

#: Seconds between looks at the store and the window.
TICK = 0.05
#: Seconds before an item that is contended only for now is asked for again.
AGAIN = 0.5


class Unsafe:
    """See the module's docstring.

    :param wanted: how many requests the window lacks, and the room of each download slot that has some.
    :param standing: how the run stood when the store was heard last.
    :param wake: lets the backlog make a turn, once it makes turns; *engine*: lets the engine ask for requests.
    :param fate: what becomes of requests of which the store was not told when the crawl ends, for the log.
    """

    def __init__(
        self, runtime: Runtime, ledger: Ledger, tries: Tries, source: Source, *,
        wanted: Callable[[], tuple[int, dict[str, int]]], standing: Callable[[], Standing | None],
        wake: Callable[[], None], engine: Callable[[], None], fate: str,
    ) -> None:  # fmt: skip
        self.is_on = runtime.settings.on_store_down == "unsafe_local"
        self._runtime = runtime
        self._silence = Silence(runtime)
        self._ledger = ledger
        self._tries = tries
        self._source = source
        self._wanted = wanted
        self._standing = standing
        self._wake = wake
        self._engine = engine
        self._fate = fate
        self._is_alone = False
        self._unclaimed: dict[bytes, Found] = {}
        self._pushes: deque[Outgoing] = deque()
        self._again = 0.0
        #: How the run stood when an answer came last.
        self._stood: Standing | None = None
        #: Of the session that was open when the store went.
        self._epoch = 0
        self._task: asyncio.Task[None] | None = None
        #: Since the store went: items granted here; of those, leased since, and others' as well; is that to be told?
        self._granted = self._claimed = self._elsewhere = 0
        self._is_to_tell = False
        #: Items of which the store will not hear that they were fetched.
        self._fetched = 0

    def __repr__(self) -> str:
        state = "alone" if self._is_alone else "leased"
        return f"<Unsafe: {state}, {len(self._unclaimed)} to be claimed, {len(self._pushes)} to be pushed>"

    @property
    def waiting(self) -> int:
        """How many requests are to be pushed when the store is back."""
        return len(self._pushes)

    @property
    def is_clear(self) -> bool:
        """Does the store know of everything that is here?"""
        return not self._is_alone and not self._unclaimed and not self._pushes

    def start(self) -> None:
        """Begin to look, if LEASE_ON_STORE_DOWN says so."""
        if self.is_on:
            self._runtime.gate.is_alone = self.is_alone
            self._task = asyncio.ensure_future(self._run())

    def is_alone(self) -> bool:
        """Does this crawl go on without the store at this instant?"""
        if self._task is None:
            return False
        if self._is_alone and self._silence.is_over():
            self._end()
        elif not self._is_alone and self._silence.has_begun():
            self._begin()
        return self._is_alone

    def outgoing(self, limit: int) -> list[Outgoing]:
        """Return up to *limit* requests to be pushed."""
        return [self._pushes.popleft() for _ in range(min(limit, len(self._pushes)))]

    def asking(self, limit: int) -> list[Ask]:
        """Return up to *limit* items that are to be claimed."""
        is_away = self.is_alone() and self._runtime.availability.down_since is not None
        if not self._unclaimed or is_away or time.monotonic() < self._again:
            return []
        asks: list[Ask] = []
        for found in islice(self._unclaimed.values(), limit):
            found.epoch = self._runtime.session.epoch
            asks.append(found)
        return asks

    def claimed(self, asks: Sequence[Ask], claims: Sequence[Claim]) -> None:
        """What :meth:`asking` asked for was answered."""
        with_engine, is_open = self._tries.with_engine(), self._is_open()
        for ask, claim in zip(asks, claims, strict=True):
            found = self._unclaimed.get(ask.entry.digest)
            if found is ask:
                self._answered(found, claim, with_engine, is_open)
        if self._unclaimed:
            self._wake()
        else:
            self._tell()

    def granted(self, grants: Sequence[Grant]) -> list[Grant]:
        """Keep those of *grants* whose item was granted here already, and return the others."""
        if not self._unclaimed:
            return list(grants)
        others = []
        for grant in grants:
            found = self._unclaimed.get(grant.digest)
            if found is None:
                others.append(grant)
            else:
                self._leased(found, grant.fence, grant.attempts, grant.deaths)
        if not self._unclaimed:
            self._tell()
        return others

    def was_granted(self, digest: bytes, claim: Claim) -> bool:
        """The store, asked before it went, has leased an item to this session; False: it is none of those here."""
        found = self._unclaimed.get(digest)
        if found is None:
            return False
        self._leased(found, claim.fence, claim.attempts, claim.deaths)
        if not self._unclaimed:
            self._tell()
        return True

    def leave(self) -> None:
        """The crawl ends: push what was not fetched, as far as the store answers; what is under way is void."""
        if self._task is None:
            return
        self._task.cancel()
        self._task = None
        self._is_alone = False
        self._pushes += self._source.kept(everything=False)
        for found in list(self._unclaimed.values()):
            hold = found.hold
            self._drop(found)
            if hold.is_over and hold.has_ended_well:
                self._fetched += 1
                self._safe(found)
            else:
                self._pushes.append(Outgoing(found.entry, found.parent))

    def abandoned(self, here: int) -> None:
        """The store did not answer to the end; *here*: requests that the engine gave and that were not pushed."""
        if self.is_on and (self._pushes or self._fetched):
            logger.warning(
                "The store was away when this crawl ended, and knows nothing of what it did meanwhile: %d items were "
                "fetched; %d requests were found and not fetched: %s",
                self._fetched, len(self._pushes) + here, self._fate,
            )  # fmt: skip

    # when

    def _begin(self) -> None:
        self._is_alone = self._is_to_tell = True
        self._epoch = self._runtime.session.epoch
        logger.warning(
            "The store %s does not answer: this crawl goes on without leases (LEASE_ON_STORE_DOWN = 'unsafe_local'); "
            "what it fetches now others may fetch too", self._runtime.shown,
        )  # fmt: skip

    def _end(self) -> None:
        self._is_alone = False
        # A store in which the session is gone may have lost the rest as well.
        self._pushes += self._source.kept(everything=self._epoch != self._runtime.session.epoch)
        self._again, self._stood = 0.0, None
        if not self._unclaimed:
            self._tell()
        self._wake()

    def _tell(self) -> None:
        if self._is_to_tell and not self._is_alone:
            logger.info(
                "The store knows again what this crawl did without it: of %d items that it granted itself, %d are "
                "leased or done, %d were fetched elsewhere too", self._granted, self._claimed, self._elsewhere,
            )  # fmt: skip
            self._granted = self._claimed = self._elsewhere = 0
            self._is_to_tell = False

    # what

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                if self.is_alone():
                    self._fill()
            except Exception:
                logger.exception("What was found could not be granted; it is tried again")

    def _fill(self) -> None:
        standing = self._standing()
        if standing is not None and standing.paused:
            return
        free, rooms = self._wanted()
        for found in self._source.unleased(free, rooms) if free else ():
            self._grant(found)
        self._engine()

    def _grant(self, found: Found) -> None:
        entry = found.entry
        found.hold = new_hold(entry, 0, self._runtime.session.epoch)
        if self._tries.granted_here(found.hold, found.request, is_out=found.is_out):
            self._unclaimed[entry.digest] = found
            self._granted += 1
        else:
            self._safe(found)

    def _answered(self, found: Found, claim: Claim, with_engine: set[Hold], is_open: bool) -> None:
        if claim.answer is Answer.GRANTED:
            self._leased(found, claim.fence, claim.attempts, claim.deaths)
            return
        is_certain = is_open and found.epoch == self._runtime.session.epoch
        if claim.answer is Answer.CONTENDED and not is_certain:
            self._again = time.monotonic() + AGAIN
            return
        if found.hold.verdict is not None or found.hold in with_engine:
            self._elsewhere += 1
            self._runtime.stats.count("items/elsewhere")
        else:
            self._runtime.stats.count("items/duplicate")
        self._drop(found)
        push = self._source.given_up(found, claim.answer)
        if push is not None:
            self._pushes.append(push)
        else:
            self._safe(found)

    def _is_open(self) -> bool:
        """Was anything granted when this answer was given? If the turn before and this one say so."""
        before, self._stood = self._stood, self._standing()
        return not any(stood is None or stood.grace or stood.paused for stood in (before, self._stood))

    def _leased(self, found: Found, fence: int, attempts: int, deaths: int) -> None:
        del self._unclaimed[found.entry.digest]
        self._claimed += 1
        self._safe(found)
        self._tries.leased(found.hold, fence, attempts, deaths)

    def _drop(self, found: Found) -> None:
        del self._unclaimed[found.entry.digest]
        self._tries.lost([found.hold])

    def _safe(self, found: Found) -> None:
        if found.parent is not None:
            self._ledger.child_safe(found.parent)
