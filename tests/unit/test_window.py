"""What a node holds ready: the best first, no slot for itself, and a slot that is stuck delays nobody's refill."""

from __future__ import annotations

import pytest

from scrapy_lease.leases import window as module
from scrapy_lease.leases.window import STUCK, Window


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def filled(**slots: int) -> Window[str]:
    window: Window[str] = Window(32)
    for slot, number in slots.items():
        for index in range(number):
            window.put(slot, 0, f"{slot}{index}")
    return window


def test_the_best_of_the_slots_that_can_send_goes_first() -> None:
    """Priority before order, what is put again before the others of its priority, only slots that can send."""
    window = filled(a=2, b=1)
    window.put("b", 5, "urgent")
    window.put("a", 0, "again", again=True)
    taken = [window.take(lambda slot: True) for _ in range(5)]
    assert taken == ["urgent", "again", "a0", "a1", "b0"]
    assert window.take(lambda slot: True) is None
    assert filled(a=1).take(lambda slot: False) is None


def test_no_slot_gets_the_whole_window() -> None:
    """A slot may fill three quarters of what the others leave free."""
    free, rooms = filled(slow=20, fast=4).wanted()
    assert free == 8
    assert rooms == {"slow": 1, "fast": 5}


def test_a_stuck_slot_does_not_count(clock: Clock) -> None:
    """What waits for a slot that gave nothing for a while and cannot send is not counted as ready."""
    window = filled(slow=20, fast=4)
    assert window.moving(lambda slot: slot != "slow") == 24
    clock.now += STUCK * 1.1
    assert window.moving(lambda slot: slot != "slow") == 4
    assert window.moving(lambda slot: True) == 24


def test_a_slot_that_moves_counts(clock: Clock) -> None:
    """A slot that is full at this moment and gave something just now counts; so does one that came anew."""
    window = filled(busy=3)
    clock.now += STUCK * 1.1
    window.take(lambda slot: True)
    assert window.moving(lambda slot: False) == 2
    clock.now += STUCK * 1.1
    window.remove(lambda entry: True)
    window.put("busy", 0, "new")
    assert window.moving(lambda slot: False) == 1


def test_a_window_tells_which_slots_it_has() -> None:
    """A slot is in the window as long as something of it is."""
    window = filled(a=2)
    for _ in range(2):
        assert "a" in window
        assert "b" not in window
        window.take(lambda slot: True)
    assert "a" not in window
