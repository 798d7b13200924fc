"""The dead letters of a job, as commands find, show and revive them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from scrapy_lease.cli.text_table import iso_time
from scrapy_lease.exceptions import CorruptPayload
from scrapy_lease.meta import ITEM
from scrapy_lease.payload import describe
from scrapy_lease.payload.wire import read
from scrapy_lease.store.keys import Scope
from scrapy_lease.store.reading import DeadRecord, priority_of, read_dead
from scrapy_lease.store.scripts import Entry
from scrapy_lease.store.tools import Tools


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    digest: bytes
    record: DeadRecord
    payload: bytes

    @property
    def names(self) -> set[str]:
        """What people may call it by: its digest, its URL, its URL as it is shown."""
        names = {self.digest.hex(), str(describe(self.payload)["url"])}
        with contextlib.suppress(CorruptPayload):
            names.add(read(self.payload).url)
        return names

    @property
    def entry(self) -> Entry:
        """What brings it back into the backlog.

        A done mark that outlives the run is for items. A request with ``dont_filter`` and no key is none, or is fetched
        once a run.
        """
        mark = "auto"
        try:
            wire = read(self.payload)
            if wire.dont_filter and not wire.meta.get(ITEM):
                mark = "run"
        except CorruptPayload:
            mark = "none"
        return Entry(self.digest, self.record.slot, priority_of(self.record.order), self.payload, mark)

    def fields(self, *, trace: bool) -> dict[str, Any]:
        """Return what a program is shown of it; *trace*: with the end of the traceback."""
        record, shown = self.record, describe(self.payload)
        fields = {
            "digest": self.digest.hex(),
            "url": shown["url"],
            "callback": shown["callback"],
            "reason": record.reason,
            "attempts": record.attempts,
            "deaths": record.deaths,
            "at": iso_time(record.at),
        }
        return fields | ({"trace": record.trace} if trace else {})


async def walk(tools: Tools, scope: Scope, named: Collection[str] = ()) -> AsyncIterator[list[Letter]]:
    """Walk the dead letters of *scope*, or those of them that are *named*, a chunk at a time and each once."""
    seen: set[bytes] = set()
    async for packed in tools.fields(scope.key("dead")):
        fresh = {digest: data for digest, data in packed.items() if digest not in seen}
        seen.update(fresh)
        payloads = await tools.payloads(scope, list(fresh)) if fresh else []
        letters = [
            Letter(digest, read_dead(data), payload or b"")
            for (digest, data), payload in zip(fresh.items(), payloads, strict=True)
        ]
        if found := [letter for letter in letters if not named or letter.names.intersection(named)]:
            yield found


def missing(named: Iterable[str], letters: Iterable[Letter]) -> list[str]:
    """Return those of *named* that none of *letters* is called by."""
    known = {name for letter in letters for name in letter.names}
    return [name for name in named if name not in known]
