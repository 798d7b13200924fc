"""What the script that fills a pool up is asked and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scrapy_lease.exceptions import OtherDays
from scrapy_lease.store.keys import PoolKeys
from scrapy_lease.store.messages import check


@dataclass(frozen=True, slots=True)
class Refill:
    """Reply of ``PoolScripts.refill``.

    :param status: as in ``pool_refill.lua``: ``buy``, ``enough``, ``duty``, ``pause``, ``limit``, ``busy``, ``passed``
        or ``done``.
    :param count: how many may be bought, or are being bought.
    :param wait: ms after which asking again may be answered otherwise.
    :param wall: the server's wall clock, in ms.
    :param forecast: how many more than the floor should be free, since they will be used soon.
    :param limit: the number of the limit that is reached, from 1 on; 0: none.
    :param moved: accounts that the daily refill made active with this call.
    """

    status: str
    count: int
    wait: int
    wall: int
    forecast: int
    limit: int
    moved: int = 0


def refill_keys(keys: PoolKeys, sid: str, limits: Sequence[tuple[int, int, bool]]) -> list[str]:
    """Return the keys of the script: those of the pool, and a counter for each limit."""
    return [*keys.all(sid), *(keys.counter(window, is_call) for _, window, is_call in limits)]


def read_refill(reply: Sequence[Any], sid: str, n: int) -> Refill:
    """Read the answer to call *n* of session *sid*; raises what :func:`~.messages.check` does, and OtherDays."""
    status, *numbers = reply
    if status == b"days":
        raise OtherDays(numbers[0])
    check(status, sid, "refill", n)
    return Refill(status.decode(), *numbers)
