"""pool_change free: as long as who held it may not have heard, a freed resource serves nobody."""

from __future__ import annotations

import pytest

from tests.lua.bed import TTL
from tests.lua.pool_bed import HOUR, PoolBed, ids


def wait(bed: PoolBed, milliseconds: int) -> None:
    """Let time pass, in which session b lives on."""
    bed.pass_time(milliseconds // 2)
    bed.run(bed.scripts.beat("b", ttl=TTL, node="host"))
    bed.pass_time(milliseconds - milliseconds // 2)


@pytest.mark.parametrize("verbs", ["free", "drain undrain", "revoke undrain", "revoke free"])
def test_nothing_that_an_operator_does_makes_it_sooner(bed: PoolBed, verbs: str) -> None:
    """A resource that was freed while leased serves others after the longest time to live, and its exit too."""
    member, other = bed.member("a", ttl=TTL), bed.member("b", ttl=TTL)
    bed.add("u1", exit="10.0.0.1")
    member.get()
    bed.change("free", "u1")
    bed.add("u2", exit="10.0.0.1")
    for verb in verbs.split():
        assert bed.change(verb, "u1") == "+"
    assert bed.place("u1") == "resting"
    assert other.get() == ()
    wait(bed, TTL - 1000)
    assert other.get() == ()
    wait(bed, 1000)
    assert ids(other.get()) == ["u1"]


def test_expired_and_registered_again(bed: PoolBed) -> None:
    """It is not gone before its holder must have heard, so that no provider brings it back as a new one."""
    member, other = bed.member("a", ttl=TTL), bed.member("b", ttl=TTL)
    bed.add("p1", life=HOUR)
    member.get()
    bed.expire("p1")
    bed.change("free", "p1")
    assert other.get() == ()
    assert bed.add("p1", life=HOUR) == "="
    assert other.get() == ()
    wait(bed, TTL)
    bed.expire("p1")
    assert other.get() == ()
    assert bed.place("p1") == "gone"


def test_moved_to_another_exit(bed: PoolBed) -> None:
    """A freed resource stays behind the exit through which its holder may still go; another one counts later."""
    member, other = bed.member("a", ttl=TTL), bed.member("b", ttl=TTL)
    bed.add("u1", "u2", exit="10.0.0.1")
    member.get()
    bed.change("free", "u1")
    assert bed.add("u1", exit="10.0.0.2") == "="
    assert other.get() == ()
    assert bed.place("u2", "10.0.0.1") == "behind"


def test_drained_when_it_comes_back(bed: PoolBed) -> None:
    """What was drained meanwhile is put aside then, and the next identity of its exit comes forward."""
    member, other = bed.member("a", ttl=TTL), bed.member("b", ttl=TTL)
    bed.add("u1", "u2", exit="10.0.0.1")
    member.get()
    bed.change("free", "u1")
    bed.change("drain", "u1")
    wait(bed, TTL)
    assert ids(other.get(2)) == ["u2"]
    assert bed.place("u1") == "aside"
