"""What the log says of items that a session which is over held."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scrapy_lease.leases.session import Session
from scrapy_lease.scheduler.narrator import Narrator

OWN = "0123456789"


@pytest.fixture
def narrator() -> Narrator:
    session = Session(node="n", ttl=5.0, config="c", fresh=True, info={})
    session.sid = OWN
    return Narrator(cast("Any", SimpleNamespace(session=session)))


@pytest.mark.parametrize(
    ("sid", "moved", "told"),
    [
        ("another", 2, ["Took back 2 items of session another, which is over"]),
        (OWN, 2, ["Gave back 2 items that this session still held as it closed"]),
        ("another", 0, []),
        (OWN, 0, []),
    ],
)
def test_only_others_are_taken_back_from(
    narrator: Narrator, caplog: pytest.LogCaptureFixture, sid: str, moved: int, told: list[str]
) -> None:
    """What a session gives back as it closes is not told as if it had died; nothing is told of nothing."""
    caplog.set_level(logging.INFO, "scrapy_lease")
    narrator.taken_over(sid, moved)
    assert caplog.messages == told
