"""Tells a store that was emptied (FLUSHALL, another server in its place) from one in which a session expired."""

from __future__ import annotations

import msgspec

from scrapy_lease.store.calls import Call
from scrapy_lease.store.scripts import Scripts

#: Seconds after its deadline for which a store keeps the record of a session at least (see the Lua prelude).
REMEMBERED = 3600.0
#: What to say of it, with the shown URL of the store.
EMPTIED = (
    "The store %s came back empty: it was flushed, or another server took its place. What was pending, the dead "
    "letters and the marks of what is done are gone, for all crawls that share it; this one goes on with what it finds "
    "from here on"
)


async def was_emptied(scripts: Scripts, sid: str, lost_for: float) -> bool:
    """Return whether the record of the lost session *sid* is gone although it was not to go yet.

    :param lost_for: seconds since the session was confirmed for the last time. After more than :data:`REMEMBERED` a
        missing record says nothing: False.
    """
    if lost_for > REMEMBERED:
        return False
    key = scripts.scope.namespace.session(sid)
    (found,) = await scripts.channel.call(Call("look", [key], [msgspec.msgpack.encode([("EXISTS",)])]))
    return not found
