"""Resources that the store holds to be this process's, and of which it knows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scrapy_lease.leases.pool.options import RestLike, ViewLike
from scrapy_lease.leases.pool.past import Past
from scrapy_lease.leases.pool.purse import PermitsLike
from scrapy_lease.leases.pool.shelf import Lease
from scrapy_lease.leases.session import Session, boot_time


@dataclass(frozen=True, slots=True)
class _Stray:
    """A resource of which the store thinks that this session has still to hear: it is told that it has."""

    id: str
    fence: int = 0
    body: bytes = b""
    exit: str = ""
    life: int | None = None
    strikes: int = 0
    rests: Mapping[str, RestLike] = field(default_factory=dict)
    views: Mapping[str, ViewLike] = field(default_factory=dict)
    permits: PermitsLike | None = None
    jar: bytes = b""


def stray_of(id_: str, session: Session) -> Lease:
    """Return the lease of a resource of which this process knows nothing, as far as it is needed to say so."""
    lease = Lease(_Stray(id_), Past(), session, boot_time())
    lease.is_held = False
    return lease
