"""Pools of several sessions on one server: everybody is served, and nobody has what another is using."""

from __future__ import annotations

import asyncio

from tests.helpers.servers import Server
from tests.integration.pool_crew import Crew, Node, crew_on, gather, run, until


async def nodes_of(crew: Crew, count: int, **options: object) -> list[Node]:
    return [await crew.node(f"n{number}", **options) for number in range(count)]


def test_twelve_on_four(server: Server) -> None:
    """With fewer resources than busy sessions the leases go round: all twelve are served within seconds."""

    async def work() -> None:
        async with crew_on(server, *range(4)) as crew:
            nodes = await nodes_of(crew, 12)
            working = [asyncio.ensure_future(node.work(30)) for node in nodes]
            await until(lambda: all(node.served for node in nodes), 15)
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    run(work)


def test_three_busy_on_two(server: Server) -> None:
    """Three sessions that always want more than two resources have each between 20 and 50 % of ten seconds' uses.

    The first two are not counted: who came first had both resources until the others were heard of.
    """

    async def work() -> None:
        async with crew_on(server, "p1", "p2") as crew:
            nodes = await nodes_of(crew, 3)
            working = gather(*(node.work(12, 0.1) for node in nodes for _ in range(2)))
            job = asyncio.ensure_future(working)
            await asyncio.sleep(2)
            before = [node.served for node in nodes]
            await job
            served = [node.served - count for node, count in zip(nodes, before, strict=True)]
            total = sum(served)
            shares = [count / total for count in served]
            assert all(0.2 <= share <= 0.5 for share in shares), shares
            assert total > 110, "the leases lie idle"

    run(work)
