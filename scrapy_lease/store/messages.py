"""What the scripts of :mod:`scrapy_lease.store.scripts` take and return.

What is made once for each item is a struct, which takes a tenth of the time of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from scrapy_lease.exceptions import GenerationChanged, SessionLost, StoreRefused


def check(status: bytes, sid: str, verb: str, n: int) -> None:
    """Raise what a reply says in the place of an answer to call *n* of *verb*; anything else passes.

    :raises SessionLost: session *sid* is over.
    :raises GenerationChanged: it has not reported to this server yet.
    :raises StoreRefused: a later call was answered.
    """
    if status == b"report":
        raise GenerationChanged
    if status == b"lost":
        raise SessionLost(f"session {sid} is over")
    if status == b"older":
        raise StoreRefused(f"call {n} of {verb} is older than one already answered")


def answer(reply: bytes, sid: str, verb: str, n: int) -> str:
    """Return a reply that is one string; raises what :func:`check` does."""
    check(reply, sid, verb, n)
    return reply.decode()


@dataclass(frozen=True, slots=True)
class Opened:
    """Reply of ``Scripts.open``: server generation, number of the run, live sessions of the scope."""

    generation: int
    run: int
    live: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Reply of ``Scripts.beat``."""

    generation: int
    live: int
    paused: bool
    draining: bool
    reported: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A request on its way into the backlog.

    :param mark: ``auto``: an item; ``run``: done counts for this run only; ``none``: not an item, never marked.
    :param ttl: seconds for which a mark counts; 0: for ever.
    """

    digest: bytes
    slot: str
    priority: int
    payload: bytes
    mark: str
    ttl: int = 0


class Grant(msgspec.Struct, frozen=True, gc=False):
    """An item leased to this session."""

    digest: bytes
    fence: int
    attempts: int
    deaths: int
    slot: str
    mark: str
    payload: bytes


class Answer(StrEnum):
    """What a claim of a named item was answered."""

    #: It is leased to this session.
    GRANTED = "+"
    #: Another session holds it, or nothing is granted now: ask again.
    CONTENDED = "="
    #: It failed, and its wait is not over.
    WAITING = "~"
    #: Done, rejected, or dead in this run.
    OVER = "."
    #: Over, and the page led to other items in this run.
    LEADS = ">"


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The answer to one entry of ``Scripts.claim``; *wait*: ms until a failed item may be asked for again."""

    answer: Answer
    fence: int = 0
    attempts: int = 0
    deaths: int = 0
    wait: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How the run stands. ``due``: ms until the next delayed item is ready, -1 if there is none; ``expired``: a session
    that is over and still holds items, or ``""``."""

    grace: bool
    ready: int
    delayed: int
    leased: int
    due: int
    drained: bool
    paused: bool
    expired: str


class Settlement(msgspec.Struct, frozen=True):
    """What became of a leased item: *verb* and its arguments as ``settle.lua`` lists them.

    ``done`` takes ``keep``, ``run`` or ``none`` as its mark, or ``leads`` (and whether it is kept) for a page that led
    to other items; ``rejected`` takes nothing, ``failed`` (delay ms, attempts allowed, reason, trace), ``dead``
    (reason, trace), ``back`` (delay ms), ``sent`` nothing.
    """

    digest: bytes
    fence: int
    verb: str
    args: tuple[Any, ...] = ()
