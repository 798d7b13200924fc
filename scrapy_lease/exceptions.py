"""The errors that scrapy-lease raises: all of them are a `LeaseError`."""

from __future__ import annotations


class LeaseError(Exception):
    """Anything that scrapy-lease cannot or must not do."""

    #: Has the log said it already? Then nobody logs it again.
    is_told = False


class SettingsError(LeaseError, ValueError):
    """Settings with which a crawl must not start: the message names each, its value and what is allowed."""


class StoreError(LeaseError):
    """The store, or the way to it, did not do what it was asked."""


class StoreUnavailable(StoreError):
    """The store does not answer; it may later, so waiting is an answer."""


class EmbeddedServerError(StoreUnavailable):
    """The embedded server cannot be started, found or kept alive."""


class StoreRefused(StoreError):
    """The store answers but cannot be used as it is; waiting does not help.

    Its version, password or eviction policy is wrong, or the sessions at work there are configured otherwise.
    """


class SessionLost(LeaseError):
    """This process's session has expired in the store: nothing that it held is its own any more."""


class GenerationChanged(LeaseError):
    """The server restarted: the session must report what it holds before it is granted anything."""


class OtherDays(LeaseError):
    """The boundaries of days that were sent hold no day of the server's clock, which is at :attr:`wall` ms."""

    def __init__(self, wall: int) -> None:
        super().__init__(f"the server's clock is at {wall} ms")
        self.wall = wall


class LeaseLost(LeaseError):
    """This session no longer holds the lease in question: it was taken over, given up or never granted."""


class NoResource(LeaseError):
    """A pool had nothing to lease in time; :attr:`reason` says why.

    ``wait``: others have what there is, or it rests for the site; ``empty``: nothing in the pool is usable; ``closed``:
    this process takes nothing any more.
    """

    def __init__(self, pool: str, site: str, reason: str) -> None:
        super().__init__(f"pool {pool!r} has nothing for {site or 'any site'}: {reason}")
        self.reason = reason


class PayloadError(LeaseError):
    """A request cannot be turned into its stored form, or back."""


class Unserialisable(PayloadError):
    """A request holds something that cannot be stored; it stays with this node."""


class CorruptPayload(PayloadError):
    """A stored request cannot be read: damaged, hostile, or of a version that this one does not know."""


class UnknownCallback(PayloadError):
    """A stored request names a callback or errback that this node's spider does not have."""


class NoProxy(LeaseError):
    """A request that no scheduler gave (media, robots.txt) got no proxy in time: it fails, and never goes directly."""


class NoAccount(LeaseError):
    """A request that no scheduler gave (media, robots.txt) got no account in time: it fails, and never goes without."""


class NoPermit(LeaseError):
    """A request that no scheduler gave (media, robots.txt) got no permit of its rate limits in time: it fails."""
