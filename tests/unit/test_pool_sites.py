"""Sites that are paused: when a request may go there again, and how many."""

from __future__ import annotations

from scrapy_lease.leases.pool.sites import Sites
from tests.unit.pool_parts import OTHER, SITE, Clock


def test_a_site_of_which_nothing_is_known_is_open() -> None:
    """Nothing is paused unless the store says so; that it says "no pause" changes nothing."""
    sites = Sites(Clock())
    sites.heard(SITE, 0)
    assert sites.is_open(SITE)
    assert not sites.is_paused(SITE)
    assert not sites.begin(SITE)
    assert not sites.pauses


def test_a_pause_lasts_as_long_as_the_store_says() -> None:
    """While it lasts the site is closed and not asked for; after it the store is asked before anything is sent."""
    clock = Clock()
    sites = Sites(clock)
    sites.heard(SITE, 5)
    assert sites.is_paused(SITE)
    assert not sites.is_open(SITE)
    assert sites.is_open(OTHER)
    clock.now += 5
    assert not sites.is_paused(SITE)
    assert not sites.is_open(SITE)
    sites.heard(SITE, 0)
    assert sites.is_open(SITE)


def test_one_probe_at_a_time() -> None:
    """When the store lets it be tried one request goes there; undecided, another; served, all."""
    sites = Sites(Clock())
    sites.heard(SITE, 5)
    sites.heard(SITE, 0)
    assert sites.begin(SITE)
    assert not sites.is_open(SITE)
    sites.ended(SITE)
    assert sites.begin(SITE)
    sites.served(SITE)
    assert sites.is_open(SITE)
    assert not sites.begin(SITE)


def test_a_pause_of_unknown_length_is_asked_for() -> None:
    """A site that the store has just paused is closed, and asked for: the answer tells for how long."""
    clock = Clock()
    sites = Sites(clock)
    sites.pause(SITE)
    assert not sites.is_open(SITE)
    assert not sites.is_paused(SITE)
    sites.heard(SITE, 3)
    assert sites.is_paused(SITE)


def test_a_probe_of_a_pause_that_was_never_heard_of() -> None:
    """A process that the store gives the probe sends one request as such, and is open to all once that is served."""
    sites = Sites(Clock())
    sites.heard(SITE, -0.001)
    assert not sites.is_paused(SITE)
    assert sites.is_open(SITE)
    assert sites.begin(SITE)
    assert not sites.is_open(SITE)
    sites.served(SITE)
    assert sites.is_open(SITE)
    assert not sites.begin(SITE)
