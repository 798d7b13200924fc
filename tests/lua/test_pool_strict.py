"""pool_take: keys that are tied once and for ever: whatever happens to their resource, they get no other."""

from __future__ import annotations

import pytest

from scrapy_lease.store.pool_scripts import Tie
from tests.lua.pool_bed import HOUR, PoolBed, ids

KEY = Tie("account", "shop", strict=True)


@pytest.mark.parametrize("fate", ["revoke", "ban", "drain", "avoid"])
def test_it_gets_no_other(bed: PoolBed, fate: str) -> None:
    """While its resource may not serve, it waits for that one, whatever else is free; then it has it again."""
    member = bed.member()
    bed.add(*range(5))
    (lease,) = member.tie(KEY).leases
    if fate == "ban":
        member.say(lease, "ban", "shop")
    member.back(lease)
    if fate in ("revoke", "drain"):
        bed.change(fate, lease.id)
    asked = KEY if fate != "avoid" else Tie("account", "shop", avoid=frozenset({lease.id}), strict=True)
    take = member.tie(asked)
    assert (take.leases, take.tied) == ((), (lease.id,))
    if fate in ("revoke", "drain"):
        bed.change("undrain", lease.id)
    elif fate == "ban":
        bed.pass_time(2 * HOUR)
        member = bed.member("b")
    assert ids(member.tie(KEY)) == [lease.id]


def test_it_is_not_forgotten(bed: PoolBed) -> None:
    """It outlives the time after which a tie is forgotten that nobody has used."""
    member = bed.member()
    bed.add(*range(5))
    take = member.tie(KEY, Tie("other", "shop"))
    member.back(*take.leases)
    bed.pass_time(3 * HOUR)
    bed.run(bed.outside.change("drain", [take.tied[0]]))
    assert bed.member("b").tie(KEY, Tie("other", "shop")).tied[0] == take.tied[0]
