"""A pool on a real server, seen from outside the scripts: its keys read at one instant, and what must agree in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from scrapy_lease.store.keys import POOL_PARTS, PoolKeys

_ZSETS = {"free", "spotted", "resting", "behind", "expiries", "benched", "members", "waiting", "recalls"}
_marks = msgspec.msgpack.Decoder(dict[str, tuple[int, int]])


@dataclass(frozen=True, slots=True)
class PoolContents:
    """What the keys of a pool hold."""

    now: int
    parts: dict[str, dict[str, Any]]
    held: dict[str, set[str]]
    deadlines: dict[str, float]

    @classmethod
    def read(cls, client: redis.Redis, keys: PoolKeys, sids: list[str]) -> PoolContents:
        """Read all; *sids*: all sessions there ever were."""
        names = [part for part in POOL_PARTS if part != "events"]
        with client.pipeline() as pipe:
            pipe.hget(keys.namespace.clock, "now").zrange(keys.namespace.sessions, 0, -1, withscores=True)
            for name in names:
                if name in _ZSETS:
                    pipe.zrange(keys.key(name), 0, -1, withscores=True)
                else:
                    pipe.hgetall(keys.key(name))
            for sid in sids:
                pipe.smembers(keys.held(sid))
            now, sessions, *replies = pipe.execute()
        rows = {name: dict(reply) for name, reply in zip(names, replies, strict=False)}
        parts = {name: {key.decode(): value for key, value in row.items()} for name, row in rows.items()}
        held = dict(zip(sids, ({name.decode() for name in ids} for ids in replies[len(names) :]), strict=True))
        return cls(int(now or 0), parts, held, {sid.decode(): deadline for sid, deadline in sessions})

    def is_live(self, sid: str) -> bool:
        return self.deadlines.get(sid, 0) > self.now

    def exit_of(self, name: str) -> str:
        record: bytes = self.parts["resources"][name]
        return record[19 : 19 + int(record[16:19])].decode()

    def holder(self, name: str) -> tuple[str, int]:
        """The session and fence of a lease."""
        lease: bytes = self.parts["leases"][name]
        return lease[29:].decode(), int(lease[:16])

    def place(self, name: str) -> str:
        """The one place where a resource is; aside: in none."""
        behind = f"{self.exit_of(name)}\0{name}" in self.parts["behind"]
        found = [part for part in ("free", "spotted", "resting", "leases") if name in self.parts[part]]
        found += ["behind"] * behind
        assert len(found) < 2, f"{name} is in {found}"
        return found[0] if found else "aside"

    def check(self) -> None:
        """Assert that the keys agree with each other."""
        parts, resources = self.parts, self.parts["resources"]
        for part in ("free", "spotted", "resting", "leases", "expiries", "rests"):
            assert parts[part].keys() <= resources.keys(), f"{part} has what is gone"
        self._check_exits()
        for name in parts["leases"]:
            assert name in self.held[self.holder(name)[0]], "a lease that its session's set does not have"
        for sid, names in self.held.items():
            recalled = {member.partition("\0")[2] for member in parts["recalls"] if member.startswith(f"{sid}\0")}
            own = {name for name in parts["leases"] if self.holder(name)[0] == sid}
            assert names <= own | recalled, "a session's set has what it neither holds nor is told to have lost"
            assert not own or sid in parts["members"], "a holder that nobody looks after"
        marks = {name: _marks.decode(packed) for name, packed in parts["rests"].items()}
        benched = {f"{site}\0{mark[0]:016d}{name}" for name, row in marks.items() for site, mark in row.items()}
        assert benched == parts["benched"].keys(), "rests by resource and by site differ"
        assert not marks.keys() & parts["free"].keys(), (
            "a resource that rests for a site stands with those that rest nowhere"
        )
        assert parts["spotted"].keys() <= marks.keys()
        assert parts["waiting"].keys() == parts["asks"].keys() <= parts["members"].keys()
        for name, record in resources.items():
            expiry = int(record[3:16])
            assert parts["expiries"].get(name, 0) in ((expiry, 0) if name in parts["leases"] else (expiry,))

    def _check_exits(self) -> None:
        parts = self.parts
        in_play = [name for part in ("free", "spotted", "leases") for name in parts[part]]
        busy = Counter(exit for exit in map(self.exit_of, in_play) if exit)
        assert all(count == 1 for count in busy.values()), f"two identities of one exit are in play: {busy}"
        for name in in_play:
            if exit := self.exit_of(name):
                assert parts["exits"].get(exit) == name.encode()
        for exit, name in parts["exits"].items():
            assert name.decode() in {*in_play, *parts["resting"]}, f"the exit {exit} is kept by nobody"
        for member in parts["behind"]:
            exit, _, name = member.partition("\0")
            assert exit in parts["exits"], f"{name} stands behind an exit that is free"
            assert self.exit_of(name) == exit
