"""clear, discard, forget, look, remark, restore and tick: what tools do to a backlog, its marks and its dead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scrapy_lease.exceptions import StoreRefused
from scrapy_lease.store.calls import Call
from scrapy_lease.store.tools import Exported, HeldByLive, Read, Tools
from tests.lua.bed import SLOT, TTL, Bed, digest, entry, names, settlement

pack = msgspec.msgpack.encode


@pytest.fixture
def tools(bed: Bed) -> Tools:
    return Tools(bed.scripts.channel, bed.scope.namespace)


def call(bed: Bed, script: str, keys: list[str], *args: Any) -> Any:
    """Call a script as it is."""
    return bed.run(bed.scripts.channel.call(Call(script, keys, args)))


def export(bed: Bed, name: object) -> Exported:
    """An item of the backlog as `queue export` writes it."""
    record = bed.record(name)
    assert record is not None
    return Exported(
        digest(name), record.slot, record.order, record.mark, record.attempts, record.deaths, record.payload
    )


def cleared(bed: Bed, tools: Tools, *, force: bool = False) -> int:
    return int(bed.run(tools.clear(bed.scope, force=force)))


def bury(bed: Bed, *dead: str) -> None:
    """Let items die."""
    session = bed.session("undertaker")
    session.push(*map(entry, dead))
    session.settle(*(settlement(grant, "dead", "reason", "trace") for grant in session.lease()))
    session.close()


def finish(bed: Bed, *done: str) -> None:
    """Let items be done for good."""
    session = bed.session("finisher")
    session.push(*map(entry, done))
    session.settle(*map(settlement, session.lease()))
    session.close()


# clear


def test_clear_removes_the_backlog_and_nothing_else(bed: Bed, tools: Tools) -> None:
    """Pending, delayed and leased items go with their marks; dead letters, done marks and counters stay."""
    bury(bed, "dead")
    finish(bed, "done")
    session = bed.session("a")
    session.push(*map(entry, ("failed", "held", "waits")))
    failed, _ = session.lease(want=2)
    session.settle(settlement(failed, "failed", 60_000, 3, "reason", ""))
    session.close()
    assert cleared(bed, tools) == 3
    assert cleared(bed, tools) == 0
    assert not any(bed.record(name) or bed.mark(name) for name in ("failed", "held", "waits"))
    assert [bed.client.exists(bed.scope.key(part)) for part in ("state", "ready", "slots", "delayed")] == [0] * 4
    assert not bed.client.exists(bed.scope.held("a"))
    assert bed.counter("ready") == 0
    assert bed.dead("dead") is not None
    assert bed.mark("done") is not None
    assert bed.push(entry("waits"), entry("done")) == "+."


def test_clear_stops_before_what_a_live_session_holds(bed: Bed, tools: Tools) -> None:
    """Nothing is removed while one holds items, unless forced; an expired session is no hindrance."""
    session = bed.session("a")
    session.push(entry(1), entry(2))
    (grant,) = session.lease(want=1)
    before = bed.dump()
    with pytest.raises(HeldByLive, match=r"session a is live and holds 1 item$"):
        cleared(bed, tools)
    assert bed.dump() == before
    assert cleared(bed, tools, force=True) == 2
    assert session.settle(settlement(grant)) == "-"
    session.push(entry(3))
    session.lease()
    bed.pass_time(TTL + 1)
    assert cleared(bed, tools) == 1


def test_clear_names_a_live_session_that_was_not_listed(bed: Bed) -> None:
    """One that opened after the caller listed them might hold something: nothing is removed, the caller lists again."""
    bed.session("a").push(entry(1))
    keys = [bed.scope.namespace.clock, *map(bed.scope.key, ("members", "meta", "ready", "slots", "delayed", "state"))]
    # The server reads strings, not the binary type of msgpack: 16 bytes with the head of a string.
    listed = (pack([]), pack([msgspec.Raw(b"\xb0" + digest(1))]))
    assert call(bed, "clear", [*keys, bed.scope.mark(digest(1))[0]], 0, *listed) == [b"unknown", b"a"]
    assert bed.record(1) is not None


# discard


def test_discard_removes_letters_once(bed: Bed, tools: Tools) -> None:
    """A letter goes with its request and mark; one that is pending again, or never was, is left alone, not counted."""
    bury(bed, "x", "again")
    bed.push(entry("again"))
    assert bed.run(tools.discard(bed.scope, [digest(name) for name in ("x", "again", "never")])) == 1
    assert (bed.dead("x"), bed.mark("x")) == (None, None)
    assert not bed.client.hlen(bed.scope.key("payload"))
    assert bed.record("again") is not None
    assert bed.mark("again") is not None
    assert bed.run(tools.discard(bed.scope, [digest("x")])) == 0


# forget and remark


def test_forget_takes_marks_of_what_is_done_only(bed: Bed, tools: Tools) -> None:
    """What is in the backlog or dead keeps its mark: it is not done."""
    bury(bed, "dead")
    finish(bed, "done")
    bed.push(entry("waits"))
    known = [digest(name) for name in ("done", "dead", "waits", "never")]
    assert bed.run(tools.forget(bed.scope, known)) == 1
    assert bed.mark("done") is None
    assert None not in (bed.mark("dead"), bed.mark("waits"))
    assert bed.push(entry("done"), entry("waits")) == "+="


def test_forgetting_all_leaves_the_backlog_marked(bed: Bed, tools: Tools) -> None:
    """The number is that of forgotten items; what is pending has a mark again, so that it is done once fetched."""
    finish(bed, "one", "two", "three")
    bed.push(entry("waits"), entry("for the run", mark="run"), entry("no item", mark="none"))
    assert bed.run(tools.forget_all(bed.scope)) == 3
    assert [bed.mark(name) for name in ("one", "two", "three", "no item")] == [None] * 4
    assert (bed.mark("for the run"), (bed.mark("waits") or 0) > 0) == (-1, True)
    session = bed.session("a")
    session.settle(*map(settlement, session.lease()))
    assert bed.push(entry("waits"), entry("one")) == ".+"


def test_remark_marks_what_is_in_the_backlog_and_has_none(bed: Bed) -> None:
    """An item with a mark keeps it; what is no item, or no longer there, gets none."""
    bed.push(entry("with"), entry("without"), entry("no item", mark="none"))
    bucket, field = bed.scope.mark(digest("without"))
    bed.client.hdel(bucket, field)
    known = [digest(name) for name in ("with", "without", "no item", "never")]
    keys = [bed.scope.namespace.clock, bed.scope.key("meta"), bed.scope.key("state")]
    assert call(bed, "remark", [*keys, *(bed.scope.mark(each)[0] for each in known)], *known) == 1
    assert [bed.mark(name) is None for name in ("with", "without", "no item", "never")] == [False, False, True, True]


# restore


def restored(bed: Bed, tools: Tools, *items: Exported, done_ttl: int = 0) -> str:
    return str(bed.run(tools.restore(bed.scope, items, done_ttl=done_ttl)))


def test_restore_brings_items_back_as_they_were(bed: Bed, tools: Tools) -> None:
    """Place, attempts, deaths, payload and kind are those of the export; everything is pending."""
    bed.push(entry("last"), entry("first", priority=9), entry("no item", mark="none"), entry("start", mark="run"))
    items = [
        replace(export(bed, name), attempts=attempts, deaths=2)
        for attempts, name in enumerate(("last", "first", "no item", "start"))
    ]
    bed.client.flushall()
    assert restored(bed, tools, *items) == "++++"
    assert [export(bed, name) for name in ("last", "first", "no item", "start")] == items
    assert (bed.counter("ready"), bed.counter("accepted")) == (4, 4)
    assert (bed.mark("no item"), (bed.mark("start") or 0) < 0, (bed.mark("last") or 0) > 0) == (None, True, True)
    assert names(bed.session("a").lease()) == ["first", "last", "no item", "start"]


def test_restore_takes_nothing_twice(bed: Bed, tools: Tools) -> None:
    """What is in the backlog or done is a duplicate; what is dead is pending again, with the letter gone."""
    bed.push(entry("waits"), entry("done"), entry("dead"))
    items = [export(bed, name) for name in ("waits", "done", "dead")]
    cleared(bed, tools)
    finish(bed, "done")
    bury(bed, "dead")
    bed.push(entry("waits"))
    assert restored(bed, tools, *items) == "=.+"
    assert restored(bed, tools, *items) == "=.="
    assert bed.dead("dead") is None
    assert not bed.client.hlen(bed.scope.key("payload"))
    assert bed.counter("duplicate") == 5


def test_a_mark_that_has_run_out_is_no_hindrance(bed: Bed, tools: Tools) -> None:
    """With a time for which marks count, an item done before is taken back, and its mark counts for that time."""
    bed.push(entry("x"))
    item = export(bed, "x")
    cleared(bed, tools)
    finish(bed, "x")
    bucket, field = bed.scope.mark(digest("x"))
    bed.client.hincrby(bucket, field, -100)
    assert restored(bed, tools, item, done_ttl=200) == "."
    assert restored(bed, tools, item, done_ttl=50) == "+"
    record = bed.record("x")
    assert record is not None
    assert record.is_timed


def test_what_is_pushed_after_a_restore_comes_last(bed: Bed, tools: Tools) -> None:
    """The sequence goes on behind the last restored item."""
    bed.push(*(entry(number) for number in range(5)))
    items = [export(bed, number) for number in range(5)]
    bed.client.flushall()
    restored(bed, tools, *reversed(items))
    bed.push(entry("late"))
    assert names(bed.session("a").lease()) == ["0", "1", "2", "3", "4", "late"]


# look and tick


def test_look_reads_and_changes_nothing(bed: Bed, tools: Tools) -> None:
    """Each read gets the reply of its command, an absent key an empty one."""
    bed.session("a").push(entry(1))
    before = bed.dump()
    reads = [
        Read("HLEN", bed.scope.key("state")),
        Read("ZRANGE", bed.scope.key("slots"), ("0", "-1")),
        Read("HGETALL", "{test:0}:nothing"),
        Read("HMGET", bed.scope.namespace.session("a"), ("node", "no such field")),
    ]
    assert bed.run(tools.look(reads)) == [1, [SLOT.encode()], [], [b"a", None]]
    assert bed.dump() == before


def test_look_passes_a_wrong_read_on(bed: Bed, tools: Tools) -> None:
    """A read of a key of another type is the server's error, not an empty reply."""
    bed.session("a")
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        bed.run(tools.look([Read("ZCARD", bed.scope.namespace.clock)]))


def test_tick_advances_the_lease_clock_by_at_most_a_second(bed: Bed, tools: Tools) -> None:
    """As each call of a session does: with the server's clock, never back, and by a second where it jumped ahead."""
    clock = bed.scope.namespace.clock
    first, wall = bed.run(tools.tick())
    second, _ = bed.run(tools.tick())
    assert 0 <= second - first < 1000
    bed.client.hset(clock, "wall", wall - 3_600_000)
    assert bed.run(tools.tick())[0] == second + 1000
    bed.client.hset(clock, "wall", wall + 3_600_000)
    assert bed.run(tools.tick())[0] == second + 1000
    assert bed.client.hmget(clock, "now") == [str(second + 1000).encode()]
