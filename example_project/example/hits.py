"""The shop's own log: every hit as two JSON lines, and what can be counted from them.

What a crawler says of itself proves nothing about what it did; this log does. A line is written with one
system call and never buffered, so a shop that is killed loses nothing it has logged. Times are seconds:
``mono`` of the host's monotonic clock, which its processes share, and ``epoch`` for people.

A hit that the client left before the answer was sent (its process was killed) ends with status ABORTED.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

ABORTED = 499

Who = Literal["client", "host", "node"]


@dataclass(frozen=True, slots=True)
class Hit:
    """One request as the shop saw it; ``ended`` and ``status`` are None while it is not answered."""

    id: int
    path: str
    client: str
    host: str
    node: str
    started: float
    epoch: float
    ended: float | None = None
    status: int | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the client got the page, a redirect included."""
        return self.status is not None and self.status < 400

    @property
    def is_failed(self) -> bool:
        """Whether the shop answered with an error of its own, after which asking again is right."""
        return self.status is not None and self.status >= 500


class HitLog:
    """Writes the log; the file is appended to."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._ids = count(1)

    def start(self, **seen: str) -> int:
        """Logs that a request came in, with what was seen of it; returns the hit's id."""
        hit = next(self._ids)
        self._write({"event": "start", "id": hit, **seen})
        return hit

    def end(self, hit: int, status: int) -> None:
        """Logs how the hit ended."""
        self._write({"event": "end", "id": hit, "status": status})

    def close(self) -> None:
        os.close(self._file)

    def _write(self, record: Mapping[str, Any]) -> None:
        stamped = {**record, "mono": time.monotonic(), "epoch": time.time()}
        os.write(self._file, json.dumps(stamped).encode() + b"\n")


class HitReader:
    """Reads a log that may still grow: ``poll`` takes in what was added since the last time."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._offset = 0
        self._hits: dict[int, Hit] = {}

    def poll(self) -> list[Hit]:
        """All hits so far, in the order in which they came in."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    self._take(json.loads(line))
        return list(self._hits.values())

    def _take(self, record: dict[str, Any]) -> None:
        id_ = record["id"]
        if record["event"] == "start":
            fields = {name: record[name] for name in ("path", "client", "host", "node")}
            self._hits[id_] = Hit(id_, **fields, started=record["mono"], epoch=record["epoch"])
        else:
            start = self._hits[id_]
            self._hits[id_] = Hit(
                id_, start.path, start.client, start.host, start.node, start.started, start.epoch,
                ended=record["mono"], status=record["status"],
            )  # fmt: skip


def read(path: str | Path) -> list[Hit]:
    """All hits of a log."""
    return HitReader(path).poll()


def fetches(hits: Iterable[Hit], prefix: str = "/") -> dict[str, list[Hit]]:
    """The hits of each path that begins with ``prefix``, without those that the shop failed."""
    found: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        if hit.path.startswith(prefix) and not hit.is_failed:
            found[hit.path].append(hit)
    return dict(found)


def once(hits: Iterable[Hit], prefix: str = "/") -> set[str]:
    """The paths that were asked for exactly once."""
    return {path for path, of_path in fetches(hits, prefix).items() if len(of_path) == 1}


def again(hits: Iterable[Hit], prefix: str = "/") -> set[str]:
    """The paths that were asked for more than once."""
    return {path for path, of_path in fetches(hits, prefix).items() if len(of_path) > 1}


def lost(hits: Iterable[Hit], expected: Iterable[str]) -> set[str]:
    """The expected paths that nobody ever got."""
    return set(expected) - {hit.path for hit in hits if hit.is_answered}


def by_node(hits: Iterable[Hit]) -> dict[str, int]:
    """The number of hits of each node."""
    return dict(Counter(hit.node for hit in hits))


def open_by_node(hits: Iterable[Hit]) -> Counter[str]:
    """The number of hits of each node that are not answered yet."""
    return Counter(hit.node for hit in hits if hit.ended is None)


def timeline(hits: Sequence[Hit], columns: int) -> tuple[dict[str, list[int]], float]:
    """Cuts the time from the first hit to the last into columns of equal length, at least half a second.

    Returns the number of hits of each node in each column, and the length of a column in seconds.
    """
    first, last = (hits[0].started, hits[-1].started) if hits else (0.0, 0.0)
    length = max((last - first) / (columns - 1), 0.5)
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * columns)
    for hit in hits:
        counts[hit.node][min(int((hit.started - first) / length), columns - 1)] += 1
    return dict(counts), length


def worst_window(hits: Iterable[Hit], seconds: float = 1.0) -> int:
    """The most hits that came in within one window of the wall clock, as rate limits count them."""
    return max(Counter(int(hit.epoch // seconds) for hit in hits).values(), default=0)


def max_concurrency(hits: Iterable[Hit], who: Who = "client") -> dict[str, int]:
    """The most hits that were open at the same time, for each client address, asked-for host, or node."""
    steps: list[tuple[float, int, str]] = []
    for hit in hits:
        steps.append((hit.started, 1, getattr(hit, who)))
        if hit.ended is not None:
            steps.append((hit.ended, -1, getattr(hit, who)))
    running: Counter[str] = Counter()
    highest: dict[str, int] = {}
    # At equal times an end comes first: the two were not open together.
    for _, step, name in sorted(steps):
        running[name] += step
        highest[name] = max(highest.get(name, 0), running[name])
    return highest


@dataclass(frozen=True, slots=True)
class Kill:
    """A node that was killed, and when (monotonic)."""

    node: str
    at: float


SETTLE = 1.0
"""Seconds for which an answered page is still in flight: its callback, pipeline and report take a while."""


def in_flight(hits: Iterable[Hit], kill: Kill, settle: float = SETTLE) -> set[str]:
    """The paths that a killed node had asked for and cannot have finished."""
    return {hit.path for hit in hits if hit.node == kill.node and (hit.ended is None or hit.ended > kill.at - settle)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the expected pages: by the shop's log, and by what was stored of them."""

    expected: int
    fetched: int
    stored: int
    twice: frozenset[str]
    excused: frozenset[str]
    lost: frozenset[str]

    @classmethod
    def of(cls, hits: Iterable[Hit], expected: Iterable[str], stored: Iterable[str], kill: Kill | None = None) -> Self:
        """Judges a crawl; ``expected`` and ``stored`` are paths, ``kill`` the node that was killed."""
        hits, expected, stored = list(hits), set(expected), set(stored)
        visits = {path: of_path for path, of_path in fetches(hits).items() if len(of_path) > 1}
        return cls(
            expected=len(expected),
            fetched=len(expected - lost(hits, expected)),
            stored=len(expected & stored),
            twice=frozenset(visits),
            excused=frozenset(_excused(hits, visits, kill) if kill else ()),
            lost=frozenset(lost(hits, expected) | (expected - stored)),
        )

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost and nothing fetched twice but what the killed node had in flight."""
        return not self.lost and self.twice == self.excused


def _excused(hits: list[Hit], visits: Mapping[str, list[Hit]], kill: Kill) -> set[str]:
    """The paths that had to be fetched again: in flight at the killed node, then once elsewhere."""
    return {
        path
        for path in in_flight(hits, kill) & visits.keys()
        if len(visits[path]) == 2 and visits[path][0].node == kill.node and visits[path][1].started > kill.at
    }
