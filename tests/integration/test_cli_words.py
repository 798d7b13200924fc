"""What commands say to people: what is there, what is not, and how many."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_lease.cli.text_table import counted
from scrapy_lease.store.scripts import Scripts
from tests.helpers.servers import Server
from tests.integration.cli_tool import Tool, bury_all, finish_all

pytestmark = pytest.mark.one_server

PAGES = tuple(f"http://a.test/{n}" for n in range(3))


@pytest.fixture
def tool(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """The tool, outside of any project."""
    monkeypatch.chdir(tmp_path)
    return Tool(server.url)


async def leave_open(scripts: Scripts, sid: str) -> None:
    """Do nothing and stay."""


def test_one_is_no_plural() -> None:
    """Whatever is counted is in the plural unless it is one."""
    assert [counted(number, "dead letter") for number in (0, 1, 2)] == ["0 dead letters", "1 dead letter",
                                                                        "2 dead letters"]  # fmt: skip


def test_one_dead_letter_is_one(tool: Tool) -> None:
    """`items dead` and `status` speak of one letter, of several letters and of one duplicate."""
    tool("push", "shop", PAGES[0], PAGES[0])
    tool.play("shop", bury_all)
    assert tool("items", "dead").stdout.splitlines()[0] == "job shop: 1 dead letter"
    text = tool("status").stdout
    assert "; 1 dead letter\n" in text
    assert "1 accepted, 1 duplicate," in text
    tool("push", "shop", *PAGES[1:])
    tool.play("shop", bury_all)
    assert tool("items", "dead", "--limit", "1").stdout.startswith("job shop: 3 dead letters, 1 of them here\n")


def test_one_held_item_is_one(tool: Tool) -> None:
    """A backlog that is not cleared because a live session holds one item says `1 item`."""

    async def lease_one(scripts: Scripts, sid: str) -> None:
        await scripts.lease(sid, 1, want=1, rooms={"a.test": 1})

    tool("push", "shop", *PAGES)
    tool.play("shop", lease_one)
    assert "holds 1 item:" in tool("queue", "clear", "--job", "shop", "--yes").stderr


def test_status_names_draining_nodes_without_a_session(tool: Tool) -> None:
    """A drain outlives the node's crawls, and keeps the next ones from staying: `status` shows it until `undrain`."""
    tool("drain", "gone")
    alone = tool("status")
    assert alone.stdout.startswith("Asked to leave: gone (no session; `undrain` lets its crawls stay again)\n")
    assert "No crawl has used namespace ns yet." in alone.stdout
    tool("drain", "player")
    tool.play("shop", leave_open)
    assert tool("status", "--json").json["draining"] == ["gone", "player"]
    assert tool("status").stdout.startswith(
        "Asked to leave: gone (no session; `undrain` lets its crawls stay again), player\n"
    )
    assert tool("status", "--job", "shop", "--json").json["draining"] == ["gone", "player"]
    for node in ("gone", "player"):
        tool("undrain", node)
    assert "Asked to leave" not in tool("status").stdout
    assert tool("status", "--json").json["draining"] == []


def test_forgetting_all_tells_how_many_items(tool: Tool) -> None:
    """The number is that of items that may be fetched again, not of what waits in the backlog."""
    tool("push", "shop", *PAGES)
    tool.play("shop", finish_all)
    tool("push", "shop", "http://a.test/waits")
    assert tool("items", "forget", "--all", "--yes", "--json").json == {"job": "shop", "marks": 3}
    assert tool("items", "forget", "--all", "--yes", "--json").json == {"job": "shop", "marks": 0}
    assert tool("push", "shop", *PAGES, "http://a.test/waits", "--json").json["accepted"] == 3


COMMANDS = (
    ("items", "dead"), ("items", "retry", "--all"), ("items", "forget", "--all", "--yes"), ("queue", "clear", "--yes"),
    ("queue", "export"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_run_or_job_that_is_not_there(tool: Tool, command: tuple[str, ...]) -> None:
    """A misspelt run or job is an error that lists the known ones, exit status 1; it is not made by being named."""
    nothing = tool(*command, "--run", "nosuch")
    assert (nothing.status, nothing.stderr.count("no job is known in namespace 'ns'")) == (1, 1)
    tool("push", "shop", PAGES[0])
    tool("push", "shop", "--run", "may", PAGES[0])
    for options, unknown in (
        (("--run", "nosuch"), "run 'nosuch'"),
        (("--job", "shop", "--run", "nosuch"), "run 'nosuch' of job 'shop'"),
        (("--job", "shoo"), "job 'shoo'"),
    ):
        ended = tool(*command, *options)
        assert (ended.status, ended.stdout) == (1, "")
        assert ended.stderr == f"Error: namespace 'ns' knows no {unknown}; it knows 'shop', run 'may' of 'shop'\n"
    assert tool(*command, "--run", "may").status == 0
    assert len(tool("status", "--json").json["jobs"]) == 2


def test_status_names_the_jobs_that_are_there(tool: Tool) -> None:
    """One that is not there is an error with exit status 1."""
    assert "knows no job 'shoo'; it knows none" in tool("status", "--job", "shoo").stderr
    tool("push", "shop", PAGES[0])
    tool("push", "shop", "--run", "may", PAGES[0])
    ended = tool("status", "--job", "shoo")
    assert (ended.status, ended.stdout) == (1, "")
    assert ended.stderr == "Error: namespace 'ns' knows no job 'shoo'; it knows 'shop'\n"


def test_only_named_runs_are_there(tool: Tool) -> None:
    """Without --run the job's own pass is meant: where there are only named ones, the error names them."""
    tool("push", "shop", "--run", "may", PAGES[0])
    ended = tool("items", "dead")
    assert (ended.status, ended.stdout) == (1, "")
    assert "knows no job outside of its named runs; it knows run 'may' of 'shop'" in ended.stderr


@pytest.mark.parametrize("run", ["1 dec", "ünï", "a+b c"])
def test_a_run_may_have_a_space_in_its_name(tool: Tool, run: str) -> None:
    """Inner spaces are as good as other signs: push, look and clear find the same run."""
    assert tool("push", "shop", "--run", run, PAGES[0], "--json").json["accepted"] == 1
    (job,) = tool("status", "--json").json["jobs"]
    assert (job["job"], job["run"], job["ready"]) == ("shop", run, 1)
    assert tool("queue", "clear", "--run", run, "--yes", "--json").json["removed"] == 1


@pytest.mark.parametrize("run", [" ", " may", "may ", "may\n", "ma\ty"])
def test_a_run_whose_name_would_mislead_is_refused(tool: Tool, run: str) -> None:
    """Nobody sees a space at an end or a control character, and `may ` would be another run than `may`: wrong value."""
    ended = tool("push", "shop", "--run", run, PAGES[0])
    assert ended.status == 1
    assert ended.stderr.startswith("Error: scrapy-lease cannot start: LEASE_RUN = ")
    assert "no space at either end" in ended.stderr
    assert tool("status", "--json").json["jobs"] == []
