"""What people's tools see of rate limits: counters, limits that an operator set, pauses that sites asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scrapy_lease.store.instant import Instant, pairs
from scrapy_lease.store.rate_scripts import limit_field
from scrapy_lease.store.tools import CHUNK, Read, Tools

_FIELDS = ("name", "start", "finish", "count", "limit", "length")


@dataclass(frozen=True, slots=True)
class CounterRecord:
    """A counter in the window that counts.

    :param name: rule and key.
    :param count: permits granted in the window, less those that came back.
    :param limit: permits of a window, over all shards of the key.
    :param length: of a window, in ms.
    :param left: ms until it ends.
    """

    name: str
    count: int
    limit: int
    length: int
    left: int


async def read_counters(tools: Tools) -> list[CounterRecord]:
    """Return the counters whose window is not over, by name; the shards of a key are told together."""
    _, wall = await tools.tick()
    found: dict[tuple[str, int], CounterRecord] = {}
    async for keys in tools.keys(f"{tools.namespace.prefix.replace('*', '[*]')}:rate:*"):
        for first in range(0, len(keys), CHUNK):
            chunk = keys[first : first + CHUNK]
            for row in await tools.look([Read("HMGET", key.decode(), _FIELDS) for key in chunk]):
                record = _record(row, wall)
                if record is not None:
                    before = found.get((record.name, record.length))
                    count = record.count + (before.count if before is not None else 0)
                    found[record.name, record.length] = CounterRecord(
                        record.name, count, record.limit, record.length, record.left
                    )
    return [found[key] for key in sorted(found)]


async def read_told(tools: Tools) -> tuple[list[str], dict[str, float]]:
    """Return what live sessions limit, as they told it, and what is paused: each key with the seconds that are left."""
    space = tools.namespace
    time = await tools.command("TIME")
    clock, specs, blocks = await tools.look([
        Read("HGETALL", space.clock),
        Read("ZRANGE", space.rate_specs, ("0", "-1", "WITHSCORES")),
        Read("ZRANGE", space.rate_blocks[0], ("0", "-1", "WITHSCORES")),
    ])  # fmt: skip
    now = Instant.of(pairs(clock), time).lease
    live = [spec for spec, until in pairs(specs).items() if int(until) > now]
    left = {key: (int(until) - now) / 1000 for key, until in pairs(blocks).items()}
    return sorted(live), {key: seconds for key, seconds in sorted(left.items()) if seconds > 0}


async def read_set_limits(tools: Tools) -> dict[tuple[str, int], int]:
    """Return the limits that an operator set: rule and length of a window in ms -> permits."""
    found = {}
    async for fields in tools.fields(tools.namespace.rate_limits):
        for field, value in fields.items():
            rule, _, window = field.decode().rpartition("\0")
            found[rule, int(window)] = int(value)
    return found


async def set_limit(tools: Tools, rule: str, window: int, permits: int) -> None:
    """Let *permits* in each window of *window* ms be what holds for a rule, whatever is configured."""
    await tools.command("HSET", tools.namespace.rate_limits, limit_field(rule, window), permits)


async def unset_limits(tools: Tools, rule: str) -> int:
    """Let what is configured hold for a rule again; return how many limits of it were set."""
    fields = [limit_field(*key) for key in await read_set_limits(tools) if key[0] == rule]
    return int(await tools.command("HDEL", tools.namespace.rate_limits, *fields)) if fields else 0


def _record(row: Sequence[bytes | None], wall: int) -> CounterRecord | None:
    if row[0] is None or any(part is None for part in row):
        return None
    name, (_, finish, count, limit, length) = row[0].decode(), (int(part or 0) for part in row[1:])
    return CounterRecord(name, count, limit, length, finish - wall) if finish > wall else None
