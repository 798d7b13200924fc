"""What the scripts of a pool of accounts promise besides, in plain Python: one holder, a quota, layers, health.

Which of several accounts is handed out, or becomes active for that, the model leaves to the store and only judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scrapy_lease.store.pool_scripts import Backoff, Lease, Verdict
from tests.state.pool_model import Known, PoolModel, rest

QUOTA, SLICE, WINDOW = 25, 10, 50


@dataclass(slots=True)
class Account(Known):
    """*place* of one that is in play: free, cold, bench, spent, or resting: it cools."""

    place: str = "cold"
    layer: str = "c"
    till: int = 0
    marks: str = ""
    used: int = 0
    day: int = 0
    ails: bool = False
    jar: bytes = b""


@dataclass(slots=True)
class AccountModel(PoolModel):
    """One pool of accounts."""

    known: dict[str, Account] = field(default_factory=dict)  # type: ignore[assignment]

    @property
    def sick(self) -> int:
        """Accounts that are left alone, or will be."""
        return sum(
            known.ails or known.state == "resting" or (known.state == "play" and known.place in ("bench", "resting"))
            for known in self.known.values()
        )

    def place_of(self, known: Account) -> str:
        """Where an account in play belongs."""
        if known.layer == "c":
            return "bench" if known.till > self.now else "cold"
        if known.till > self.now:
            return "resting"
        return "spent" if known.day and known.used >= QUOTA else "free"

    def end(self, name: str, state: str = "play", due: int = 0) -> None:
        known = self.known[name]
        known.sid, known.fence, known.due, known.ails = "", 0, 0, False
        known.state = "play" if known.flag == " " else "aside"
        known.place = self.place_of(known)

    def clear_away(self) -> None:
        for known in self.known.values():
            if known.state == "resting" and known.due <= self.now:
                known.state, known.place = "play" if known.flag == " " else "aside", self.place_of(known)
            elif known.state == "play" and known.place in ("bench", "resting", "spent"):
                known.place = self.place_of(known)

    def granted(self, lease: Lease) -> None:
        """An account was leased, with permits."""
        known, permits = self.known[lease.id], lease.permits
        assert known.place in ("free", "cold"), f"{lease.id} was granted while it was {known.place}"
        assert permits is not None
        assert permits.count == min(SLICE, QUOTA - (known.used if known.day else 0))
        known.layer, known.day, known.used = "a", permits.day, permits.used
        assert known.used <= QUOTA
        assert lease.jar == known.jar

    def register(self, name: str, expiry: int, exit: str) -> str:
        if name in self.known:
            return "x" if self.known[name].flag == "x" else "="
        self.known[name] = Account(0, "")
        return "+"

    def new_day(self) -> None:
        """The day of each account is over."""
        for known in self.known.values():
            known.day = 0

    def cool(self, name: str, length: int) -> str:
        known = self.known.get(name)
        if known is None:
            return "-"
        if known.state == "resting":
            return "="
        known.till = max(known.till, self.now + length)
        if known.state == "leased":
            known.ails = True
        elif known.state == "play":
            known.place = self.place_of(known)
        return "+"

    def _settle(self, sid: str, verdict: Verdict) -> str:
        known = self.known.get(verdict.id)
        if known is None or not known.belongs(sid, verdict.fence):
            return "-"
        match verdict.verb, verdict.args:
            case "ok", _:
                known.strikes = 0
            case "uses", (str(results), int(), int(), Backoff() as backoff, _):
                return self._uses(known, results, backoff)
            case "jar", (bytes(jar),):
                known.jar = jar
            case "cool", (int(length), int(unspent)):
                known.till = max(known.till, self.now + length)
                self._returned(known, unspent, 0)
                self.end(verdict.id)
            case "demote", (str(), Backoff() as backoff):
                known.till = self._demoted(known, backoff)
                self.end(verdict.id)
            case "back", (int(), int(unspent), int(day)):
                self._returned(known, unspent, day)
                self.end(verdict.id)
            case "back", _:
                self.end(verdict.id)
            case "gone", _:
                del self.known[verdict.id]
        return "+"

    def _returned(self, known: Account, unspent: int, day: int) -> None:
        if day and day == known.day:
            known.used = max(0, known.used - unspent)

    def _demoted(self, known: Account, backoff: Backoff) -> int:
        known.strikes += 1
        known.layer, known.marks = "c", ""
        return self.now + rest(known.strikes, backoff)

    def _uses(self, known: Account, results: str, backoff: Backoff) -> str:
        if known.till > self.now:
            return "!"
        known.marks = (known.marks + results)[-WINDOW:]
        if len(known.marks) < 20 or known.marks.count("+") * 10 >= 9 * len(known.marks):
            return "+"
        if (self.sick + 1) * 2 > len(self.known):
            return "="
        known.till = max(known.till, self._demoted(known, backoff))
        known.ails = True
        return "!"

    def _free(self, name: str, known: Known) -> None:
        assert isinstance(known, Account)
        known.layer, known.till, known.marks, known.ails = "a", 0, "", False
        PoolModel._free(self, name, known)
