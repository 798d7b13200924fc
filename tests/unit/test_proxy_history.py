"""The past of a pool as it is made of its events."""

from __future__ import annotations

from dataclasses import astuple

from scrapy_lease.cli.proxy_history import history
from scrapy_lease.store.pool_reading import Event


def event(at: float, what: str, ids: str, *, node: str = "", fence: int = 0, why: str = "") -> Event:
    return Event(at, what, f"{node}-1" if node else "", node, fence, why, tuple(ids.split()))


def test_a_lease_is_one_row_from_take_to_back() -> None:
    """Take and return under one fence are one row with both times and the reason; a lease that goes on has no end."""
    rows = history(
        [
            event(1, "take", "p q", node="a", fence=7),
            event(3, "back", "p", node="a", fence=7),
            event(4, "back", "q", node="a", fence=7, why="died"),
            event(5, "take", "p", node="b", fence=8),
        ],
        {},
    )
    assert [(row.proxy, row.node, row.at, row.until, row.why) for row in rows] == [
        ("p", "a", 1, 3, "given back"), ("q", "a", 1, 4, "died"), ("p", "b", 5, None, "")
    ]  # fmt: skip


def test_a_lease_that_a_next_session_keeps_ends_where_that_begins() -> None:
    """A session that was lost and opened anew takes its leases along: the old one ends without a word."""
    first, second = history(
        [event(1, "take", "p", node="a", fence=7), event(4, "take", "p", node="a", fence=9, why="kept")], {}
    )
    assert (first.until, first.why) == (4, "kept by the session after it")
    assert (second.until, second.fence) == (None, 9)


def test_a_return_under_another_fence_ends_no_lease() -> None:
    """What was taken before the events begin is a row of its own, and leaves the lease of today alone."""
    held, late = history(
        [event(1, "take", "p", node="b", fence=8), event(2, "back", "p", node="a", fence=7, why="freed")], {}
    )
    assert held.until is None
    assert (late.what, late.node, late.why) == ("back", "a", "freed")


def test_an_exit_is_that_of_the_time() -> None:
    """Each row has the exit address that the proxy had then; of one whose beginning is not kept, today's."""
    rows = history(
        [
            event(1, "take", "old", node="a", fence=1),
            event(2, "new", "p", why="198.51.100.1"),
            event(3, "take", "p", node="a", fence=2),
            event(4, "moved", "p", why="198.51.100.2"),
            event(5, "ban", "p", node="a", fence=2, why="shop.test"),
        ],
        {"p": "198.51.100.2", "old": "198.51.100.9"},
    )
    assert [(row.what, row.exit, row.why) for row in rows] == [
        ("lease", "198.51.100.9", ""), ("new", "198.51.100.1", ""), ("lease", "198.51.100.1", ""),
        ("moved", "198.51.100.2", ""), ("ban", "198.51.100.2", "shop.test"),
    ]  # fmt: skip


def test_what_a_site_did_is_no_proxys_past() -> None:
    """A site that is paused is told in events of no proxy, which are left out; an operator's work is shown as it is."""
    (row,) = history([event(1, "pause", "-", node="a", why="shop.test"), event(2, "revoke", "p")], {})
    assert astuple(row) == (2, "revoke", "p", "", "", "", 0, None, "")
