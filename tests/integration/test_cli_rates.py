"""``scrapy-lease rates``, on a real server whose sessions the tests play."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_lease.leases.rates.words import CounterName
from scrapy_lease.settings.rate_rules import checked_limits, spec_of
from tests.helpers.servers import Server
from tests.integration.cli_tool import Tool
from tests.lua.rate_bed import DAY, SECOND, RateBed
from tests.state.pool_wire import run

RULE = "api https://a.b/"


def limited(bed: RateBed, **limits: Any) -> None:
    """Let a live crawl have these limits."""
    run(bed.rates.look("s", spec_of(checked_limits(limits)), keep=60 * SECOND, waits=""))


@pytest.fixture
def tool(server: Server) -> Tool:
    return Tool(server.url, "test")


@pytest.fixture
def bed(server: Server, tool: Tool) -> RateBed:
    """Counters whose clock is the server's."""
    bed = RateBed(server)
    seconds, micros = bed.client.time()
    bed.wire.now = seconds * 1000 + micros // 1000
    return bed


def test_what_is_spent_is_listed(tool: Tool, bed: RateBed) -> None:
    """Each limit of which a window is under way, the shards of a key together; pauses too."""
    names = [CounterName(RULE, f"{RULE} ", "label", shard, 2) for shard in range(2)]
    for number, name in enumerate(names):
        bed.session(f"s{number}", 100, DAY, name=name).take(3)
    run(
        bed.rates.block(
            "ip 10.0.0.1 a.b", "site a.b", "10.0.0.1", wait=60 * SECOND, first=1, longest=1, share=0, escalate=5
        )
    )
    listed = tool("rates", "list", "--json").json
    assert [(row["spent"], row["limit"], row["window"]) for row in listed["limits"]] == [(6, 100, 86400)]
    assert 0 < listed["limits"][0]["left"] <= 86400
    assert [row["key"] for row in listed["pauses"]] == ["ip 10.0.0.1 a.b"]
    shown = tool("rates", "list").stdout
    assert RULE in shown
    assert "paused: ip 10.0.0.1 a.b" in shown


def test_a_limit_is_set_and_undone(tool: Tool, bed: RateBed) -> None:
    """It holds at once for windows of its length; undone, what is configured holds, and nothing is left to undo."""
    limited(bed, api={"https://a.b/": ["100/day", "10/second"]})
    taker = bed.session("s", 100, DAY, name=CounterName(RULE, RULE, "label"))
    assert tool("rates", "set", RULE, "5/day").status == 0
    assert tool("rates", "set", RULE, "1/second").status == 0
    assert [row["limit"] for row in tool("rates", "list", "--json").json["set"]] == [5, 1]
    assert taker.get(50) == 5
    assert tool("rates", "set", RULE, "configured", "--json").json["changed"] == 2
    assert taker.get(50) == 50
    assert tool("rates", "set", RULE, "configured").status == 1


def test_a_user_in_a_rule_is_neither_shown_nor_stored(tool: Tool, bed: RateBed) -> None:
    """Neither what a crawl limits, nor what an operator sets, brings a password to the store or to a screen."""
    given = "https://me:hidden@a.b/"
    limited(bed, api={given: "100/day"})
    ended = [
        tool("rates", "set", f"api {given}", "5/day"), tool("rates", "set", f"api {given}", "5/minute"),
        tool("rates", "list"), tool("rates", "list", "--json"), tool("rates", "set", f"api {given}", "configured"),
        tool("status", "--why"),
    ]  # fmt: skip
    assert [each.status for each in ended] == [0, 1, 0, 0, 0, 0]
    assert ended[3].json["set"][0]["rule"] == RULE
    assert not any("hidden" in each.stdout + each.stderr for each in ended)
    bed.client.config_set("rdbcompression", "no")
    stored = {key: bed.client.dump(key) for key in bed.client.scan_iter()}
    assert any(b"https://a.b/" in (value or b"") for value in stored.values())
    assert not any(b"hidden" in key + (value or b"") for key, value in stored.items())


def test_a_limit_of_which_no_window_is_open_is_listed(tool: Tool, bed: RateBed) -> None:
    """As long as a live crawl has it: what an operator may set is seen between windows, too."""
    limited(bed, api={"https://a.b/": "100/day", "*": "7/minute"}, ip="5/second")
    names = CounterName(RULE, f"{RULE} ", "label"), CounterName("ip", "ip 10.0.0.1", "another")
    for name, length in zip(names, (DAY, SECOND), strict=True):
        bed.session(name.rule, 5, length, name=name).take()
    bed.pass_time(-2 * SECOND)
    rows = {(row["name"], row["window"]): row["left"] is None for row in tool("rates", "list", "--json").json["limits"]}
    assert rows.pop((f"{RULE} ", 86400)) is False
    assert rows.pop(("api", 60)) is True
    assert list(rows) in ([("ip", 1)], [("ip 10.0.0.1", 1)])
    assert "no window open" in tool("rates", "list").stdout


@pytest.mark.parametrize(("rule", "limit"), [("api", "5/minute"), (RULE, "5/minute"), ("ip", "5/second")])
def test_a_limit_that_nobody_has_is_not_set(tool: Tool, bed: RateBed, rule: str, limit: str) -> None:
    """Exit status 1, nothing is changed, and it says what limits there are."""
    limited(bed, api={"https://a.b/": "100/day"})
    ended = tool("rates", "set", rule, limit)
    assert ended.status == 1
    assert f"There is {RULE}: 100 in 86400 s" in ended.stderr.replace("\n", " ")
    assert tool("rates", "list", "--json").json["set"] == []


def test_without_any_limit_there_is_none_to_set(tool: Tool, bed: RateBed) -> None:
    """Where no live crawl has limits, it says so."""
    ended = tool("rates", "set", "ip", "5/second")
    assert ended.status == 1
    assert "There are no rate limits" in ended.stderr


def test_what_is_no_limit_is_wrong_usage(tool: Tool, bed: RateBed) -> None:
    """Exit status 2, and it says what is allowed."""
    ended = tool("rates", "set", RULE, "5/fortnight")
    assert ended.status == 2
    assert "units are" in ended.stderr


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("domian", "did you mean domain?"),
        ("site https://a.b/", "'site' is no dimension"),
        ("ip 10.0.0.1", "'ip' has no rules"),
        ("api *", "those of 'api' alone"),
        ("api re:(", "is no regular expression"),
        ("api /items", "can match nothing"),
    ],
)
def test_what_is_no_rule_is_wrong_usage(tool: Tool, bed: RateBed, rule: str, named: str) -> None:
    """A limit that would hold for nothing is not taken; one that was set before can be undone."""
    ended = tool("rates", "set", rule, "5/second")
    assert ended.status == 2
    assert named in ended.stderr.replace("\n", " ")
    assert tool("rates", "set", rule, "configured").status == 1
