"""A scrapy-redis queue as the entries of a backlog; the queue itself is only read.

What scrapy-redis stores of a request is the dict of ``Request.to_dict``, by default pickled. A pickle runs what it says
when it is read: that happens only if the user trusts the queue, and in a process of its own (:mod:`.queue_unpickle`).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import click
import msgspec
from scrapy import Request

from scrapy_lease.cli.queue_requests import Answer, environment, payload_of, receive, send
from scrapy_lease.cli.spider_access import SpiderAccess, open_spider, slot_of
from scrapy_lease.cli.store_access import project_settings, run_with_store
from scrapy_lease.exceptions import LeaseError, StoreUnavailable
from scrapy_lease.feeds.foreign_queue import ForeignQueue
from scrapy_lease.feeds.server import feed_url
from scrapy_lease.meta import digest_of, done_ttl
from scrapy_lease.payload.wire import build, read
from scrapy_lease.settings import redacted_url
from scrapy_lease.store.client import Channel
from scrapy_lease.store.scripts import Entry, Scripts
from scrapy_lease.store.server import StoreStats
from scrapy_lease.store.tools import Tools

_PICKLE = b"\x80"


@dataclass
class Importer:
    """Turns stored requests into entries.

    :param tell: called with what is wrong with a request that is left out.
    """

    access: SpiderAccess
    key: str
    trusts_pickle: bool
    tell: Callable[[str], None]
    wrong: int = 0
    _seen: Counter[bytes] = field(default_factory=Counter)
    _process: subprocess.Popen[bytes] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def entries(self, members: Sequence[bytes], first: int) -> Iterator[Entry]:
        """Return the entries of *members*, the first of which is number *first* of the queue.

        :raises click.ClickException: they are pickled, and the queue is not trusted.
        """
        for number, answer in enumerate(self._answers(members), first):
            member = members[number - first]
            try:
                if answer.fault:
                    raise LeaseError(answer.fault)
                yield self._entry(member, answer.payload)
            except LeaseError as error:
                self.wrong += 1
                self.tell(f"request {number}: {error}")

    def _answers(self, members: Sequence[bytes]) -> list[Answer]:
        pickled = [member for member in members if member.startswith(_PICKLE)]
        unpickled = iter(self._unpickled(pickled) if pickled else ())
        return [next(unpickled) if member.startswith(_PICKLE) else _of_json(member) for member in members]

    def _entry(self, member: bytes, payload: bytes) -> Entry:
        access = self.access
        request = build(Request, read(payload), None, None) if access.codec is None else access.codec.decode(payload)
        key, mark = access.keys.key_of(request), "auto"
        if key is None:
            # So that an import that was cut short can be repeated.
            digest = hashlib.blake2b(member, digest_size=16).digest()
            self._seen[digest] += 1
            key, mark = f"import:{self.key}:{self._seen[digest]}:{digest.hex()}", "run"
        ttl = done_ttl(request)
        seconds = int(access.lease.done_ttl) if ttl is None else ttl
        return Entry(digest_of(key), slot_of(request), request.priority, payload, mark, seconds)

    def _unpickled(self, members: Sequence[bytes]) -> list[Answer]:
        if not self.trusts_pickle:
            raise click.ClickException(
                f"the requests under {self.key!r} are pickled. Reading a pickle runs what it says: if nobody else can "
                "write to that server, import with --trust-pickle"
            )
        if self._process is None:
            self._process = self._stack.enter_context(_unpickler())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, members)
            answers = receive(self._process.stdout, list[Answer])
        except (OSError, EOFError, msgspec.MsgspecError):
            answers = []
        if len(answers) != len(members):
            raise click.ClickException("the process that reads the pickles gave no answer: what they say ended it")
        return answers


def take_over(
    spider: str, arguments: Mapping[str, str], server: str | None, key: str | None, *, trusts_pickle: bool
) -> dict[str, Any]:
    """Put the requests of the scrapy-redis queue of *spider* into its backlog; return what became of them.

    :param server: URL of the queue's server; None: the one that the settings of scrapy-redis name, else the store.
    :raises LeaseError: there is no such queue.
    :raises click.ClickException: it may not be read.
    """
    settings = project_settings()
    if server is not None:
        settings.set("REDIS_URL", server, priority="cmdline")
    access = open_spider(spider, arguments)
    url = feed_url(settings)

    async def work(tools: Tools) -> dict[str, Any]:
        channel = tools.channel
        if url is not None:
            channel = Channel(url, redacted_url(url), access.lease.store_timeout, StoreStats(), setting="REDIS_URL")
        try:
            return await _copy(tools, access, ForeignQueue.of(channel, settings, spider, key), trusts_pickle)
        finally:
            await channel.close()

    try:
        return run_with_store(work, access.lease)
    except StoreUnavailable as error:
        raise click.ClickException(f"{error}. Import it all again: what is there counts as duplicate") from error


async def _copy(tools: Tools, access: SpiderAccess, queue: ForeignQueue, trusts_pickle: bool) -> dict[str, Any]:
    lease = access.lease
    scope = await tools.sized(tools.namespace.scope(lease.job, lease.run, lease.expected_items), create=True)
    scripts = Scripts(tools.channel, scope)
    counts, first = Counter[str](), 1
    with Importer(access, queue.key, trusts_pickle, partial(click.echo, err=True)) as importer:
        async for members in queue.batches():
            entries = list(importer.entries(members, first))
            first += len(members)
            counts.update(await scripts.push("", 0, entries) if entries else "")
    return {
        "job": scope.name, "queue": queue.key, "accepted": counts.pop("+", 0), "duplicate": counts.total(),
        "wrong": importer.wrong,
    }  # fmt: skip


def _of_json(member: bytes) -> Answer:
    try:
        return Answer(payload=payload_of(msgspec.json.decode(member)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Answer(fault="is neither JSON nor a pickle; export it with a serializer that writes JSON")
    except LeaseError as error:
        return Answer(fault=str(error))


def _unpickler() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy_lease.cli.queue_unpickle"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
