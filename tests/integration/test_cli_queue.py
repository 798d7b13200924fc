"""``scrapy-lease push``, ``queue``, ``items`` on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scrapy_lease.meta import digest_of
from scrapy_lease.payload import from_spec
from scrapy_lease.store.scripts import Entry, Scripts, Settlement
from tests.helpers.servers import Server
from tests.integration.cli_tool import Tool, bury_all, finish_all

PAGES = tuple(f"http://a.test/{n}" for n in range(5))


@pytest.fixture
def tool(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(server.url)


def sizes(tool: Tool, job: str = "shop") -> dict[str, int]:
    found = tool.status(job)
    return {name: found[name] for name in ("ready", "delayed", "leased", "dead")}


async def lease_all(scripts: Scripts, sid: str) -> None:
    await scripts.lease(sid, 1, want=100, rooms={})


def test_push_takes_each_request_once(tool: Tool) -> None:
    """What was pushed before, in the same call too, counts as duplicate."""
    first = tool("push", "shop", *PAGES, PAGES[0], "--json")
    assert (first.status, first.json) == (0, {"job": "shop", "accepted": 5, "duplicate": 1, "wrong": 0})
    assert tool("push", "shop", *PAGES, "--json").json["duplicate"] == 5
    assert sizes(tool)["ready"] == 5


def test_push_reads_urls_and_objects_from_a_file(tool: Tool) -> None:
    """A line is a URL or a JSON object with all fields of a request; empty lines do not count."""
    rich = {
        "url": "http://b.test/", "method": "POST", "body": "x=1", "priority": 7, "callback": "parse_it",
        "meta": {"k": [1]}, "cb_kwargs": {"a": "b"}, "headers": {"X-A": "1"}, "cookies": {"c": "d"},
    }  # fmt: skip
    Path("lines").write_text(f"{PAGES[0]}\n\n  {json.dumps(rich)}\n")
    assert tool("push", "shop", "-f", "lines", "--json").json["accepted"] == 2
    lines = {line["url"]: line for line in exported(tool)}
    assert lines["http://b.test/"]["method"] == "POST"
    assert (lines["http://b.test/"]["callback"], lines["http://b.test/"]["priority"]) == ("parse_it", 7)
    assert set(lines) == {PAGES[0], "http://b.test/"}


def test_push_reads_standard_input_in_batches(tool: Tool) -> None:
    """A thousand lines from a pipe arrive, each once."""
    text = "".join(f"http://a.test/many/{n}\n" for n in range(1000))
    assert tool("push", "shop", "-f", "-", "--json", stdin=text).json["accepted"] == 1000
    assert sizes(tool)["ready"] == 1000


def test_push_names_wrong_lines_and_takes_the_others(tool: Tool) -> None:
    """Each wrong line is named with its number and fault; the right ones are pushed; the exit status is 1."""
    Path("lines").write_text('http://a.test/1\nno url\n{"url": 3}\n{"url\n{"url": "http://a.test/2", "metal": {}}\n')
    ended = tool("push", "shop", "-f", "lines", "--json")
    assert (ended.status, ended.json["accepted"], ended.json["wrong"]) == (1, 1, 4)
    faults = ended.stderr.splitlines()
    assert [fault.split(":")[0] for fault in faults] == ["line 2", "line 3", "line 4", "line 5"]
    assert "metal" in faults[3]


def test_push_without_anything_is_wrong_usage(tool: Tool) -> None:
    """No URL and no file: exit status 2."""
    assert tool("push", "shop").status == 2
    assert tool("push", "shop", PAGES[0], "-a", "noequals").status == 2


def test_requests_with_dont_filter_are_all_kept(tool: Tool) -> None:
    """A pushed request with dont_filter is no item: three of them are three."""
    line = json.dumps({"url": PAGES[0], "dont_filter": True})
    assert tool("push", "shop", "-f", "-", "--json", stdin=f"{line}\n" * 3).json["accepted"] == 3


def exported(tool: Tool) -> list[dict[str, Any]]:
    ended = tool("queue", "export", "--job", "shop")
    assert ended.status == 0
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_an_export_brings_everything_back(tool: Tool, server: Server) -> None:
    """Pending, delayed and leased items leave with attempts, deaths, order and payload, and come back pending."""
    tool("push", "shop", *PAGES)

    async def fail_one_hold_one(scripts: Scripts, sid: str) -> None:
        _, grants = await scripts.lease(sid, 1, want=2, rooms={"a.test": 2})
        failed = Settlement(grants[0].digest, grants[0].fence, "failed", (60_000, 3, "reason", ""))
        await scripts.settle(sid, 1, [failed])

    tool.play("shop", fail_one_hold_one)
    summary = tool("queue", "export", "--job", "shop", "--output", "backlog", "--json")
    assert json.loads(summary.stderr) == {"job": "shop", "pending": 3, "delayed": 1, "leased": 1}
    lines = exported(tool)
    assert sorted(line["state"] for line in lines) == ["delayed", "leased", "pending", "pending", "pending"]
    assert [line["attempts"] for line in lines if line["state"] == "delayed"] == [1]
    Path("backlog").write_text("".join(json.dumps(line) + "\n" for line in lines))
    server.flush()
    back = tool("queue", "import", "backlog", "--job", "shop", "--json")
    assert (back.status, back.json) == (0, {"job": "shop", "accepted": 5, "duplicate": 0, "wrong": 0})
    again = {line["digest"]: line for line in exported(tool)}
    assert {line["state"] for line in again.values()} == {"pending"}
    for line in lines:
        assert {**again[line["digest"]], "state": line["state"]} == line
    taken: list[bytes] = []

    async def take(scripts: Scripts, sid: str) -> None:
        _, grants = await scripts.lease(sid, 1, want=5, rooms={"a.test": 5})
        taken.extend(grant.payload for grant in grants)

    tool.play("shop", take)
    assert taken == [from_spec({"url": page}) for page in PAGES]


def test_what_is_pushed_after_an_import_comes_last(tool: Tool, server: Server) -> None:
    """The sequence goes on where the imported order ends, in a store that is new."""
    tool("push", "shop", *PAGES)
    Path("backlog").write_text(tool("queue", "export", "--job", "shop").stdout)
    server.flush()
    tool("queue", "import", "backlog", "--job", "shop")
    tool("push", "shop", "http://a.test/late")
    last = max(exported(tool), key=lambda line: line["order"])
    assert last["url"] == "http://a.test/late"


def test_an_import_takes_each_item_once(tool: Tool) -> None:
    """What is in the backlog or done already counts as duplicate; nothing is fetched again because of an import."""
    tool("push", "shop", *PAGES)
    Path("backlog").write_text(tool("queue", "export", "--job", "shop").stdout)
    assert tool("queue", "import", "backlog", "--json").json["duplicate"] == 5
    tool.play("shop", finish_all)
    assert tool("queue", "import", "backlog", "--json").json["duplicate"] == 5
    assert sizes(tool)["ready"] == 0


def test_an_import_names_wrong_lines(tool: Tool) -> None:
    """A line that no export wrote is named with its number, the others are taken, the exit status is 1."""
    tool("push", "shop", *PAGES)
    good = tool("queue", "export", "--job", "shop").stdout.splitlines()
    bad = [
        json.dumps({**json.loads(good[0]), **change}) for change in ({"digest": "00"}, {"payload": "%"}, {"mark": "x"})
    ]
    tool("queue", "clear", "--yes", "--job", "shop")
    Path("backlog").write_text("\n".join([*bad, "{}", *good[1:]]))
    ended = tool("queue", "import", "backlog", "--job", "shop", "--json")
    assert (ended.status, ended.json["accepted"], ended.json["wrong"]) == (1, 4, 4)
    assert [line.split(":")[0] for line in ended.stderr.splitlines()] == [f"line {n}" for n in (1, 2, 3, 4)]


def test_clear_asks_and_keeps_dead_letters_and_marks(tool: Tool, server: Server) -> None:
    """Only after a yes, or --yes, is the backlog gone, with its payloads; the dead and the done are as before."""
    tool("push", "shop", PAGES[0])
    tool.play("shop", bury_all)
    tool("push", "shop", PAGES[1])
    tool.play("shop", finish_all)
    tool("push", "shop", *PAGES[2:], "-f", "-", stdin="".join(f"http://b.test/{n}\n" for n in range(600)))
    assert tool("queue", "clear", "--job", "shop", stdin="n\n").status == 1
    assert sizes(tool)["ready"] == 603
    assert tool("queue", "clear", "--job", "shop", "--yes", "--json").json == {"job": "shop", "removed": 603}
    assert sizes(tool) == {"ready": 0, "delayed": 0, "leased": 0, "dead": 1}
    assert server.client().hlen("{ns:0}:job:shop:payload") == 1
    assert tool("push", "shop", PAGES[1], "--json").json["duplicate"] == 1
    assert tool("push", "shop", PAGES[2], "--json").json["accepted"] == 1


def test_clear_works_on_a_full_server(make_server: Callable[..., Server]) -> None:
    """Where the server refuses pushes for want of memory, the backlog can still be cleared, and pushes go on."""
    server = make_server(config={"maxmemory": "4mb", "maxmemory-policy": "noeviction"})
    tool = Tool(server.url)
    line = json.dumps({"url": "http://a.test/%d", "meta": {"text": "x" * 2000}})
    refused = tool("push", "shop", "-f", "-", stdin="".join(f"{line % n}\n" for n in range(2000)))
    assert refused.status == 1
    assert "Safe in the backlog: " in refused.stderr
    pushed = server.client().hlen("{ns:0}:job:shop:state")
    assert tool("queue", "clear", "--job", "shop", "--yes", "--json").json["removed"] == pushed > 0
    assert tool("push", "shop", PAGES[0]).status == 0


def test_clear_leaves_a_job_at_work_alone(tool: Tool) -> None:
    """While a live session holds items nothing is removed, unless forced."""
    tool("push", "shop", *PAGES)

    async def lease_two(scripts: Scripts, sid: str) -> None:
        await scripts.lease(sid, 1, want=2, rooms={"a.test": 2})

    tool.play("shop", lease_two)
    refused = tool("queue", "clear", "--job", "shop", "--yes")
    assert refused.status == 1
    assert "holds 2 items" in refused.stderr
    assert sizes(tool) == {"ready": 3, "delayed": 0, "leased": 2, "dead": 0}
    assert tool("queue", "clear", "--job", "shop", "--yes", "--force", "--json").json["removed"] == 5
    assert sizes(tool) == {"ready": 0, "delayed": 0, "leased": 0, "dead": 0}


def test_dead_letters_are_listed(tool: Tool) -> None:
    """Each with reason, URL, attempts, deaths and time; the traceback on request; one that is not there: 1."""
    tool("push", "shop", *PAGES[:2])
    tool.play("shop", bury_all)
    found = tool("items", "dead", "--json").json
    assert (found["total"], [row["reason"] for row in found["dead"]]) == (2, ["ValueError"] * 2)
    assert {row["url"] for row in found["dead"]} == set(PAGES[:2])
    assert found["dead"][0]["at"].startswith("20")
    assert "trace" not in found["dead"][0]
    assert "on purpose" in tool("items", "dead", "--trace", PAGES[0]).stdout
    assert len(tool("items", "dead", "--limit", "1", "--json").json["dead"]) == 1
    missing = tool("items", "dead", "http://a.test/nowhere")
    assert (missing.status, missing.stderr) == (1, "Not there: http://a.test/nowhere\n")


def test_a_retried_letter_is_pending_with_fresh_attempts(tool: Tool) -> None:
    """By URL, by digest or all: it leaves the dead letters; what is not among them is named, exit status 1."""
    tool("push", "shop", *PAGES)
    tool.play("shop", bury_all)
    digest = next(row["digest"] for row in tool("items", "dead", "--json").json["dead"] if row["url"] == PAGES[1])
    assert tool("items", "retry", PAGES[0], digest, "--json").json == {"job": "shop", "pending": 2, "duplicate": 0}
    assert {line["url"]: line["attempts"] for line in exported(tool)} == {PAGES[0]: 0, PAGES[1]: 0}
    assert sizes(tool)["dead"] == 3
    assert tool("items", "retry", PAGES[0]).status == 1
    assert tool("items", "retry", "--all", "--json").json["pending"] == 3
    assert sizes(tool) == {"ready": 5, "delayed": 0, "leased": 0, "dead": 0}
    assert tool("items", "retry").status == 2


def test_a_retried_start_request_is_marked_for_its_run_only(tool: Tool) -> None:
    """A start request with dont_filter that died and is done after a retry is fetched again by the next run."""
    entry = Entry(digest_of("start:0:x"), "a.test", 0, from_spec({"url": PAGES[0], "dont_filter": True}), "run")

    async def push(scripts: Scripts, sid: str) -> None:
        await scripts.push(sid, 1, [entry])
        await bury_all(scripts, sid)

    tool.play("shop", push)
    tool("items", "retry", "--all")
    (line,) = exported(tool)
    assert line["mark"] == "run"


def test_forgotten_items_are_fetched_again(tool: Tool) -> None:
    """A done mark goes by URL, by digest or with all others; then a push is accepted."""
    tool("push", "shop", *PAGES)
    tool.play("shop", finish_all)
    assert tool("push", "shop", *PAGES, "--json").json["accepted"] == 0
    assert tool("items", "forget", PAGES[0], "--json").json == {"job": "shop", "marks": 1}
    assert tool("push", "shop", *PAGES, "--json").json["accepted"] == 1
    assert tool("items", "forget", PAGES[0]).status == 1
    assert tool("items", "forget", "--all", stdin="n\n").status == 1
    assert tool("items", "forget", "--all", "--yes").status == 0
    assert tool("push", "shop", *PAGES, "--json").json["accepted"] == 4


def test_forgotten_letters_are_gone(tool: Tool, server: Server) -> None:
    """With --dead the letters named, or all, are removed with their payloads; the items are not marked done."""
    tool("push", "shop", *PAGES)
    tool.play("shop", bury_all)
    assert tool("items", "forget", "--dead", PAGES[0], "--json").json == {"job": "shop", "letters": 1}
    assert tool("items", "forget", "--dead", "--all", "--yes", "--json").json["letters"] == 4
    assert server.client().hlen("{ns:0}:job:shop:payload") == 0
    assert tool("push", "shop", *PAGES, "--json").json["accepted"] == 5


def test_without_a_name_the_only_job_is_meant(tool: Tool) -> None:
    """One job needs no --job, two do (exit status 2), none is an error (1); a named run is a backlog of its own."""
    assert tool("queue", "clear", "--yes").status == 1
    tool("push", "shop", PAGES[0])
    assert tool("queue", "clear", "--yes", "--json").json["job"] == "shop"
    tool("push", "other", PAGES[0])
    several = tool("queue", "clear", "--yes")
    assert several.status == 2
    assert "other, shop" in several.stderr
    assert tool("push", "shop", "--run", "may", PAGES[0], "--json").json["accepted"] == 1
    assert tool("queue", "clear", "--run", "may", "--yes", "--json").json == {"job": "shop@may", "removed": 1}
