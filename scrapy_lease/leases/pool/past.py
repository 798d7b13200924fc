"""How identities did while they were here, and, as the store tells, while others had them.

Whoever holds an identity is the only one to use it, so what it sees is all there is to see. It tells the store, which
hands it on with the next lease: that a site is served, once in a while; a suspicion at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from scrapy_lease.leases.pool.options import ViewLike

#: Identities, and sites of each, of which it is remembered how they did.
REMEMBERED, SITES_REMEMBERED = 1000, 200
#: Seconds for which it counts that another process had a site served; seconds after which it is told again.
FRESH, RENEWAL = 3600.0, 1200.0


def key_of(url: str) -> str:
    """Return what a suspicion keeps of a URL; "" for none."""
    return blake2b(url.encode(), digest_size=8).hexdigest() if url else ""


@dataclass(slots=True)
class Past:
    """What is known of an identity, over all its leases.

    :param serves: sites that it has served here since they refused it last.
    :param served: sites that it had served, here before they refused it, or elsewhere.
    :param suspects: site -> key of the URL that was refused last there, with nothing served since.
    """

    serves: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    suspects: dict[str, str] = field(default_factory=dict)

    def learn(self, views: Mapping[str, ViewLike]) -> set[str]:
        """Take in what the store knows; return the sites of which it need not be told soon that they are served."""
        ages = {site: view.served / 1000 for site, view in views.items() if view.served is not None}
        self.served.update(site for site, age in ages.items() if age < FRESH)
        self.suspects.clear()
        self.suspects.update({site: view.suspect for site, view in views.items() if view.suspect})
        return {site for site, age in ages.items() if age < RENEWAL}


class Pasts:
    """The pasts of the identities that were here lately."""

    def __init__(self) -> None:
        self._pasts: dict[str, Past] = {}

    def __repr__(self) -> str:
        return f"<Pasts of {len(self._pasts)}>"

    def of(self, id_: str) -> Past:
        """Return the past of an identity, which is here now."""
        past = self._pasts.pop(id_, None) or Past()
        self._pasts[id_] = past
        while len(self._pasts) > REMEMBERED:
            del self._pasts[next(iter(self._pasts))]
        for sites in (past.serves, past.served):
            if len(sites) > SITES_REMEMBERED:
                sites.clear()
        return past
