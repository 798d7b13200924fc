"""Real crawls, fed and steered by ``scrapy-lease``."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fleet import EXAMPLE, Fleet, until
from tests.helpers.servers import Server
from tests.integration.cli_tool import Tool, in_project

pytestmark = pytest.mark.one_server

WORKER = "s02_fed"


@pytest.fixture
def fleet(server: Server, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, server.url, products=60) as fleet:
        yield fleet


@pytest.fixture
def tool(server: Server) -> Tool:
    """The tool on the namespace of the example project."""
    return Tool(server.url, "example")


def pages(fleet: Fleet, first: int, last: int) -> list[str]:
    return [f"{fleet.base}/product/{number}" for number in range(first, last + 1)]


@pytest.mark.each_server
def test_a_standing_worker_fetches_what_is_pushed(fleet: Fleet, tool: Tool) -> None:
    """Pushed URLs are fetched once each by a worker that waits for them; pushed again they are known."""
    node = fleet.crawl("node-1", WORKER)
    node.wait_for("Spider opened")
    assert tool("push", WORKER, *pages(fleet, 1, 20), "--json").json["accepted"] == 20
    fleet.wait_for_hits(20)
    until(lambda: tool.status(WORKER)["counters"]["done"] == 20, what="20 done")
    assert tool("push", WORKER, *pages(fleet, 1, 20), "--json").json["duplicate"] == 20
    found = tool.status(WORKER)
    assert (found["ready"], found["leased"], found["why"]) == (0, 0, [])
    (session,) = found["sessions"]
    assert (session["node"], session["state"], session["held"]) == ("node-1", "live", 0)
    assert 0 < session["deadline_left"] <= session["ttl"] == 3.0
    assert len(fleet.hits("/product/")) == 20
    assert sorted(fleet.stored()) == sorted(f"/product/{number}" for number in range(1, 21))


def test_a_paused_job_is_not_fetched_until_it_is_resumed(fleet: Fleet, tool: Tool) -> None:
    """Under `pause` requests wait, and `status --why` says so; `resume` lets them go on."""
    fleet.crawl("node-1", WORKER).wait_for("Spider opened")
    assert tool("pause", WORKER, "--json").json == {"job": WORKER, "paused": True, "known": True}
    tool("push", WORKER, *pages(fleet, 1, 20))
    time.sleep(1.5)
    assert fleet.hits("/product/") == []
    assert tool.status(WORKER)["why"] == [{"cause": "paused", "requests": 20, "seconds": None}]
    assert tool("resume", WORKER, "--json").json["paused"] is False
    fleet.wait_for_hits(20)


@pytest.mark.each_server
@pytest.mark.slow
def test_a_drained_node_leaves_and_gives_back(server: Server, tmp_path: Path, tool: Tool) -> None:
    """`drain` ends the node's crawl with lease_drained, its leases are back, and it comes back only after `undrain`."""
    with Fleet(tmp_path, server.url, products=60, latency=0.4) as fleet:
        tool("push", WORKER, *pages(fleet, 1, 60))
        node = fleet.crawl("node-1", WORKER)
        fleet.wait_for_hits(1)
        drained = tool("drain", "node-1", "--json").json
        assert (drained["draining"], len(drained["sessions"])) == (True, 1)
        assert node.wait() == 0
        assert node.stats["finish_reason"] == "lease_drained"
        left = tool.status(WORKER)
        assert (left["leased"], left["sessions"]) == (0, [])
        assert left["ready"] + left["counters"]["done"] == 60
        assert left["ready"] > 0
        assert left["why"] == [{"cause": "no session", "requests": left["ready"], "seconds": None}]
        assert fleet.crawl("node-1", WORKER).wait() == 0
        assert tool("undrain", "node-1", "--json").json["draining"] is False
        fleet.crawl("node-1", WORKER).wait_for("Spider opened")
        until(lambda: tool.status(WORKER)["counters"]["done"] == 60, what="60 done")
        assert len(fleet.hits("/product/")) == 60


PROJECT = {
    "scrapy.cfg": "[settings]\ndefault = keyed.settings\n",
    "keyed/__init__.py": "",
    "keyed/spiders.py": """
        from scrapy import Request, Spider

        class Keyed(Spider):
            name = "keyed"
            custom_settings = {"LEASE_JOB": "{spider}-{shop}", "LEASE_EXPECTED_ITEMS": 5000}

            async def start(self):
                yield Request(f"{self.base}/lists?page=1", self.parse)

            def parse(self, response):
                for number in range(1, 6):
                    yield Request(f"{self.base}/product/{number}?seen=crawl", self.parse_product)

            def parse_product(self, response):
                yield {"url": response.url}

            def lease_item_key(self, request):
                return f"{self.shop}:{request.url.partition('?')[0]}:{request.callback.__name__}"
        """,
}


def test_the_key_of_a_pushed_request_is_the_one_that_nodes_compute(
    fleet: Fleet, server: Server, tmp_path: Path
) -> None:
    """In its project a spider's own key function, arguments, job and callbacks apply to what is pushed."""
    project = tmp_path / "project"
    settings = f"""
        BOT_NAME = "keyed"
        SPIDER_MODULES = ["keyed.spiders"]
        ADDONS = {{"scrapy_lease.Addon": 500}}
        LEASE_REDIS_URL = {server.url!r}
        TELNETCONSOLE_ENABLED = False
        REMOTE_CONTROL_ENABLED = False
        """
    for name, text in {**PROJECT, "keyed/settings.py": settings}.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    arguments = ("-a", "shop=one", "-a", f"base={fleet.base}")
    crawl = in_project(project, "crawl", "keyed", *arguments, program="scrapy.cmdline")
    assert crawl.status == 0, crawl.stderr
    assert len(fleet.hits("/product/")) == 5
    lines = [{"url": f"{fleet.base}/product/{n}?seen=push", "callback": "parse_product"} for n in range(1, 7)]
    (project / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pushed = in_project(project, "push", "keyed", "-f", "lines", *arguments, "--json")
    assert pushed.json == {"job": "keyed-one", "accepted": 1, "duplicate": 5, "wrong": 0}, pushed.stderr
    (project / "lines").write_text(json.dumps({**lines[0], "callback": "parse_nothing"}))
    unknown = in_project(project, "push", "keyed", "-f", "lines", *arguments)
    assert unknown.status == 1
    assert "line 1" in unknown.stderr
    assert "has no method 'parse_nothing'" in unknown.stderr
    bare = in_project(project, "push", "keyed", "http://a.test/")
    assert (bare.status, bare.stdout, len(bare.stderr.splitlines())) == (1, "", 1)
    assert "names 'shop'" in bare.stderr


def test_a_spider_that_the_project_lacks_is_named(server: Server) -> None:
    """`push` to a misspelt spider is refused with the nearest name, in one line."""
    ended = in_project(EXAMPLE, "--url", server.url, "push", "s02_fet", "http://a.test/")
    assert (ended.status, ended.stderr) == (1, "Error: the project has no spider 's02_fet': did you mean s02_fed?\n")


def test_doctor_looks_at_the_project(server: Server) -> None:
    """In a project the add-on and the settings of every spider are checked too."""
    ended = in_project(EXAMPLE, "--url", server.url, "doctor", "--json")
    assert ended.status == 0, ended.stdout
    assert {found["check"]: found["verdict"] for found in ended.json["findings"]}["add-on"] == "ok"
