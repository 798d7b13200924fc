"""What the scripts promise, in plain Python: the model that the state machine holds the store against.

Time is the lease clock in ms. The model knows nothing of keys, encodings or the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scrapy_lease.store.scripts import Answer, Claim, Entry, Grant, Settlement, Standing

Order = tuple[int, int]


@dataclass(slots=True)
class Item:
    """An item that is not over."""

    slot: str
    order: Order
    mark: str
    attempts: int = 0
    deaths: int = 0
    state: str = "pending"
    session: str = ""
    fence: int = 0
    sent: bool = False
    due: int = 0

    def leave(self, due: int = 0) -> None:
        """Nobody holds it any more: pending, or delayed until *due*."""
        self.state = "delayed" if due else "pending"
        self.session, self.fence, self.sent, self.due = "", 0, False, due

    def belongs(self, sid: str, fence: int) -> bool:
        """Does its record name this session and this fence?"""
        return self.state == "leased" and self.session == sid and self.fence == fence


@dataclass(slots=True)
class Life:
    """A session as the store knows it. *numbered*: the last call of each verb with its reply."""

    deadline: int
    generation: int
    closed: bool = False
    numbered: dict[str, tuple[int, object]] = field(default_factory=dict)


@dataclass(slots=True)
class Model:
    """One scope of one namespace."""

    now: int = 0
    generation: int = 0
    is_new_server: bool = True
    grace: int = 0
    longest_ttl: int = 0
    run: int = 0
    sequence: int = 0
    paused: bool = False
    reader: str = ""
    over: bool = False
    items: dict[bytes, Item] = field(default_factory=dict)
    dead: dict[bytes, str] = field(default_factory=dict)
    #: The run in which an item died last, and that in which its page led on.
    died: dict[bytes, int] = field(default_factory=dict)
    led: dict[bytes, int] = field(default_factory=dict)
    marks: dict[bytes, int] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    #: Sessions that are not forgotten: live, or over and not reclaimed.
    members: dict[str, int] = field(default_factory=dict)
    producing: set[str] = field(default_factory=set)

    # sessions

    def meet(self) -> None:
        """A script learns which server it runs on; a new one begins a generation."""
        if self.is_new_server:
            self.is_new_server = False
            self.generation += 1
            self.grace = self.now + self.longest_ttl if self.members else 0

    @property
    def in_grace(self) -> bool:
        """Is nothing granted yet, for the server is a new one?"""
        return self.grace > self.now

    def is_live(self, sid: str) -> bool:
        """Does the deadline of *sid* lie ahead?"""
        return self.members.get(sid, 0) > self.now

    @property
    def live(self) -> set[str]:
        """All live sessions."""
        return {sid for sid in self.members if self.is_live(sid)}

    @property
    def over_sessions(self) -> set[str]:
        """Sessions that are over and not forgotten."""
        return set(self.members) - self.live

    def is_reported(self, sid: str) -> bool:
        """May *sid* be granted anything?"""
        return sid in self.lives and self.lives[sid].generation == self.generation

    def open(self, sid: str, ttl: int, fresh: bool) -> tuple[int, int, int]:
        """Return (generation, run, live)."""
        self.meet()
        live = len(self.live)
        if self.run == 0 or (fresh and live == 0 and not self.items):
            self.run += 1
            self.reader, self.over, self.producing = "", False, set()
        self.longest_ttl = max(self.longest_ttl, ttl)
        self.members[sid] = self.now + ttl
        self.lives[sid] = Life(self.now + ttl, self.generation)
        self.producing.add(sid)
        return self.generation, self.run, live + 1

    def beat(self, sid: str, ttl: int) -> bool:
        """Return False if the session is lost."""
        self.meet()
        if not self.is_live(sid):
            return False
        self.members[sid] = max(self.members[sid], self.now + ttl)
        self.longest_ttl = max(self.longest_ttl, ttl)
        return True

    def close(self, sid: str) -> None:
        """End a session."""
        if sid in self.lives:
            self.lives[sid].closed = True
        if sid in self.members:
            self.members[sid] = 0
        self.producing.discard(sid)

    def claim(self, sid: str) -> str:
        """Who reads start()?"""
        if self.over:
            return "over"
        if self.reader and self.reader != sid and self.is_live(self.reader):
            return "wait"
        self.reader = sid
        return "yours"

    def stop_producing(self, sid: str, verb: str) -> None:
        """``finish`` or ``leave``."""
        if verb == "finish" and (self.reader == sid or not self.reader or not self.is_live(self.reader)):
            self.over = True
        self.producing.discard(sid)

    # numbered calls

    def replay(self, sid: str, verb: str, n: int) -> object | None:
        """Return the stored reply if *n* is the last call, ``older`` if it is older, None if it is new."""
        if sid not in self.lives or verb not in self.lives[sid].numbered:
            return None
        known, reply = self.lives[sid].numbered[verb]
        return reply if n == known else "older" if n < known else None

    def remember(self, sid: str, verb: str, n: int, reply: object) -> None:
        """Keep the reply of a numbered call."""
        if sid in self.lives:
            self.lives[sid].numbered[verb] = n, reply

    # items

    def push(self, entries: Sequence[Entry]) -> str:
        """Return the reply to a new push."""
        return "".join(map(self._push_one, entries))

    def _push_one(self, entry: Entry) -> str:
        if entry.digest in self.items:
            return "="
        if self._is_over(entry):
            return "."
        self._accept(entry)
        return "+"

    def _is_over(self, entry: Entry) -> bool:
        return entry.mark != "none" and self.marks.get(entry.digest) in (0, self.run)

    def _accept(self, entry: Entry) -> Item:
        self.sequence += 1
        priority = max(-32767, min(32767, entry.priority))
        item = self.items[entry.digest] = Item(entry.slot, (-priority, self.sequence), entry.mark)
        self.dead.pop(entry.digest, None)
        return item

    def ask(self, sid: str, entries: Sequence[Entry], claims: Sequence[Claim]) -> None:
        """Check the *claims* that a new call of ``claim`` was answered with, and take them over."""
        for entry, claim in zip(entries, claims, strict=True):
            assert claim.answer in self._answers(entry), f"{claim} for {self.items.get(entry.digest)}"
            item = self.items.get(entry.digest)
            if claim.answer is Answer.WAITING:
                assert item is not None
                assert claim.wait == item.due - self.now
            elif claim.answer is Answer.GRANTED:
                item = item or self._accept(entry)
                assert (claim.attempts, claim.deaths) == (item.attempts, item.deaths)
                item.state, item.session, item.fence, item.due = "leased", sid, claim.fence, 0

    def _answers(self, entry: Entry) -> list[Answer]:
        digest, item = entry.digest, self.items.get(entry.digest)
        if self.in_grace or self.paused or (item is not None and item.state == "leased"):
            return [Answer.CONTENDED]
        if item is not None:
            return [Answer.WAITING if item.state == "delayed" and item.due > self.now else Answer.GRANTED]
        if digest in self.dead:
            # A death in the second in which a run began counts for it.
            return [Answer.OVER] if self.died[digest] == self.run else [Answer.OVER, Answer.GRANTED]
        if self._is_over(entry):
            return [Answer.LEADS if self.led.get(digest) == self.run else Answer.OVER]
        return [Answer.GRANTED]

    def held(self, sid: str) -> set[bytes]:
        """What the records say that *sid* holds."""
        return {digest for digest, item in self.items.items() if item.session == sid and item.state == "leased"}

    def wake_due(self) -> None:
        """What waited long enough is pending."""
        for item in self.items.values():
            if item.state == "delayed" and item.due <= self.now:
                item.leave()

    def pending(self, slot: str) -> list[bytes]:
        """The pending items of a slot, best first."""
        found = [(item.order, key) for key, item in self.items.items() if (item.state, item.slot) == ("pending", slot)]
        return [key for _, key in sorted(found)]

    def grant(self, sid: str, grants: Sequence[Grant]) -> None:
        """Take over what a lease call granted."""
        for grant in grants:
            item = self.items[grant.digest]
            assert item.state == "pending", f"granted an item that is {item}"
            item.state, item.session, item.fence = "leased", sid, grant.fence

    def standing(self) -> Standing:
        """How the run stands; ``expired`` is left out."""
        states = [item.state for item in self.items.values()]
        due = min((item.due for item in self.items.values() if item.state == "delayed"), default=None)
        return Standing(
            self.in_grace,
            states.count("pending"),
            states.count("delayed"),
            states.count("leased"),
            -1 if due is None else max(0, due - self.now),
            not states and not any(map(self.is_live, self.producing)),
            self.paused,
            "",
        )

    def settle(self, sid: str, settlements: Sequence[Settlement]) -> str:
        """Return the reply to a new settle."""
        return "".join(self._settle_one(sid, settlement) for settlement in settlements)

    def _settle_one(self, sid: str, settlement: Settlement) -> str:
        digest, args = settlement.digest, settlement.args
        item = self.items.get(digest)
        if item is None or not item.belongs(sid, settlement.fence):
            return "-"
        match settlement.verb:
            case "done" | "rejected":
                del self.items[digest]
                if args[:1] != ("none",):
                    is_kept = (args[:1] == ("keep",) and item.mark == "auto") or args == ("leads", 1)
                    self.marks[digest] = 0 if is_kept else self.run
                    self.led[digest] = self.run if args[:1] == ("leads",) else 0
            case "sent":
                item.sent = True
            case "back":
                item.leave(args[0] and self.now + args[0])
            case "dead":
                return self._bury(digest, args[0])
            case "failed":
                item.attempts += 1
                if item.attempts >= args[1]:
                    return self._bury(digest, args[2])
                item.leave(args[0] and self.now + args[0])
        return "+"

    def _bury(self, digest: bytes, reason: str) -> str:
        del self.items[digest]
        self.dead[digest] = reason
        self.died[digest] = self.run
        return "!"

    def report(self, sid: str, holds: Sequence[tuple[bytes, int]], fences: Sequence[int], previous: str) -> None:
        """Check the *fences* that a new report was answered with, and take them over."""
        kept = set()
        for (digest, fence), now in zip(holds, fences, strict=True):
            item = self.items.get(digest)
            if item is not None and item.belongs(sid, fence):
                assert now == fence, "what a session still holds keeps its fence"
            elif item is not None and (item.state != "leased" or item.belongs(previous, fence)):
                assert now > fence, "what is taken again has a greater fence"
                item.state, item.session, item.fence, item.due = "leased", sid, now, 0
            else:
                assert now == 0, "what another session holds is lost to this one"
                continue
            kept.add(digest)
        for digest in self.held(sid) - kept:
            self.items[digest].leave()
        self.lives[sid].generation = self.generation

    def reclaim(self, sid: str, deaths: int, policy: str) -> tuple[int, int]:
        """Return (moved, left)."""
        self.meet()
        closed = sid in self.lives and self.lives[sid].closed
        if self.is_live(sid) or (self.in_grace and not closed):
            return 0, -1
        held = self.held(sid)
        for digest in held:
            self._free(digest, closed, deaths, policy)
        self.members.pop(sid, None)
        self.producing.discard(sid)
        return len(held), 0

    def _free(self, digest: bytes, closed: bool, allowed: int, policy: str) -> None:
        item = self.items[digest]
        if closed:
            item.leave()
            return
        item.deaths += 1
        if policy == "park" and item.sent:
            self._bury(digest, "doubtful")
        elif item.deaths >= allowed:
            self._bury(digest, "deaths")
        else:
            wait = int.from_bytes(digest[:2], "big") * min(2**item.deaths, 32) / 32
            item.leave(int(f"{self.now + wait:.0f}") if item.deaths > 1 else 0)
