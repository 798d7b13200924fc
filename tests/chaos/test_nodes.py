"""Nodes that die, freeze and leave, at random moments."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet


@pytest.mark.parametrize("seed", range(3))
def test_a_node_is_killed(fleet: Callable[..., Fleet], seed: int) -> None:
    """Three nodes, one SIGKILLed at a random moment: nothing lost, twice only what it had in flight."""
    chance = random.Random(seed)
    shop = fleet(products=150, latency=0.05)
    nodes = [shop.crawl(f"n{number}") for number in range(3)]
    shop.wait_for_hits(chance.randrange(5, 120))
    victim = chance.choice(nodes)
    kill = victim.kill()
    shop.wait([node for node in nodes if node is not victim])
    verdict = shop.verdict(kill)
    assert not verdict.lost
    assert verdict.twice == verdict.excused
