"""Whether a pool is of any use, as a node sees it: what is there, and what has answered."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.pool.options import Kind, PoolOptions
from scrapy_lease.leases.pool.vitals import Vitals
from scrapy_lease.store.pool_scripts import PoolStanding
from tests.unit.pool_parts import Clock


def standing(*, free: int = 1, leased: int = 0, silent: float = 0.0) -> PoolStanding:
    """A pool of which nothing has answered for *silent* s."""
    return PoolStanding(False, free, 0, leased, 0, 3, 0, 1, 0, int(silent * 1000), "")


def vitals(**options: Any) -> tuple[Vitals, Clock]:
    clock = Clock()
    return Vitals(PoolOptions("default", **options), clock), clock


def test_a_pool_is_of_use_until_something_fails() -> None:
    """What is there and has not failed counts as usable, however long nothing comes."""
    pool, clock = vitals()
    pool.stands(standing(), 0)
    clock.now += 1000
    assert pool.useless_for == 0


def test_what_is_empty_is_of_no_use() -> None:
    """Nothing free and nothing leased: for as long as that lasts."""
    pool, clock = vitals()
    pool.stands(standing(free=0), 0)
    clock.now += 7
    assert (pool.is_empty, pool.useless_for) == (True, 7)
    pool.stands(standing(free=0, leased=1), 0)
    assert (pool.is_empty, pool.useless_for) == (False, 0)


def test_what_comes_back_and_fails_again_is_of_no_use() -> None:
    """A rest that ends does not end the silence: it counts from the first failure on."""
    pool, clock = vitals()
    for silent in (1.0, 2.0, 3.0):
        pool.stands(standing(silent=silent), 0)
        assert pool.useless_for == pytest.approx(silent)
        clock.now += 1
        pool.judged("hang")
    assert pool.useless_for == pytest.approx(4)


@pytest.mark.parametrize(
    ("kind", "is_answer"),
    [
        ("ok", True), ("target", True), ("ban", True), ("limited", True), ("logged_out", True), ("hang", False),
        ("broken", False), ("expired", False), ("unused", False), ("back", False),
    ],
)  # fmt: skip
def test_an_answer_ends_the_silence(kind: Kind, is_answer: bool) -> None:
    """An answer that came through ends it, whatever it says; also where the store has not been told of it yet."""
    pool, clock = vitals()
    pool.stands(standing(silent=5), 0)
    pool.judged(kind)
    assert (pool.useless_for == 0) == is_answer
    assert pool.answered_ago == (0 if is_answer else -1)
    clock.now += 2
    pool.stands(standing(silent=7), 0)
    assert pool.useless_for == (0 if is_answer else pytest.approx(7))
    pool.stands(standing(silent=1), 0)
    assert pool.useless_for == pytest.approx(1)


@pytest.mark.parametrize(("is_minted", "useless_for"), [(False, 0), (True, 9)])
def test_what_others_hold_may_be_of_use(is_minted: bool, useless_for: float) -> None:
    """Leases of others count as usable; not those of ids made for the asking, which are all alike. Own ones do not."""
    pool, _ = vitals(is_minted=is_minted)
    pool.stands(standing(leased=2, silent=9), 1)
    assert pool.useless_for == pytest.approx(useless_for)
    pool.stands(standing(leased=2, silent=9), 2)
    assert pool.useless_for == pytest.approx(9)
