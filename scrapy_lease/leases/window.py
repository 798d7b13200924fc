"""The few leased requests a node holds ready for its downloader.

They wait by download slot. :meth:`Window.take` hands out, of the slots that can send now, the best request: highest
priority, then the one that came first. No slot may hold more than three quarters of what the others leave free, so
that one slow or limited host never fills the window while others wait.

What will have to wait for long is *parked*: it is still here, and takes no place in the window.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Seconds after which a slot that gives nothing is stuck.
STUCK = 0.25


class Window(Generic[T]):
    """See the module's docstring.

    :param size: how many requests are held ready.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._slots: dict[str, list[tuple[int, int, T]]] = {}
        self._later = itertools.count()
        self._sooner = itertools.count(-1, -1)
        self._total = 0
        #: Group of those that wait for the same -> what is parked, with its slot.
        self._aside: dict[Hashable, list[tuple[int, int, str, T]]] = {}
        #: How many are parked.
        self.parked = 0
        #: Clock time (s) at which each slot came here or gave something last.
        self._moved: dict[str, float] = {}

    def __len__(self) -> int:
        return self._total + self.parked

    def __iter__(self) -> Iterator[T]:
        yield from (entry for heap in self._slots.values() for _, _, entry in heap)
        yield from (entry for heap in self._aside.values() for *_, entry in heap)

    def __contains__(self, slot: str) -> bool:
        return slot in self._slots

    def __repr__(self) -> str:
        return f"<Window {self._total}/{self.size} in {len(self._slots)} slots, {self.parked} parked>"

    @property
    def has_room(self) -> bool:
        """Is the window not full?"""
        return self._total < self.size

    def put(self, slot: str, priority: int, entry: T, *, again: bool = False) -> None:
        """Add *entry*; *again*: it was out already and goes before the others of its priority."""
        self._add(slot, (-priority, next(self._sooner) if again else next(self._later), entry))

    def take(self, can_send: Callable[[str], bool], may_start: Callable[[T], bool] | None = None) -> T | None:
        """Remove and return the best entry of the slots that can send; None if there is none.

        :param may_start: a slot whose best entry may not start is passed over.
        """
        slot = self._best(can_send) if may_start is None else self._first(can_send, may_start)
        if slot is None:
            return None
        heap = self._slots[slot]
        entry = heapq.heappop(heap)[2]
        self._total -= 1
        if heap:
            self._moved[slot] = time.monotonic()
        else:
            self._forget(slot)
        return entry

    def best(self, room: Callable[[str], int]) -> Iterator[T]:
        """Yield the entries that go next, of each slot as many as it has *room* for."""
        for slot, heap in self._slots.items():
            if (number := room(slot)) > 0:
                yield from (entry for _, _, entry in heapq.nsmallest(number, heap))

    def in_order(self) -> list[T]:
        """Return the entries of the window, parked ones aside, in the order in which they go if nothing keeps them."""
        return [entry for *_, entry in sorted((item for heap in self._slots.values() for item in heap), key=_place)]

    def park(self, entry: T, group: Hashable) -> None:
        """Take *entry* out of the window; those of one *group* wait for the same."""
        for slot, heap in self._slots.items():
            for item in heap:
                if item[2] == entry:
                    heapq.heappush(self._aside.setdefault(group, []), (*item[:2], slot, entry))
                    self.parked += 1
                    self._replace(slot, [other for other in heap if other is not item])
                    return

    def groups(self) -> dict[Hashable, int]:
        """Return how many of each group are parked."""
        return {group: len(heap) for group, heap in self._aside.items()}

    def first_of(self, group: Hashable) -> T | None:
        """Return the entry of a group that goes next, None where there is none."""
        heap = self._aside.get(group)
        return heap[0][3] if heap else None

    def put_back(self, group: Hashable) -> None:
        """Let the first of a group return to its place in the window."""
        heap = self._aside[group]
        priority, rank, slot, entry = heapq.heappop(heap)
        if not heap:
            del self._aside[group]
        self.parked -= 1
        self._add(slot, (priority, rank, entry))

    def moving(self, can_send: Callable[[str], bool]) -> int:
        """Return the number of entries without those of stuck slots: slow hosts must not delay others' refill."""
        since, moving = time.monotonic() - STUCK, self._total
        for slot, moved in self._moved.items():
            if moved < since and not can_send(slot):
                moving -= len(self._slots[slot])
        return moving

    def wanted(self) -> tuple[int, dict[str, int]]:
        """Return how many more entries fit, and how many more each slot that is here may take."""
        free = max(0, self.size - self._total)
        rooms = {}
        for slot, heap in self._slots.items():
            others = self._total - len(heap)
            rooms[slot] = max(0, int((self.size - others) * 0.75) - len(heap))
        return free, rooms

    def clear(self) -> list[T]:
        """Remove and return everything."""
        entries = list(self)
        self._slots.clear()
        self._moved.clear()
        self._aside.clear()
        self._total = self.parked = 0
        return entries

    def remove(self, unwanted: Callable[[T], bool]) -> None:
        """Remove the entries for which *unwanted* is true."""
        for slot, heap in list(self._slots.items()):
            self._replace(slot, [item for item in heap if not unwanted(item[2])])
        for group, aside in list(self._aside.items()):
            left = [item for item in aside if not unwanted(item[3])]
            self.parked -= len(aside) - len(left)
            heapq.heapify(left)
            self._aside[group] = left
            if not left:
                del self._aside[group]

    def _add(self, slot: str, item: tuple[int, int, T]) -> None:
        if slot not in self._slots:
            self._slots[slot], self._moved[slot] = [], time.monotonic()
        heapq.heappush(self._slots[slot], item)
        self._total += 1

    def _replace(self, slot: str, kept: list[tuple[int, int, T]]) -> None:
        self._total -= len(self._slots[slot]) - len(kept)
        heapq.heapify(kept)
        if kept:
            self._slots[slot] = kept
        else:
            self._forget(slot)

    def _best(self, can_send: Callable[[str], bool]) -> str | None:
        best = min(((heap[0][:2], slot) for slot, heap in self._slots.items() if can_send(slot)), default=None)
        return None if best is None else best[1]

    def _first(self, can_send: Callable[[str], bool], may_start: Callable[[T], bool]) -> str | None:
        for _, slot in sorted((heap[0][:2], slot) for slot, heap in self._slots.items() if can_send(slot)):
            if may_start(self._slots[slot][0][2]):
                return slot
        return None

    def _forget(self, slot: str) -> None:
        del self._slots[slot], self._moved[slot]


def _place(item: tuple[int, int, Any]) -> tuple[int, int]:
    return item[:2]
