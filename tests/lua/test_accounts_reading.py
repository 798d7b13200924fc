"""What people's tools are told of a pool of accounts."""

from __future__ import annotations

import asyncio

from scrapy_lease.store.client import Channel
from scrapy_lease.store.pool_reading import PoolPicture, ResourceRecord, picture_of, read_instant, walk
from scrapy_lease.store.server import StoreStats
from scrapy_lease.store.tools import Tools
from tests.helpers.servers import Server
from tests.lua.account_bed import BACKOFF, MINUTE, AccountBed


def read(server: Server, bed: AccountBed) -> tuple[dict[str, ResourceRecord], PoolPicture]:
    """All accounts by name, and the whole."""

    async def work() -> tuple[dict[str, ResourceRecord], PoolPicture]:
        channel = Channel(server.url, "the test's server", 5, StoreStats())
        try:
            tools = Tools(channel, bed.space)
            records = {record.id: record async for chunk in walk(tools, bed.pool) for record in chunk}
            return records, await picture_of(tools, bed.pool, await read_instant(tools))
        finally:
            await channel.close()

    return asyncio.run(work())


def test_each_account_is_where_it_is(server: Server) -> None:
    """One of each state, with what was granted of its day, and no secret: what is shown is the id."""
    bed = AccountBed(server)
    bed.add(*"abcdefgh")
    one = bed.member(quota=5)
    leases = {lease.id: lease for lease in one.get(6)}
    one.back(leases["a"], unspent=3)
    one.say(leases["b"], "cool", 10 * MINUTE)
    one.say(leases["c"], "demote", "refused", BACKOFF)
    one.back(leases["d"])
    bed.change("drain", "e")
    one.back(leases["e"])
    records, picture = read(server, bed)
    states = {name: record.state for name, record in records.items()}
    assert states == {
        "a": "free", "b": "cooling", "c": "benched", "d": "spent", "e": "aside", "f": "leased",
        "g": "cold", "h": "cold",
    }  # fmt: skip
    assert (records["f"].session, records["b"].wait > 500) == ("a", True)
    assert (picture.cold, picture.benched, picture.spent, picture.resting, picture.leased) == (2, 1, 1, 1, 1)
    assert (picture.free, picture.aside, picture.known) == (1, 1, 8)


def test_all_holders_are_told(server: Server) -> None:
    """Of an account that several sessions hold the first, and the others."""
    bed = AccountBed(server)
    bed.add("x")
    for sid in "abc":
        bed.member(sid, holders=0).one()
    records, picture = read(server, bed)
    assert (records["x"].session, records["x"].others) == ("a", ("b", "c"))
    assert [member.held for member in picture.members] == [1, 1, 1]
