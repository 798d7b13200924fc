"""The scripts of a feed: what sessions take from a list, set or sorted set of the user's.

No call is numbered: one without an answer is followed by a look at what the session has on its account
(:meth:`FeedScripts.taken_by`), and settling twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import FeedKeys

_pack = msgspec.msgpack.Encoder().encode

#: Setting that makes a feed of this kind, for messages.
_SETTINGS = {"set": "REDIS_START_URLS_AS_SET", "zset": "REDIS_START_URLS_AS_ZSET"}


@dataclass(frozen=True, slots=True)
class Taken:
    """Reply of :meth:`FeedScripts.take`.

    :param held: how many entries the session has on its account, those of this call included.
    :param readers: the sessions that have some on theirs.
    :param entries: what this call took: id -> the entry as it was fed, first things first.
    """

    held: int
    readers: tuple[str, ...]
    entries: Mapping[str, bytes]


class FeedScripts:
    """The scripts of one feed over one connection.

    :param kind: ``list``, ``set`` or ``zset``: what the feed is.
    """

    def __init__(self, channel: Channel, keys: FeedKeys, kind: str) -> None:
        self.channel = channel
        self.keys = keys
        self.kind = kind

    async def take(self, sid: str, want: int) -> Taken:
        """Take up to *want* entries on the account of session *sid*; 0: only look.

        :raises StoreRefused: the feed is of another type.
        """
        keys = self.keys
        call = Call("feed_take", [keys.name, keys.readers, keys.taken(sid)], [sid, self.kind, want])
        status, *rest = await self.channel.call(call)
        if status == b"type":
            raise StoreRefused(self._wrong_type(rest[0].decode()))
        held, readers, flat = rest
        return Taken(held, tuple(sorted(reader.decode() for reader in readers)), _entries(flat))

    async def taken_by(self, sid: str) -> Mapping[str, bytes]:
        """Return what session *sid* has on its account: id -> the entry, first things first."""
        flat = (await self.channel.call(Call("look", [self.keys.taken(sid)], [_pack([("HGETALL",)])])))[0]
        return dict(sorted(_entries(flat).items()))

    async def settle(self, sid: str, verbs: Sequence[tuple[str, str]]) -> int:
        """Settle entries of session *sid*, as (id, verb): ``done``, ``failed`` or ``back``.

        :returns: how many had not been settled before.
        """
        keys = self.keys
        letters = "".join(verb[0] for _, verb in verbs)
        settled: int = await self.channel.call(
            Call(
                "feed_settle",
                [keys.name, keys.readers, keys.taken(sid), keys.failed],
                [sid, self.kind, letters, *(entry for entry, _ in verbs)],
            )
        )
        return settled

    def _wrong_type(self, found: str) -> str:
        asked, makes = _SETTINGS.get(self.kind), _SETTINGS.get(found)
        said = f"{asked} = True" if asked else "neither REDIS_START_URLS_AS_SET nor REDIS_START_URLS_AS_ZSET is set"
        cure = f"set {makes} = True" if makes else "take both out" if found == "list" else "name another redis_key"
        return f"the feed {self.keys.name!r} is a {found}, but {said}: {cure}"


def _entries(flat: Sequence[bytes]) -> dict[str, bytes]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {entry_id.decode(): value.partition(b" ")[2] for entry_id, value in pairs}
