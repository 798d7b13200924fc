"""One async method for each script of a pool: leased proxies, and with another configuration leased accounts.

A client of a session calls, in this order:

1. :meth:`PoolScripts.report` with what it holds (nothing at first): before its first take, after each loss (with the
   lost session as *previous*), and at once when a take raises :class:`GenerationChanged` or a heartbeat tells of
   another generation. What it registered within the last seconds it registers again before that.
2. :meth:`PoolScripts.take` whenever it needs more; at least once a second while it waits, and at each heartbeat while
   it holds or has asked for anything, if only to be told what others need of it (:attr:`PoolStanding.yields`,
   :attr:`Take.recalled`). Wanting nothing any more is said by a take of nothing.
   A session that the answer names as expired it reclaims, 100 leases a call, with a take after each.
3. :meth:`PoolScripts.settle` with verdicts and what it gives back, as one batch a turn.

Calls are numbered for each verb and pool, as in :mod:`scrapy_lease.store.scripts`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scrapy_lease.exceptions import OtherDays, StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.client import Channel
from scrapy_lease.store.columns import fence_text, pack, raw
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.messages import answer, check
from scrapy_lease.store.permits import Terms, ask_of
from scrapy_lease.store.refilling import Refill, read_refill, refill_keys
from scrapy_lease.store.taking import Lease, PoolStanding, Rest, Take, Tie, packed_ties, read_take

__all__ = ["Backoff", "Lease", "PoolScripts", "PoolStanding", "Resource", "Rest", "Take", "Tie", "Verdict"]

#: What settle.lua calls the verdicts.
_CODES = {
    "ok": "o", "ban": "n", "hang": "h", "broken": "k", "back": "b", "gone": "g", "view": "v",
    "uses": "u", "slow": "s", "cool": "c", "demote": "d", "jar": "j",
}  # fmt: skip
#: Arguments that need not be told.
_NOTHING = ((), (0,))
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]+")
_LONGEST_NAME = 999


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as its provider gives it.

    :param id: its identity; no secrets, spaces or control characters in it: it is shown.
    :param expiry: when the provider takes it back, in ms of the wall clock; 0: never.
    :param exit: the address that sites see, "" if it is not known: identities of one exit are leased one at a time.
    :param body: what a holder needs to use it.
    :param spread: 0 to 1000, a random number: how early it stands among the free ones (see ``pool_register.lua``).
    """

    id: str
    body: bytes
    expiry: int = 0
    exit: str = ""
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long something rests: *first* ms, doubled with each strike up to *longest*, less up to a quarter.

    :param share: 0 to 1000, a random number: how much of that quarter.
    """

    first: int
    longest: int
    share: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a session says of a resource it holds.

    ``ok`` (site), ``ban`` and ``hang`` (site, backoff), and ``view`` (site, 1 if it has just served it, suspect) leave
    it leased; ``broken`` (backoff), ``back`` (ms until it may be handed out again, or nothing) and ``gone`` (reason)
    end the lease. What is said of accounts besides is in ``_account_settle.lua``: ``uses``, ``slow`` and ``jar`` leave
    it leased, ``cool`` and ``demote`` end the lease.
    """

    id: str
    fence: int
    verb: str
    args: tuple[str | int | bytes | list[str | int] | Backoff, ...] = ()


