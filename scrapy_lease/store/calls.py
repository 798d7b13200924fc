"""Lua files as the server knows them, and calls of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

#: Scripts that free memory or keep a session alive run even when the server is out of memory (from Redis 7 on).
_ALLOWED_WITHOUT_MEMORY = frozenset(
    {
        "beat",
        "settle",
        "report",
        "reclaim",
        "close",
        "start",
        "feed_settle",
        "pool_settle",
        "pool_report",
        "pool_reclaim",
        "account_settle",
        "account_report",
        "account_reclaim",
    }
)
#: Verbs of a pool to which accounts add something.
_OF_ACCOUNTS = frozenset({"take", "settle", "change", "refill"})


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file with the shared prelude, and its SHA-1 as the server computes it."""

    name: str
    source: bytes
    sha: str

    @classmethod
    def load(cls, name: str, *, shebang: bool) -> Script:
        """Read ``lua/<name>.lua``; *shebang*: the server knows script flags (Redis 7 and later)."""
        folder = files("scrapy_lease.store") / "lua"
        header = "#!lua flags=allow-oom\n" if shebang and name in _ALLOWED_WITHOUT_MEMORY else ""
        parts = ("_prelude", *_parts_of(name))
        text = header + "".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
        source = text.encode()
        return cls(name, source, sha1(source, usedforsecurity=False).hexdigest())


def _parts_of(name: str) -> tuple[str, ...]:
    """Return the files that make a script, after the prelude.

    The verbs of a pool are one for all kinds of resources; ``account_take`` is that of a pool of accounts.
    """
    kind, _, verb = name.partition("_")
    if kind in ("pool", "account"):
        part = "_proxy" if kind == "pool" else "_account"
        special = (f"_account_{verb}",) if kind == "account" and verb in _OF_ACCOUNTS else ()
        return "_pool", part, *special, *(("_ties", "_clearing") if verb == "take" else ()), f"pool_{verb}"
    if kind == "rate":
        return ("_rate", "_sliding", "_shares", name) if verb == "take" else (name,)
    return "_items", name


@dataclass(slots=True)
class Call:
    """A script call: its declared keys and its arguments after ``run_id``, which the connection adds."""

    script: str
    keys: Sequence[str]
    args: Sequence[bytes | str | int]
