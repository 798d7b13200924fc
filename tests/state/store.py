"""A scope on a real server, seen from outside the scripts: its keys read at one instant, its clock, its past."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from scrapy_lease.store.keys import Scope
from scrapy_lease.store.reading import ItemRecord, read_dead, read_ready, read_records

Snapshot = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the keys of a scope hold."""

    records: dict[bytes, ItemRecord]
    #: Of dead items.
    payloads: set[bytes]
    dead: dict[bytes, str]
    now: int
    #: How many items are pending, as the store counts them.
    pending: int
    #: Items of ready: slot, order and digest.
    ready: list[tuple[str, str, bytes]]
    slots: dict[str, float]
    delayed: dict[bytes, int]
    held: dict[str, set[bytes]]
    sessions: dict[str, int]
    members: dict[str, int]
    producing: set[str]

    def check(self) -> None:
        """Assert that each record is in exactly the one place that its state names, and that nothing else is."""
        states = {state: set() for state in ("pending", "delayed", "leased")}  # type: dict[str, set[tuple[str, bytes]]]
        for digest, record in self.records.items():
            states[record.state].add((record.session, digest))
        pending = [(record.slot, record.order, digest) for digest, record in self.records.items()
                   if record.state == "pending"]  # fmt: skip
        assert sorted(pending) == sorted(self.ready), "ready and the records of pending items differ"
        best: dict[str, float] = {}
        for slot, order, _ in self.ready:
            best[slot] = min(best.get(slot, float("inf")), float(order))
        assert best == self.slots, "the ranks of the slots are not those of their best items"
        assert {digest for _, digest in states["delayed"]} == set(self.delayed)
        held = [(sid, digest) for sid, digests in self.held.items() for digest in digests]
        assert sorted(held) == sorted(states["leased"]), "held sets and the records of leased items differ"
        assert not self.records.keys() & self.dead.keys(), "an item is alive and dead"
        assert len(self.ready) == self.pending, "the count of pending items is wrong"
        assert self.payloads == self.dead.keys(), "dead items without a payload, or the reverse"
        assert all(record.payload == digest for digest, record in self.records.items())


class Store:
    """See the module's docstring."""

    def __init__(self, client: redis.Redis[bytes], scope: Scope) -> None:
        self._client = client
        self._scope = scope

    def read(self, sids: Sequence[str]) -> Contents:
        """Return what the keys hold now; *sids*: all sessions there ever were."""
        key, space = self._scope.key, self._scope.namespace
        with self._client.pipeline() as pipe:
            pipe.hgetall(key("state")).hkeys(key("payload")).hgetall(key("dead"))
            pipe.zrange(key("ready"), 0, -1).zrange(key("slots"), 0, -1, withscores=True)
            pipe.zrange(key("delayed"), 0, -1, withscores=True)
            pipe.zrange(space.sessions, 0, -1, withscores=True).zrange(key("members"), 0, -1, withscores=True)
            pipe.smembers(key("producing"))
            pipe.hget(space.clock, "now").hget(key("meta"), "ready")
            for sid in sids:
                pipe.hgetall(self._scope.held(sid))
            replies = pipe.execute()
        state, payload, dead, ready, slots, waiting, sessions, members, producing, now, pending, *held = replies
        delayed = {digest: int(due) for digest, due in waiting}
        leases = dict(zip(sids, held, strict=True))
        return Contents(
            read_records(state, leases, delayed),
            set(payload),
            {digest: read_dead(data).reason for digest, data in dead.items()},
            int(now or 0),
            int(pending or 0),
            [place for entry in ready for place in read_ready(entry)],
            {slot.decode(): score for slot, score in slots},
            delayed,
            {sid: set(digests) for sid, digests in leases.items()},
            _deadlines(sessions),
            _deadlines(members),
            {sid.decode() for sid in producing},
        )

    def lock_wall(self) -> None:
        """Let the next script see a wall clock that was stepped back an hour: the lease clock stands still."""
        self._shift_wall(3_600_000)

    def step_wall(self) -> None:
        """Let the next script see a wall clock that was stepped forward an hour."""
        self._shift_wall(-3_600_000)

    def _shift_wall(self, milliseconds: int) -> None:
        self._client.hset(self._scope.namespace.clock, "wall", int(time.time() * 1000) + milliseconds)

    def pass_time(self, milliseconds: int) -> None:
        """Let the lease clock go on."""
        self._client.hincrby(self._scope.namespace.clock, "now", milliseconds)

    def pause(self, on: bool) -> None:
        """Set or remove the flag that pauses the job."""
        field = f"pause:{self._scope.job}"
        if on:
            self._client.hset(self._scope.namespace.control, field, 1)
        else:
            self._client.hdel(self._scope.namespace.control, field)

    def save(self) -> Snapshot:
        """Keep all keys as they are."""
        names = sorted(self._client.keys())
        with self._client.pipeline() as pipe:
            for name in names:
                pipe.dump(name)
            return list(zip(names, pipe.execute(), strict=True))

    def rename_server(self, run_id: str) -> None:
        """Let the next script find that another server wrote what it finds."""
        self._client.hset(self._scope.namespace.clock, "run_id", run_id)

    def lose_since(self, snapshot: Snapshot) -> None:
        """Have only what was written before *snapshot*."""
        with self._client.pipeline() as pipe:
            pipe.flushdb()
            for name, data in snapshot:
                pipe.restore(name, 0, data)
            pipe.execute()

    def clear(self) -> None:
        """Remove everything."""
        self._client.flushdb()


def _deadlines(scores: list[tuple[bytes, Any]]) -> dict[str, int]:
    return {sid.decode(): int(deadline) for sid, deadline in scores}
