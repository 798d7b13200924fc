"""A picture of all that goes on in a namespace, taken without changing anything.

What it cannot show: what only the nodes know, such as which of the leased requests are in flight, or whether a node can
reach the store at present; a node that cannot is *silent* like one that has died.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scrapy_lease.store.instant import Instant, pairs
from scrapy_lease.store.keys import Scope
from scrapy_lease.store.pool_reading import PoolPicture, known_pools, picture_of
from scrapy_lease.store.tools import Read, Tools

#: Counters that a job's hash ``meta`` holds for the present run.
COUNTERS = ("accepted", "duplicate", "done", "rejected", "failed", "died", "taken_over")

_SESSION_FIELDS = ("node", "pid", "generation", "opened", "beat", "ttl", "closed", "waits", "waited")

#: ms for which counts what a session told of its requests that wait.
_TOLD = 5000


@dataclass(frozen=True, slots=True)
class SessionPicture:
    """A session that is not over, or is and still holds items.

    :param state: ``live``; ``silent``: no heartbeat for longer than its time to live, as nobody has taken over yet;
        ``expired``: its deadline has passed; ``closed``: it ended in order.
    :param age: s since it was opened.
    :param last_beat: s since its last heartbeat.
    :param deadline_left: s until its deadline on the lease clock.
    :param ttl: its time to live in s, None before its first heartbeat.
    :param waits: what its requests wait for, as it told lately: (cause, requests, s until some may go on).
    """

    id: str
    node: str
    job: str
    run: str
    pid: int | None
    state: str
    draining: bool
    age: float | None
    last_beat: float | None
    deadline_left: float
    ttl: float | None
    generation: int | None
    held: int
    waits: tuple[tuple[str, int, float], ...] = ()

    @property
    def is_live(self) -> bool:
        """Is its deadline ahead?"""
        return self.state in ("live", "silent")


@dataclass(frozen=True, slots=True)
class JobPicture:
    """A job, or a named run of it.

    :param number: which run of the job this is, counted from 1.
    :param began: when this run began, in s of the server's wall clock.
    :param next_due: s until the next delayed request is ready, None if none is delayed.
    :param reader: node and session that read ``start()``; None: nobody does.
    """

    job: str
    run: str
    number: int
    began: int | None
    ready: int
    delayed: int
    leased: int
    dead: int
    next_due: float | None
    counters: dict[str, int]
    paused: bool
    reader: str | None
    start_over: bool
    sessions: tuple[SessionPicture, ...]

    def waiting(self, grace: float) -> Iterator[tuple[str, int, float | None]]:
        """Return what requests wait for, as (cause, requests, s until it may end or None).

        :param grace: s for which the server, which restarted, grants nothing yet.
        """
        live = [session for session in self.sessions if session.is_live]
        if self.ready:
            if grace > 0:
                yield "grace", self.ready, grace
            elif self.paused:
                yield "paused", self.ready, None
            elif not live:
                yield "no session", self.ready, None
            elif all(session.draining for session in live):
                yield "draining", self.ready, None
            else:
                yield "downloader full", self.ready, None
        if self.delayed:
            yield "delayed", self.delayed, self.next_due
        yield from _waiting(session for session in live if session.state == "live")
        gone = [session for session in self.sessions if session.state != "live" and session.held]
        if gone:
            yield "holder gone", sum(session.held for session in gone), max(each.deadline_left for each in gone)


@dataclass(frozen=True, slots=True)
class Picture:
    """A namespace, or one job of it; its pools serve all jobs.

    :param generation: how often its server was started.
    :param grace: s for which the server, which restarted, grants nothing yet.
    :param draining: the nodes that are asked to leave, whether they have a session or not.
    """

    namespace: str
    generation: int
    grace: float
    draining: tuple[str, ...]
    jobs: tuple[JobPicture, ...]
    pools: tuple[PoolPicture, ...]

    @property
    def sessions(self) -> list[SessionPicture]:
        """The sessions of all jobs."""
        return [session for job in self.jobs for session in job.sessions]


async def take_picture(tools: Tools, job: str | None = None) -> Picture:
    """Look at the namespace, or at one *job* of it."""
    space = tools.namespace
    scopes = [space.scope(*names) for names in await tools.scopes() if job in (None, names[0])]
    time = await tools.command("TIME")
    clock, control = map(pairs, await tools.look([Read("HGETALL", space.clock), Read("HGETALL", space.control)]))
    now = Instant.of(clock, time)
    jobs = await asyncio.gather(*(_job_picture(tools, scope, control, now) for scope in scopes))
    pools = await asyncio.gather(*(picture_of(tools, pool, now) for pool in await known_pools(tools)))
    grace = max(0, int(clock.get("grace", 0)) - now.lease) / 1000
    draining = tuple(sorted(flag.removeprefix("drain:") for flag in control if flag.startswith("drain:")))
    return Picture(space.name, int(clock.get("generation", 0)), grace, draining, tuple(jobs), tuple(pools))


async def _job_picture(tools: Tools, scope: Scope, control: dict[str, str], now: Instant) -> JobPicture:
    reads = [
        Read("HGETALL", scope.key("meta")),
        Read("ZCARD", scope.key("delayed")),
        Read("HLEN", scope.key("state")),
        Read("HLEN", scope.key("dead")),
        Read("ZRANGE", scope.key("delayed"), ("0", "0", "WITHSCORES")),
        Read("HGETALL", scope.key("start")),
        Read("ZRANGE", scope.key("members"), ("0", "-1", "WITHSCORES")),
    ]
    flat_meta, delayed, known, dead, first_due, flat_start, members = await tools.look(reads)
    meta, start, deadlines = pairs(flat_meta), pairs(flat_start), pairs(members)
    ready = int(meta.get("ready", 0))
    sessions = await _session_pictures(tools, scope, deadlines, control, now)
    return JobPicture(
        job=scope.job,
        run=scope.run,
        number=int(meta.get("run", 0)),
        began=int(meta["run_began"]) // 1000 if "run_began" in meta else None,
        ready=ready,
        delayed=delayed,
        leased=max(0, known - ready - delayed),
        dead=dead,
        next_due=max(0, int(first_due[1]) - now.lease) / 1000 if first_due else None,
        counters={name: int(meta.get(name, 0)) for name in COUNTERS},
        paused=f"pause:{scope.job}" in control,
        reader=_reader(start, sessions),
        start_over="over" in start,
        sessions=tuple(sessions),
    )


async def _session_pictures(
    tools: Tools, scope: Scope, deadlines: dict[str, str], control: dict[str, str], now: Instant
) -> list[SessionPicture]:
    reads = []
    for sid in deadlines:
        reads += [Read("HMGET", tools.namespace.session(sid), _SESSION_FIELDS), Read("HLEN", scope.held(sid))]
    replies = await tools.look(reads) if reads else []
    pictures = []
    for (sid, deadline), values, held in zip(deadlines.items(), replies[::2], replies[1::2], strict=True):
        fields = {name: value.decode() for name, value in zip(_SESSION_FIELDS, values, strict=True) if value}
        pictures.append(_session_picture(sid, scope, int(deadline), fields, held, control, now))
    return sorted(pictures, key=lambda picture: (picture.node, picture.id))


def _session_picture(
    sid: str, scope: Scope, deadline: int, fields: dict[str, str], held: int, control: dict[str, str], now: Instant
) -> SessionPicture:
    opened, ttl = (int(fields[name]) if name in fields else None for name in ("opened", "ttl"))
    beat = int(fields["beat"]) if "beat" in fields else opened
    node = fields.get("node", "")
    state = "live"
    if "closed" in fields:
        state = "closed"
    elif deadline <= now.lease:
        state = "expired"
    elif beat is not None and now.wall - beat > (ttl or deadline - now.lease):
        state = "silent"
    return SessionPicture(
        id=sid,
        node=node,
        job=scope.job,
        run=scope.run,
        pid=int(fields["pid"]) if fields.get("pid", "").isdigit() else None,
        state=state,
        draining=f"drain:{node}" in control,
        age=None if opened is None else (now.wall - opened) / 1000,
        last_beat=None if beat is None else (now.wall - beat) / 1000,
        deadline_left=max(0, deadline - now.lease) / 1000,
        ttl=None if ttl is None else ttl / 1000,
        generation=int(fields["generation"]) if "generation" in fields else None,
        held=held,
        waits=_waits(fields, now),
    )


def _waits(fields: dict[str, str], now: Instant) -> tuple[tuple[str, int, float], ...]:
    if now.lease - int(fields.get("waited", 0)) > _TOLD:
        return ()
    return tuple((cause, number, wait / 1000) for cause, number, wait in json.loads(fields.get("waits", "[]")))


def _waiting(sessions: Iterable[SessionPicture]) -> Iterator[tuple[str, int, float]]:
    """Yield what requests of several sessions wait for, each cause once."""
    causes: dict[str, tuple[int, float]] = {}
    for cause, number, seconds in (wait for session in sessions for wait in session.waits):
        requests, first = causes.get(cause, (0, seconds))
        causes[cause] = requests + number, min(first, seconds)
    yield from ((cause, *causes[cause]) for cause in sorted(causes))


def _reader(start: dict[str, str], sessions: Sequence[SessionPicture]) -> str | None:
    if "reader" not in start:
        return None
    node = next((session.node for session in sessions if session.id == start["reader"]), "a session that is gone")
    return f"{node} ({start['reader']})"
