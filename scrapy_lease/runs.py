"""Named runs of a job: which are kept, and the deletion of the others in the background.

Done marks go first and the rest last, so that a run whose deletion was cut short is at worst fetched again; the next
session that opens a named run goes on with it. A run in which a session is alive is left alone.

What this cannot do: notice that somebody resumes an old run by its name at the moment of its deletion. Such a run
begins anew, as it would a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from scrapy_lease.exceptions import StoreError
from scrapy_lease.store.keys import Scope
from scrapy_lease.store.tools import Tools

logger = logging.getLogger(__name__)

#: Keys of one UNLINK: about a millisecond of the server's time.
CHUNK = 1000

#: The parts of a scope beside its done marks and what its sessions hold; what says that the run is there comes last.
PARTS = ("ready", "slots", "delayed", "state", "payload", "dead", "start", "producing", "members", "meta")


async def keep_newest(tools: Tools, scope: Scope, keep: int) -> None:
    """Note that the named run *scope* was opened; delete those of its job beyond the *keep* opened last.

    Store errors are logged: the next session of a named run does what was left. Closes the channel of *tools*.
    """
    runs = scope.namespace.runs(scope.job)
    try:
        seconds, micros = await tools.command("TIME")
        await tools.command("ZADD", runs, f"{int(seconds)}.{int(micros):06d}", scope.run)
        for name in await tools.command("ZRANGE", runs, 0, -keep - 1):
            await _delete(tools, scope, name.decode())
    except StoreError as error:
        logger.info("Old runs of job %s are deleted another time: %s", scope.job, error)
    finally:
        await tools.channel.close()


async def _delete(tools: Tools, newest: Scope, run: str) -> None:
    scope = await tools.sized(replace(newest, run=run))
    sessions = await tools.command("ZRANGE", scope.key("members"), 0, -1)
    left = await tools.command("HLEN", scope.key("state"))
    keys = _keys_of(scope, [sid.decode() for sid in sessions])
    while chunk := list(islice(keys, CHUNK)):
        if await _is_live(tools, scope):
            return
        await tools.command("UNLINK", *chunk)
        await asyncio.sleep(0)
    await tools.command("ZREM", newest.namespace.runs(newest.job), run)
    if left:
        logger.warning(
            "Deleted run %s of job %s with %d requests that were not done yet (LEASE_RUNS_KEEP)", run, newest.job, left
        )
    else:
        logger.info("Deleted run %s of job %s (LEASE_RUNS_KEEP)", run, newest.job)


def _keys_of(scope: Scope, sessions: list[str]) -> Iterator[str]:
    yield from (scope.bucket(number) for number in range(scope.buckets))
    yield from map(scope.held, sessions)
    yield from map(scope.key, PARTS)


async def _is_live(tools: Tools, scope: Scope) -> bool:
    now = await tools.command("HGET", scope.namespace.clock, "now")
    return bool(await tools.command("ZCOUNT", scope.key("members"), b"(" + (now or b"0"), "+inf"))