class PoolScripts:
    """The scripts of one pool over one connection, for one session at a time."""

    def __init__(self, channel: Channel, keys: PoolKeys) -> None:
        self.channel = channel
        self.keys = keys
        self._script = "account" if keys.kind == "account" else "pool"
        self._reported = ""

    async def report(
        self, sid: str, n: int, holds: Sequence[tuple[str, int]], *, previous: str = "",
        told: Sequence[tuple[int, int] | None] = (),
    ) -> list[int]:  # fmt: skip
        """Say what the session holds, as (id, fence); *previous*: the lost session that held it.

        :param told: of each account, permits of a day that the store had granted when it said so last, and that day.
        :returns: the fence now held for each, 0 where it is lost.
        :raises SessionLost: the session is over.
        """
        columns = ([name for name, _ in holds], [fence_text(fence) for _, fence in holds], previous)
        known = {number: list(row) for number, row in enumerate(told, 1) if row}
        packed = pack((*columns, self._lane("report"), *([known] if known else [])))
        call = Call(f"{self._script}_report", self.keys.all(sid, previous), [sid, n, packed])
        reply: bytes = await self.channel.call(call)
        self._reported, *fences = answer(reply, sid, "report", n).split()
        return [int(fence) for fence in fences]

    async def take(
        self, sid: str, n: int, asks: Sequence[tuple[str, int]] = (), *, margin: int = 0, grace: int = 0,
        ties: Sequence[Tie] = (), ttl: int = 0, answered: int = -1, owned: bool = False,
        terms: Terms | None = None,
    ) -> Take:  # fmt: skip
        """Lease free resources, up to so many for each site of *asks*, as (site, number); "" is any site.

        :param margin: ms that a resource must have left; what has less is cleared away.
        :param grace: ms for which what a dead session held serves nobody.
        :param ties: sticky keys that want one lease each on top of *asks*, which have the site of each.
        :param ttl: ms for which a key stays tied after its last use.
        :param answered: ms ago that the last answer came to this session through the pool; -1: none did.
        :param owned: all that this session asks for is made for keys.
        :param terms: how accounts may be used now; only for these.
        :raises SessionLost: the session is over.
        :raises GenerationChanged: the session has not reported to this server yet.
        :raises OtherDays: nothing happened: the server's clock is not within the days of *terms*.
        """
        ask: dict[str, Any] = {
            "asks": list(asks), "ties": packed_ties(ties, asks, self.keys.namespace.name), "ttl": ttl,
            "reported": self._reported, "margin": margin, "grace": grace, "answered": answered,
            "verb": self._lane("take"), "owned": int(owned),
        }  # fmt: skip
        keys = [*self.keys.all(sid), *self.keys.ties]
        if terms is not None:
            ask["account"] = ask_of(terms)
        call = Call(f"{self._script}_take", keys, [sid, n, pack(ask)])
        (status, *standing), *rest = await self.channel.call(call)
        if status == b"days":
            raise OtherDays(standing[0])
        check(status, sid, "take", n)
        return read_take(standing, *rest)

    async def reclaim(self, sid: str, *, grace: int = 0) -> tuple[int, int]:
        """End up to 100 leases of *sid*, a session that is over; *grace* as for :meth:`take`.

        :returns: (ended, left); left is -1 while it lives, or its grace or the server's runs.
        """
        ended, left = await self.channel.call(Call(f"{self._script}_reclaim", self.keys.all(sid), [sid, grace]))
        return ended, left

    async def settle(self, sid: str, n: int, verdicts: Sequence[Verdict]) -> str:
        """Say how leased resources did, and give them back.

        :returns: one character each: ``+`` accepted, ``-`` not held (any more), ``=`` the site is paused instead of the
            resource, ``!`` banned at so many sites that it rests for all as soon as it is given back.
        """
        columns = (
            [verdict.id for verdict in verdicts], [fence_text(verdict.fence) for verdict in verdicts],
            "".join(_CODES[verdict.verb] for verdict in verdicts),
            {number: _flat(verdict.args) for number, verdict in enumerate(verdicts, 1) if verdict.args not in _NOTHING},
        )  # fmt: skip
        return answer(await self._call("settle", sid, n, *columns), sid, "settle", n)

    async def register(self, sid: str, n: int, resources: Sequence[Resource]) -> str:
        """Take resources in, or bring what is known of them up to date; ``sid=""`` from outside, not numbered.

        :returns: one character each: ``+`` new, ``=`` known, ``.`` expired already, ``x`` revoked, and stays so.
        :raises SessionLost: the server knows nothing of the session.
        :raises StoreRefused: an id or exit address cannot be one.
        """
        for resource in resources:
            _check(resource)
        columns = (
            [resource.id for resource in resources], [resource.expiry for resource in resources],
            [resource.exit for resource in resources], [raw(resource.body) for resource in resources],
            [resource.spread for resource in resources],
        )  # fmt: skip
        reply = await self._call("register", sid, n, *columns)
        return answer(reply, sid, "register", n)

    async def refill(
        self, sid: str, n: int, state: str, limits: Sequence[tuple[int, int, bool]] = (), **details: Any
    ) -> Refill:
        """Ask for the duty of filling the pool, or tell how it goes: *state*, *details* as in ``pool_refill.lua``.

        :param limits: (most, window in ms, are calls counted?), no two alike in window and kind.
        :raises SessionLost: the session is over.
        """
        call = {"verb": self._lane("refill"), "state": state, "limits": [(*most, int(of)) for *most, of in limits]}
        reply = await self.channel.call(
            Call(f"{self._script}_refill", refill_keys(self.keys, sid, limits), [sid, n, pack(call | details)])
        )
        return read_refill(reply, sid, n)

    async def change(self, verb: str, ids: Sequence[str]) -> str:
        """Do what an operator asks: ``drain``, ``undrain``, ``revoke`` or ``free``, as in ``pool_change.lua``.

        :returns: one character each: ``+`` changed, ``=`` it was so already, ``-`` unknown.
        """
        return await self._change(verb, list(ids))

    async def cool(self, ids: Sequence[str], length: int) -> str:
        """Let accounts be used by nobody for so many ms; who holds one is told. Returns what :meth:`change` does."""
        return await self._change("cool", list(ids), length)

    async def _change(self, *asked: Any) -> str:
        reply: bytes = await self.channel.call(Call(f"{self._script}_change", self.keys.all(""), [pack(asked)]))
        return reply.decode()

    def _lane(self, verb: str) -> str:
        return f"pool/{self.keys.label}/{verb}"

    async def _call(self, verb: str, sid: str, n: int, *columns: Any) -> bytes:
        packed = pack((*columns, self._lane(verb)))
        reply: bytes = await self.channel.call(Call(f"{self._script}_{verb}", self.keys.all(sid), [sid, n, packed]))
        return reply


def _flat(args: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for arg in args:
        if isinstance(arg, Backoff):
            flat += (arg.first, arg.longest, arg.share)
        else:
            flat.append(raw(arg) if isinstance(arg, bytes) else arg)
    return flat


def _check(resource: Resource) -> None:
    if not _NAME.fullmatch(resource.id):
        raise StoreRefused(f"a resource's id is {resource.id!r}: it must have no spaces or control characters")
    if resource.exit and (not _NAME.fullmatch(resource.exit) or len(resource.exit.encode()) > _LONGEST_NAME):
        raise StoreRefused(f"the exit address of {resource.id} is {resource.exit!r}: give an address, or none")
