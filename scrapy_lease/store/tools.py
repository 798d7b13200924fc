"""What people's tools ask of the store beside what sessions do: a look at it, and the work of an operator.

Nothing here is numbered: each call may be repeated and then finds its work done. Large keys are walked in chunks; what
comes or goes meanwhile may or may not be seen, what stays is seen at least once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.client import Channel
from scrapy_lease.store.columns import pack_strings
from scrapy_lease.store.keys import Namespace, Scope
from scrapy_lease.store.reading import ItemRecord, read_records

#: Fields or keys of one call: some milliseconds of the server's time.
CHUNK = 500

T = TypeVar("T")

_pack = msgspec.msgpack.Encoder().encode


class HeldByLive(StoreRefused):
    """The backlog is not cleared: a live session holds items of it. :attr:`sid` names the session."""

    def __init__(self, sid: str, number: int) -> None:
        super().__init__(f"session {sid} is live and holds {number} {'item' if number == 1 else 'items'}")
        self.sid = sid
        self.number = number


@dataclass(frozen=True, slots=True)
class Read:
    """One read-only command on one key."""

    command: str
    key: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exported:
    """An item as it leaves one backlog and enters another; *order* is its place (see ``store.reading``)."""

    digest: bytes
    slot: str
    order: str
    mark: str
    attempts: int
    deaths: int
    payload: bytes


class Tools:
    """See the module's docstring. Errors are those of :meth:`scrapy_lease.store.client.Channel.call`."""

    def __init__(self, channel: Channel, namespace: Namespace) -> None:
        self.channel = channel
        self.namespace = namespace

    async def command(self, *args: bytes | str | int) -> Any:
        """Run a plain command and return its reply; errors as of :meth:`~.client.Channel.command`."""
        return await self.channel.command(*args)

    async def sized(self, scope: Scope, *, create: bool = False) -> Scope:
        """Return *scope* with as many done buckets as it was created with, whatever LEASE_EXPECTED_ITEMS says now.

        :param create: if nobody has, it is created as it is given.
        """
        if create:
            await self.command("HSETNX", scope.key("meta"), "buckets", scope.buckets)
        buckets = await self.command("HGET", scope.key("meta"), "buckets")
        return scope if buckets is None else replace(scope, buckets=int(buckets))

    async def look(self, reads: Sequence[Read]) -> list[Any]:
        """Return the reply of each read, all of one instant."""
        rows = [(read.command, *read.args) for read in reads]
        replies: list[Any] = await self.channel.call(Call("look", [read.key for read in reads], [_pack(rows)]))
        return replies

    async def tick(self) -> tuple[int, int]:
        """Advance the lease clock; return it and the server's wall clock, both in ms."""
        now, wall = await self.channel.call(Call("tick", [self.namespace.clock], []))
        return now, wall

    async def scopes(self) -> list[tuple[str, str]]:
        """Return the (job, run) of each scope that the namespace has ever had and that was not deleted, sorted."""
        prefix, suffix = f"{self.namespace.prefix}:job:", ":meta"
        found = set()
        async for keys in self.keys(f"{prefix.replace('*', '[*]')}*{suffix}"):
            for key in keys:
                job, _, run = key.decode()[len(prefix) : -len(suffix)].partition("@")
                found.add((unquote(job), unquote(run)))
        return sorted(found)

    async def set_flag(self, field: str, on: bool) -> None:
        """Set or remove a flag of :attr:`~scrapy_lease.store.keys.Namespace.control`."""
        if on:
            await self.command("HSET", self.namespace.control, field, 1)
        else:
            await self.command("HDEL", self.namespace.control, field)

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Walk the keys that match *pattern*, a chunk at a time."""
        cursor: bytes | int = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "MATCH", pattern, "COUNT", 10 * CHUNK)
            if keys:
                yield keys
            if int(cursor) == 0:
                return

    async def fields(self, key: str) -> AsyncIterator[dict[bytes, bytes]]:
        """Walk the fields of the hash *key* with their values, a chunk at a time."""
        cursor: bytes | int = 0
        while True:
            cursor, flat = await self.command("HSCAN", key, cursor, "COUNT", CHUNK)
            if flat:
                yield dict(zip(flat[::2], flat[1::2], strict=True))
            if int(cursor) == 0:
                return

    async def records(self, scope: Scope) -> AsyncIterator[dict[bytes, ItemRecord]]:
        """Walk the items of the backlog, whatever their state, a chunk at a time."""
        sids = [sid.decode() for sid in await self.command("ZRANGE", scope.key("members"), 0, -1)]
        async for state in self.fields(scope.key("state")):
            digests = list(state)
            held = {}
            for sid in sids:
                leases = await self.command("HMGET", scope.held(sid), *digests)
                held[sid] = {digest: lease for digest, lease in zip(digests, leases, strict=True) if lease}
            due = await self.command("ZMSCORE", scope.key("delayed"), *digests)
            delayed = {digest for digest, time in zip(digests, due, strict=True) if time is not None}
            yield read_records(state, held, delayed)

    async def payloads(self, scope: Scope, digests: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored request of each dead letter, None where there is none."""
        replies: list[bytes | None] = await self.command("HMGET", scope.key("payload"), *digests)
        return replies

    async def clear(self, scope: Scope, *, force: bool) -> int:
        """Remove a chunk of the backlog; 0: nothing is left of it.

        :param force: also while live sessions hold items: what they hold is lost to them.
        :raises HeldByLive: one does, and *force* is false.
        """
        sids = [sid.decode() for sid in await self.command("ZRANGE", scope.key("members"), 0, -1)]
        digests: list[bytes] = await self.command("HRANDFIELD", scope.key("state"), CHUNK)
        keys = [
            self.namespace.clock,
            *(scope.key(part) for part in ("members", "meta", "ready", "slots", "delayed", "state")),
            *(scope.held(sid) for sid in sids),
            *(scope.mark(digest)[0] for digest in digests),
        ]
        status, *rest = await self.channel.call(Call("clear", keys, [int(force), _pack(sids), pack_strings(digests)]))
        if status == b"held":
            raise HeldByLive(rest[0].decode(), rest[1])
        if status == b"unknown":
            return await self.clear(scope, force=force)
        removed: int = rest[0]
        return removed

    async def restore(self, scope: Scope, items: Sequence[Exported], *, done_ttl: int) -> str:
        """Bring up to :data:`CHUNK` exported items back, pending.

        :param done_ttl: seconds for which a done mark counts, 0: for ever.
        :returns: one character each: ``+`` accepted, ``=`` in the backlog already, ``.`` done already.
        """
        marks = [scope.mark(item.digest) for item in items]
        parts = ("meta", "ready", "slots", "state", "payload", "dead")
        keys = [self.namespace.clock, *map(scope.key, parts), *(bucket for bucket, _ in marks)]
        rows = [(item.slot, item.order, item.mark, item.attempts, item.deaths, done_ttl) for item in items]
        args: list[bytes] = [_pack(rows)]
        for item, (_, field) in zip(items, marks, strict=True):
            args += (item.digest, field, item.payload)
        reply: bytes = await self.channel.call(Call("restore", keys, args))
        return reply.decode()

    async def discard(self, scope: Scope, digests: Sequence[bytes]) -> int:
        """Remove dead letters with their requests; return how many there were."""
        removed = 0
        for chunk in chunks(digests):
            keys = [scope.key("dead"), scope.key("payload"), *(scope.mark(digest)[0] for digest in chunk)]
            removed += await self.channel.call(Call("discard", keys, chunk))
        return removed

    async def forget(self, scope: Scope, digests: Sequence[bytes]) -> int:
        """Remove the marks of items that are done; return how many there were."""
        removed = 0
        for chunk in chunks(digests):
            keys = [scope.key("state"), scope.key("dead"), *(scope.mark(digest)[0] for digest in chunk)]
            removed += await self.channel.call(Call("forget", keys, chunk))
        return removed

    async def forget_all(self, scope: Scope) -> int:
        """Remove the marks of all items of *scope* that are done; return how many there were.

        Those of dead letters go too and are counted: a dead letter that is pushed is pending again with or without one.
        """
        removed = 0
        pattern = scope.key("done:").replace("*", "[*]")
        async for keys in self.keys(f"{pattern}*"):
            for chunk in chunks(keys):
                removed += sum(await self.look([Read("HLEN", key.decode()) for key in chunk]))
                await self.command("UNLINK", *chunk)
        async for state in self.fields(scope.key("state")):
            for known in chunks(list(state)):
                buckets = [scope.mark(digest)[0] for digest in known]
                marked = [self.namespace.clock, scope.key("meta"), scope.key("state"), *buckets]
                removed -= await self.channel.call(Call("remark", marked, known))
        return max(0, removed)


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return *values* in parts of :data:`CHUNK`."""
    return (values[first : first + CHUNK] for first in range(0, len(values), CHUNK))
