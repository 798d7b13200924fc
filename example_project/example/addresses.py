"""From which addresses a site was asked, counted from its own log.

The address is what the site knows for certain. Which node sent a request it has from the header ``X-Node``, which the
sending process sets anew each time (`example.middlewares`), whatever it has leased. Where a proxy carries
one request at a time no word of a crawler is needed at all: no address may ever have two in flight, whoever sent them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

from example.hits import Hit


@dataclass(frozen=True, slots=True)
class Addresses:
    """How the addresses of proxies were used.

    ``used``: those that asked. ``shared``: those with requests of two nodes in flight at the same time. ``most``: the
    most requests that one of them had in flight. ``direct``: requests from anywhere else.
    """

    used: frozenset[str]
    shared: frozenset[str]
    most: int
    direct: int

    @classmethod
    def of(cls, hits: Iterable[Hit], exits: Collection[str]) -> Self:
        """Counts what a log says; ``exits`` are the addresses of the proxies."""
        hits = list(hits)
        through = [hit for hit in hits if hit.client in exits]
        shared: set[str] = set()
        most = 0
        for address, nodes in _in_flight(through):
            most = max(most, nodes.total())
            if sum(number > 0 for number in nodes.values()) > 1:
                shared.add(address)
        return cls(frozenset(hit.client for hit in through), frozenset(shared), most, len(hits) - len(through))

    @property
    def is_right(self) -> bool:
        """Whether each address had one request in flight at a time, and none but those of the proxies asked."""
        return self.most <= 1 and not self.direct


def _in_flight(hits: Iterable[Hit]) -> Iterable[tuple[str, Counter[str]]]:
    """Each time that a request comes in: its address, and how many requests each node has in flight there."""
    steps: list[tuple[float, int, str, str]] = []
    for hit in hits:
        steps.append((hit.started, 1, hit.client, hit.node))
        if hit.ended is not None:
            steps.append((hit.ended, -1, hit.client, hit.node))
    running: dict[str, Counter[str]] = defaultdict(Counter)
    # At equal times an end comes first: the two were not in flight together.
    for _, step, address, node in sorted(steps):
        running[address][node] += step
        if step > 0:
            yield address, running[address]
