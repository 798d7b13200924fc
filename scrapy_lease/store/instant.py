"""What time it is in a store, without advancing its lease clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: ms by which one call of a session advances the lease clock at most.
MAX_STEP = 1000


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment in ms: *lease* on the lease clock, *wall* on the server's."""

    lease: int
    wall: int

    @classmethod
    def of(cls, clock: Mapping[str, str], time: Sequence[bytes]) -> Instant:
        """Return the moment that the hash :attr:`~.keys.Namespace.clock` and the reply of TIME tell.

        The lease clock is told as far as the next call would advance it: what nobody watched for longer has not passed.
        """
        wall = int(time[0]) * 1000 + int(time[1]) // 1000
        step = min(max(wall - int(clock.get("wall", wall)), 0), MAX_STEP)
        return cls(int(clock.get("now", 0)) + step, wall)


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """Return the dict that a flat list of names and values stands for."""
    texts = [part.decode() for part in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
