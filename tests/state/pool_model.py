"""What the scripts of a pool promise, in plain Python: the model that the state machine holds the store against.

Time is the lease clock in ms. Which of several free resources is granted, and when those who wait get theirs, the model
leaves to the store and only judges; all else it foretells.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from scrapy_lease.store.pool_scripts import Backoff, Verdict

#: At so many sites at once it is the resource that is at fault.
SITES = 3


@dataclass(slots=True)
class Known:
    """A resource. *state*: play (free, or behind its exit), leased, resting, aside."""

    expiry: int
    exit: str
    state: str = "play"
    flag: str = " "
    strikes: int = 0
    sid: str = ""
    fence: int = 0
    due: int = 0
    rests: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Site -> when it was last said to serve it, 0: never; the suspect.
    views: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def is_in_use(self) -> bool:
        """May somebody use it: its holder, or one that may not have heard that an operator freed it?"""
        return self.state == "leased" or (self.state == "resting" and self.strikes == 0)

    def belongs(self, sid: str, fence: int) -> bool:
        """Has this session leased it under this fence?"""
        return self.state == "leased" and (self.sid, self.fence) == (sid, fence)


def rest(strikes: int, backoff: Backoff) -> int:
    """How long something rests, in ms."""
    return min(backoff.longest, backoff.first * 2 ** (strikes - 1))


@dataclass(slots=True)
class PoolModel:
    """One pool. *wall*: the wall clock at its begin; *ttl_max*: the longest time to live of any session."""

    now: int = 0
    wall: int = field(default_factory=lambda: int(time.time() * 1000))
    ttl_max: int = 0
    #: Sessions that the server knows, over or not.
    sessions: set[str] = field(default_factory=set)
    known: dict[str, Known] = field(default_factory=dict)
    sites: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Sticky key -> what it is tied to, and until when.
    ties: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: (session, verb) -> number and reply of the last call.
    numbered: dict[tuple[str, str], tuple[int, object]] = field(default_factory=dict)

    def replay(self, sid: str, verb: str, n: int) -> object | None:
        """The reply of an earlier call under this number, ``older``, or None."""
        known, reply = self.numbered.get((sid, verb), (0, None))
        return reply if n == known and n else "older" if n < known else None

    def tied(self, key: str) -> str:
        """What a sticky key is tied to; "": nothing."""
        name, end = self.ties.get(key, ("", 0))
        return name if end > self.now else ""

    def holds(self, sid: str, name: str) -> bool:
        return name in self.known and self.known[name].state == "leased" and self.known[name].sid == sid

    def may_serve(self, name: str, site: str) -> bool:
        """May a resource serve a site, now or when its lease ends?"""
        known = self.known.get(name)
        return known is not None and (
            known.state in ("play", "leased") and not self.has_expired(known)
            and known.rests.get(site, (0, 0))[0] <= self.now
        )  # fmt: skip

    def has_expired(self, known: Known) -> bool:
        return 0 < known.expiry <= self.wall

    def serves(self, name: str, site: str) -> bool:
        """May a resource be used, or probed, there?"""
        return self.known[name].rests.get(site, (0, 0))[0] <= self.now and not self.banned_until(name)

    def held(self, sid: str) -> set[str]:
        return {name for name, known in self.known.items() if known.state == "leased" and known.sid == sid}

    def clear_away(self) -> None:
        """What any take does first."""
        for name, known in list(self.known.items()):
            if self.has_expired(known) and not known.is_in_use:
                del self.known[name]
            elif known.state == "resting" and known.due <= self.now:
                known.due = self.banned_until(name) if known.flag == " " else 0
                known.state = "resting" if known.due else "play" if known.flag == " " else "aside"

    def banned_until(self, name: str) -> int:
        """Until when a resource rests for so many sites that it is of use to nobody; 0: it does not."""
        ends = sorted((until for until, _ in self.known[name].rests.values()), reverse=True)
        return ends[SITES - 1] if len(ends) >= SITES and ends[SITES - 1] > self.now else 0

    def end(self, name: str, state: str = "play", due: int = 0) -> None:
        """The lease of a resource is over."""
        known = self.known[name]
        if state == "play" and known.flag == " " and self.banned_until(name):
            state, due = "resting", self.banned_until(name)
            known.strikes += 1
        known.sid, known.fence, known.due = "", 0, due
        known.state = state if known.flag == " " else "aside"
        if self.has_expired(known):
            del self.known[name]

    def register(self, name: str, expiry: int, exit: str) -> str:
        known = self.known.get(name)
        if known is None:
            if 0 < expiry <= self.wall:
                return "."
            self.known[name] = Known(expiry, exit)
            return "+"
        known.expiry = expiry
        if not known.is_in_use:
            known.exit = exit
        return "x" if known.flag == "x" else "="

    def settle(self, sid: str, verdicts: Sequence[Verdict]) -> str:
        return "".join(self._settle(sid, verdict) for verdict in verdicts)

    def _settle(self, sid: str, verdict: Verdict) -> str:
        known = self.known.get(verdict.id)
        if known is None or not known.belongs(sid, verdict.fence):
            return "-"
        match verdict.verb, verdict.args:
            case "ok", (str(site),):
                known.strikes = 0
                known.rests.pop(site, None)
                self.sites.pop(site, None)
            case "ban" | "hang", (str(site), Backoff() as backoff):
                return self._ban(verdict.id, known, site, backoff)
            case "broken", (Backoff() as backoff,):
                self._break(verdict.id, known, backoff)
            case "view", (str(site), int(is_serving), str(suspect)):
                self._view(known, site, is_serving, suspect)
            case "back", _:
                self.end(verdict.id)
            case "gone", _:
                del self.known[verdict.id]
        return "+"

    def _view(self, known: Known, site: str, is_serving: int, suspect: str) -> None:
        served = self.now if is_serving else known.views.get(site, (0, ""))[0]
        known.views[site] = served, suspect
        if not served and not suspect:
            del known.views[site]

    def _break(self, name: str, known: Known, backoff: Backoff) -> None:
        known.strikes += 1
        self.end(name, "resting", self.now + rest(known.strikes, backoff))

    def _ban(self, name: str, known: Known, site: str, backoff: Backoff) -> str:
        until, strikes = known.rests.get(site, (0, 0))
        if until > self.now:
            return "+"
        self._view(known, site, 0, "")
        benched = sum(site in other.rests for other in self.known.values()) + (site not in known.rests)
        if site in self.sites or 2 * benched > len(self.known):
            until, strikes = self.sites.get(site, (0, 0))
            if until <= self.now:
                self.sites[site] = (self.now + rest(strikes + 1, backoff), strikes + 1)
            return "="
        known.rests[site] = (self.now + rest(strikes + 1, backoff), strikes + 1)
        return "!" if self.banned_until(name) else "+"

    def change(self, verb: str, name: str) -> str:
        known = self.known.get(name)
        if known is None:
            return "-"
        if verb in ("drain", "revoke"):
            flag = verb[0] if verb == "drain" else "x"
            if known.flag in (flag, "x"):
                return "="
            known.flag = flag
            if not known.is_in_use:
                known.state = "aside"
        elif verb == "undrain":
            if known.flag == " ":
                return "="
            known.flag = " "
            if not known.is_in_use:
                self.end(name)
        else:
            self._free(name, known)
        return "+"

    def _free(self, name: str, known: Known) -> None:
        was_in_use = known.is_in_use
        known.rests, known.views, known.strikes, known.flag = {}, {}, 0, " "
        if known.state == "leased":
            known.state, known.sid, known.fence, known.due = "resting", "", 0, self.now + self.ttl_max
        elif not was_in_use:
            self.end(name)
