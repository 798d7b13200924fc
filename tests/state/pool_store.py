"""A pool on a real server, seen from outside the scripts: its keys read at one instant, and what must agree in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from scrapy_lease.store.keys import ACCOUNT_PARTS, POOL_PARTS, PoolKeys
from tests.state.pool_wire import Wire

#: Returns each key with its type and its value; what is sorted with scores.
_READ = """
local readers = {hash = {'HGETALL'}, set = {'SMEMBERS'}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'},
  list = {'LRANGE', 0, -1}}
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local reader = readers[kind]
  if reader and not string.find(key, ':session:', 1, true) then
    found[#found + 1] = {key, kind, redis.call(reader[1], key, unpack(reader, 2))}
  end
end
return found
"""
_views = msgspec.msgpack.Decoder(dict[str, tuple[int, str]])
_marks = msgspec.msgpack.Decoder(dict[str, tuple[int, int]])


@dataclass(frozen=True, slots=True)
class PoolContents:
    """What the keys of a pool hold."""

    now: int
    parts: dict[str, dict[str, Any]]
    held: dict[str, set[str]]
    deadlines: dict[str, float]
    #: Until when a new server grants nothing.
    grace: int

    @classmethod
    def read(cls, wire: Wire, keys: PoolKeys) -> PoolContents:
        """Read all of a server that has nothing else."""
        (found,) = wire.make(("EVAL", _READ, 0))
        values = {key.decode(): _decoded(kind, value) for key, kind, value in found}
        space, sessions = keys.namespace, keys.held("")
        names = [part for part in (*POOL_PARTS, *ACCOUNT_PARTS, "sticky", "sticky_ends") if part != "events"]
        parts = {part: values.get(keys.key(part), {}) for part in names}
        held = {key.removeprefix(sessions): set(ids) for key, ids in values.items() if key.startswith(sessions)}
        return cls(int(values.get(space.clock, {}).get("now", 0)), parts, held, values.get(space.sessions, {}),
                   int(values.get(space.clock, {}).get("grace", 0)))  # fmt: skip

    def is_live(self, sid: str) -> bool:
        return self.deadlines.get(sid, 0) > self.now

    def exit_of(self, name: str) -> str:
        record: bytes = self.parts["resources"][name]
        return record[19 : 19 + int(record[16:19])].decode()

    def holder(self, name: str) -> tuple[str, int]:
        """The session and fence of a lease."""
        lease: bytes = self.parts["leases"][name]
        return lease[29:].decode(), int(lease[:16])

    def views(self, name: str) -> dict[str, tuple[int, str]]:
        """What its holders said of a resource: site -> when it was served, and the suspect."""
        packed = self.parts["views"].get(name)
        return _views.decode(packed) if packed else {}

    def place(self, name: str) -> str:
        """The one place where a resource is; aside: in none."""
        behind = f"{self.exit_of(name)}\0{name}" in self.parts["behind"]
        sets = ("free", "spotted", "resting", "leases", "cold", "bench", "spent")
        found = [part for part in sets if name in self.parts[part]]
        found += ["behind"] * behind
        assert len(found) < 2, f"{name} is in {found}"
        return found[0] if found else "aside"

    def in_place_of(self, name: str) -> str:
        """The identity in play of the exit of a resource, or itself."""
        exit = self.exit_of(name) if name in self.parts["resources"] else ""
        return self.parts["exits"].get(exit, name.encode()).decode()

    def check(self) -> None:
        """Assert that the keys agree with each other."""
        parts, resources = self.parts, self.parts["resources"]
        for part in ("free", "spotted", "resting", "leases", "expiries", "rests", "views"):
            assert parts[part].keys() <= resources.keys(), f"{part} has what is gone"
        self._check_exits()
        for name in parts["leases"]:
            assert name in self.held.get(self.holder(name)[0], ()), "a lease that its session's set does not have"
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
            is_in_use = name in parts["leases"] or name in parts["resting"]
            assert parts["expiries"].get(name, 0) in ((expiry, 0) if is_in_use else (expiry,))

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


def _decoded(kind: bytes, value: list[bytes]) -> Any:
    if kind == b"list":
        names = Counter(name.decode() for name in value)
        assert all(count == 1 for count in names.values()), f"a list has one twice: {names}"
        return dict(names)
    if kind == b"set":
        return {name.decode("utf-8", "backslashreplace") for name in value}
    pairs = zip(value[::2], value[1::2], strict=True)
    return {key.decode("utf-8", "backslashreplace"): float(data) if kind == b"zset" else data for key, data in pairs}
