"""The one place that builds key names.

Every key of a namespace carries the hash tag ``{namespace:shard}``, so that a script finds all its keys in one slot of
a cluster. A *scope* is where requests live: a job, or one named run of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote

#: Shards of a namespace on a single server.
SHARDS = 1

#: Marks a done bucket should hold: small enough to stay in the server's compact encoding, many enough to pay the key.
MARKS_PER_BUCKET = 100


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    """Return *name* without the characters that structure a key (braces, colons, at signs, control characters)."""
    return quote(name, safe=" !$&'()*+,;=/-._~")


@dataclass(frozen=True, slots=True)
class Namespace:
    """Keys that all jobs of a namespace share."""

    name: str
    shard: int = 0

    @property
    def prefix(self) -> str:
        """Begin of every key, with the hash tag."""
        return f"{{{_plain(self.name)}:{self.shard}}}"

    @property
    def clock(self) -> str:
        """HASH: lease clock, generation, fence, number of shards."""
        return f"{self.prefix}:clock"

    @property
    def sessions(self) -> str:
        """ZSET: session id -> deadline on the lease clock, in ms."""
        return f"{self.prefix}:sessions"

    @property
    def control(self) -> str:
        """HASH: ``pause:<job>`` and ``drain:<node>`` flags."""
        return f"{self.prefix}:control"

    @property
    def jobs(self) -> str:
        """HASH: scope name -> when it was opened last (seconds of the server's wall clock)."""
        return f"{self.prefix}:jobs"

    @property
    def seal(self) -> str:
        """STRING, sealed with the key of the accounts: who cannot open it has another key."""
        return f"{self.prefix}:accounts:seal"

    @property
    def rate_limits(self) -> str:
        """HASH: rule and length of a window -> the limit that an operator set in the place of the configured one."""
        return f"{self.prefix}:rates:limits"

    @property
    def rate_blocks(self) -> tuple[str, str]:
        """ZSET of the keys that are blocked; HASH of how often in a row they were: see ``rate_block.lua``."""
        return f"{self.prefix}:rates:blocks", f"{self.prefix}:rates:strikes"

    @property
    def rate_specs(self) -> str:
        """ZSET: what live sessions limit, as text -> lease clock until which it counts: see ``rate_look.lua``."""
        return f"{self.prefix}:rates:specs"

    def rate_witnesses(self, site: str) -> str:
        """ZSET of the addresses that a site has asked for a pause."""
        return f"{self.prefix}:rates:limited:{_plain(site)}"

    def rate(self, label: str, shard: int = 0) -> str:
        """HASH of one counter of a rate limit, see ``_rate.lua``; *label* may be long, and is not shown."""
        return f"{self.prefix}:rate:{blake2b(label.encode(), digest_size=12).hexdigest()}:{shard}"

    def session(self, sid: str) -> str:
        """HASH of one session: who it is, and the last call of each verb with its reply."""
        return f"{self.prefix}:session:{sid}"

    def runs(self, job: str) -> str:
        """ZSET of the named runs of a job -> when each was opened last."""
        return f"{self.prefix}:runs:{_plain(job)}"

    def scope(self, job: str, run: str = "", expected_items: int = 10_000_000) -> Scope:
        """Return the keys of *job* (of its run named *run*); *expected_items* sizes its done set."""
        return Scope(self, job, run, max(1, expected_items // MARKS_PER_BUCKET))

    def pool(self, kind: str, name: str) -> PoolKeys:
        """Return the keys of the pool *name* of resources of a *kind* (``proxy``, ``account``)."""
        return PoolKeys(self, kind, name)


@dataclass(frozen=True, slots=True)
class Scope:
    """Keys of one job, or of one named run of it."""

    namespace: Namespace
    job: str
    run: str
    buckets: int

    @property
    def name(self) -> str:
        """``job``, or ``job@run``."""
        return f"{_plain(self.job)}@{_plain(self.run)}" if self.run else _plain(self.job)

    def key(self, part: str) -> str:
        """Return the key of one part: meta, members, producing, start, ready, slots, delayed, state, payload, dead."""
        return f"{self.namespace.prefix}:job:{self.name}:{part}"

    def held(self, sid: str) -> str:
        """HASH of the leases of a session: digest -> fence."""
        return self.key(f"held:{sid}")

    def bucket(self, number: int) -> str:
        """Return the HASH of done marks number *number*."""
        return self.key(f"done:{number}")

    def buckets_of(self, numbers: Iterable[int]) -> list[str]:
        """Return the HASHes of done marks with these numbers."""
        begin = self.key("done:")
        return [f"{begin}{number}" for number in numbers]

    def mark(self, digest: bytes) -> tuple[str, bytes]:
        """Return the done bucket of a digest and the field in it.

        Bucket number and field use different halves of the 16 bytes, so together they tell more than 64 bits.
        """
        return self.bucket(self.bucket_of(digest)), digest[8:]

    def bucket_of(self, digest: bytes) -> int:
        """Return the number of the done bucket of a digest."""
        return int.from_bytes(digest[:8], "big") % self.buckets


#: Parts of a pool, in the order in which its scripts take them (see ``pool_take.lua`` for what each holds).
POOL_PARTS = (
    "meta", "resources", "free", "spotted", "resting", "leases", "exits", "behind", "expiries", "rests",
    "benched", "sites", "members", "over", "waiting", "asks", "recalls", "events", "views",
)  # fmt: skip


#: Parts that a pool of accounts has besides (see ``_account.lua``).
ACCOUNT_PARTS = ("accounts", "cold", "bench", "spent", "paces", "jars")


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """Keys of one pool, all in one shard of its namespace."""

    namespace: Namespace
    kind: str
    name: str

    @property
    def label(self) -> str:
        """``kind/name``."""
        return f"{_plain(self.kind)}/{_plain(self.name)}"

    def key(self, part: str) -> str:
        """Return the key of one of :data:`POOL_PARTS`."""
        return f"{self.namespace.prefix}:pool:{self.label}:{part}"

    def held(self, sid: str) -> str:
        """SET of the resources that a session has leased."""
        return self.key(f"held:{sid}")

    def counter(self, window: int, is_call: bool) -> str:
        """HASH: number of a window of so many ms, and what was bought (or how often: *is_call*) in it."""
        return self.key(f"{'calls' if is_call else 'bought'}:{window}")

    @property
    def ties(self) -> list[str]:
        """HASH: sticky key, hashed -> what it is tied to; ZSET: when each tie ends. For takes, besides :meth:`all`."""
        return [self.key("sticky"), self.key("sticky_ends")]

    def all(self, sid: str, other: str = "") -> list[str]:
        """Return the keys of every pool script, for a call of session *sid*, "" for one from outside.

        :param other: the session before it, whose leases it takes along.
        """
        space = self.namespace
        keys = [space.clock, space.sessions, space.session(sid), *map(self.key, POOL_PARTS)]
        keys += (self.held(sid), self.held(other))
        return [*keys, *map(self.key, ACCOUNT_PARTS)] if self.kind == "account" else keys


@dataclass(frozen=True, slots=True)
class FeedKeys:
    """Keys beside a feed, on the feed's server, which need not be the store.

    :param name: the feed itself: a list, set or sorted set of the user's.
    :param namespace: whose sessions read it.
    :param store: the id of their store: only there can be asked whether one of them is over.
    """

    name: str
    namespace: str
    store: str

    @property
    def readers(self) -> str:
        """SET of the sessions that took entries and did not settle all of them."""
        return f"{self._beside}:{_plain(self.namespace)}:{self.store}:readers"

    @property
    def failed(self) -> str:
        """LIST of entries of which no request could be made, the last one at its end."""
        return f"{self._beside}:failed"

    def taken(self, sid: str) -> str:
        """HASH of what a session took and did not settle: id -> score, space, entry."""
        return f"{self._beside}:{_plain(self.namespace)}:{self.store}:taken:{sid}"

    @property
    def _beside(self) -> str:
        """Begin of every key: in the slot of the feed, whose whole name counts unless it has a hash tag."""
        first = self.name.find("{")
        has_tag = first >= 0 and self.name.find("}", first + 1) > first + 1
        return f"{self.name}:lease" if has_tag else f"{{{self.name}}}:lease"
