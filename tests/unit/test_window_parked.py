"""What is parked in a window: it is still there, takes no place, and returns in its order."""

from __future__ import annotations

import pytest

from scrapy_lease.leases.window import Window


@pytest.fixture
def window() -> Window[str]:
    window: Window[str] = Window(4)
    for number, entry in enumerate("abcd"):
        window.put("slow" if number < 3 else "fast", 0, entry)
    return window


def test_what_is_parked_leaves_its_place(window: Window[str]) -> None:
    """The window has room for others, and nobody is handed what is parked; it still counts as being here."""
    window.park("a", "x")
    window.park("b", "x")
    assert (len(window), window.parked, window.has_room) == (4, 2, True)
    assert window.wanted()[0] == 2
    assert sorted(window) == ["a", "b", "c", "d"]
    assert window.in_order() == ["c", "d"]
    assert [window.take(lambda slot: True) for _ in range(3)] == ["c", "d", None]


def test_it_returns_in_its_order(window: Window[str]) -> None:
    """Those of one group return one by one, those that came first at first, before what came later."""
    for entry in "bac":
        window.park(entry, "x")
    assert window.groups() == {"x": 3}
    assert window.first_of("x") == "a"
    window.put("slow", 0, "e")
    for _ in range(3):
        window.put_back("x")
    assert (window.groups(), window.parked, window.first_of("x")) == ({}, 0, None)
    assert window.in_order() == ["a", "b", "c", "d", "e"]


def test_what_takes_things_out_takes_parked_ones_too(window: Window[str]) -> None:
    """Clearing and removing know no difference."""
    window.park("a", "x")
    window.park("b", "y")
    window.remove(lambda entry: entry in "ac")
    assert (sorted(window), window.parked, window.groups()) == (["b", "d"], 1, {"y": 1})
    assert sorted(window.clear()) == ["b", "d"]
    assert (len(window), window.parked) == (0, 0)


def test_parking_what_is_not_here_changes_nothing(window: Window[str]) -> None:
    """It may have been handed out meanwhile."""
    window.park("z", "x")
    assert (len(window), window.parked) == (4, 0)
