"""A user of the server with just the rights that docs/operations.md lists: enough for all, and none too many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scrapy_lease.store.rate_scripts import RateScripts
from scrapy_lease.store.scripts import Scripts, Settlement
from tests.helpers.fleet import ROOT, Fleet
from tests.helpers.local_proxies import LocalProxies
from tests.helpers.servers import Server
from tests.integration.cli_tool import Tool, bury_all

PACKAGE = ROOT / "scrapy_lease"
#: What the connection itself sends: see Channel.
CONNECTION = {"INFO", "EVAL", "EVALSHA"}
#: What only the doctor asks for, and does without.
OPTIONAL = {"CONFIG"}
IN_LUA = re.compile(r"(?:redis\.call|bulk)\('([A-Z]+)'")
IN_PYTHON = re.compile(r"""(?:command|Read)\(\s*"([A-Z]+)"|encode\(\[\("([A-Z]+)",\)\]\)""")
SETUSER = re.compile(r"^ACL SETUSER (crawler .*?)^```", re.MULTILINE | re.DOTALL)


def documented(namespace: str, password: str) -> str:
    """The user of docs/operations.md as one line of an ACL file."""
    (rules,) = SETUSER.findall((ROOT / "docs" / "operations.md").read_text("utf-8"))
    return " ".join(rules.split()).replace("{mybot:", f"{{{namespace}:").replace("PASSWORD", password)


def used() -> set[str]:
    """The commands that the package names; feeds are on a server of their own."""
    found = set(CONNECTION)
    for path in (*PACKAGE.rglob("*.lua"), *PACKAGE.rglob("*.py")):
        if "feed" not in path.relative_to(PACKAGE).as_posix():
            pattern = IN_LUA if path.suffix == ".lua" else IN_PYTHON
            found.update("".join(match.groups(default="")) for match in pattern.finditer(path.read_text("utf-8")))
    return found - OPTIONAL


@pytest.fixture
def guarded(make_server: Callable[..., Server], tmp_path: Path) -> Iterator[Server]:
    """A server with that user, which has refused it nothing in the end."""
    users = tmp_path / "users.acl"
    users.write_text(f"user default on nopass ~* &* +@all\nuser {documented('example', 'hush')}\n")
    server = make_server(config={"aclfile": str(users)})
    yield server
    assert server.client().acl_log() == []


def url_of(server: Server) -> str:
    return server.url.replace("://", "://crawler:hush@")


def test_the_documented_rights_are_those_that_are_used() -> None:
    """The list is derived from the scripts and modules: a command that comes or goes changes the documentation."""
    listed = {rule[1:].upper() for rule in documented("x", "x").split() if rule.startswith("+")}
    assert listed == used()


def test_a_crawl_with_just_these_rights(fleet: Callable[..., Fleet], guarded: Server) -> None:
    """Nodes of a named run work through a restart of the server and the death of one of them: nothing is lost."""
    shop = fleet(url=url_of(guarded), products=120, latency=0.15)
    sizes = {"LEASE_RUNS_KEEP": 1, "LEASE_EXPECTED_ITEMS": 1000}
    nodes = [shop.crawl(name, settings={"LEASE_RUN": "first", **sizes}) for name in ("a", "b")]
    shop.wait_for_hits(15)
    guarded.restart()
    shop.wait_for_hits(30)
    kill = nodes[0].kill()
    shop.wait(nodes[1:], timeout=60)
    verdict = shop.verdict(kill)
    assert not verdict.lost
    assert verdict.twice == verdict.excused
    last = shop.crawl("c", settings={"LEASE_RUN": "second", "CLOSESPIDER_ITEMCOUNT": 20, **sizes})
    shop.wait([last])
    assert "Deleted run first" in last.log
    assert "hush" not in last.log


def test_a_crawl_through_proxies_with_just_these_rights(
    fleet: Callable[..., Fleet], guarded: Server, tmp_path: Path
) -> None:
    """Nodes share proxies through a restart of the server and the death of one of them: none goes past a proxy."""
    shop = fleet(url=url_of(guarded), products=60, latency=0.15)
    with LocalProxies(4, folder=tmp_path) as proxies:
        proxies.tell(1, "ban")
        settings = {"LEASE_PROXIES": proxies.file, "LEASE_RATE_LIMITS": '{"ip": "50/second", "domain": "9000/day"}'}
        nodes = [shop.crawl(name, "s05_proxies", settings=settings) for name in ("a", "b")]
        shop.wait_for_hits(10)
        guarded.restart()
        shop.wait_for_hits(20)
        kill = nodes[0].kill()
        shop.wait(nodes[1:], timeout=60)
        assert shop.verdict(kill).is_right
        assert {hit.client for hit in shop.hits()} <= set(proxies.exits)


def test_the_command_line_with_just_these_rights(
    guarded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command does its work; the doctor finds nothing to fail."""
    monkeypatch.chdir(tmp_path)
    tool = Tool(url_of(guarded), "example")

    async def fail_one_hold_one(scripts: Scripts, sid: str) -> None:
        _, grants = await scripts.lease(sid, 1, want=2, rooms={"a.test": 2})
        failed = Settlement(grants[0].digest, grants[0].fence, "failed", (60_000, 3, "reason", ""))
        await scripts.settle(sid, 1, [failed])
        limits = RateScripts(scripts.channel, scripts.scope.namespace)
        await limits.look(sid, '{"ip": ["9/1000 ms"]}', keep=60_000, waits="")
        await scripts.close(sid)

    assert tool("push", "shop", *(f"http://a.test/{number}" for number in range(5))).status == 0
    tool.play("shop", fail_one_hold_one)
    exported = tool("queue", "export", "--job", "shop")
    (tmp_path / "backlog").write_text(exported.stdout)
    for command in (
        ("status", "--why"), ("rates", "set", "ip", "5/s"), ("rates", "list"), ("rates", "set", "ip", "configured"),
        ("pause", "shop"), ("resume", "shop"), ("drain", "node"), ("undrain", "node"),
        ("queue", "clear", "--yes"),
        ("queue", "import", "backlog"),
    ):  # fmt: skip
        ended = tool(*command)
        assert ended.status == 0, f"{command}: {ended.stderr}"
    tool.play("shop", bury_all)
    for command in (("dead",), ("retry", "http://a.test/1"), ("forget", "--dead", "--all", "--yes")):
        assert tool("items", *command).status == 0, command
    assert tool("items", "forget", "--all", "--yes").status == 0
    for words in ("add http://10.0.0.1:80", "list", "drain 10.0.0.1", "free 10.0.0.1", "history"):
        assert tool("proxies", *words.split()).status == 0, words
    assert tool("status").status == 0
    client = guarded.client()
    assert client.acl_log() == []
    doctor = tool("doctor", "--json")
    assert doctor.status == 0, doctor.stdout
    checks = {found["check"]: found["text"] for found in doctor.json["findings"]}
    assert checks["append-only file"] == "is on, appendfsync not shown to this user"
    assert [entry["object"] for entry in client.acl_log()] == ["config|get"]
    client.acl_log_reset()


@pytest.mark.parametrize(
    ("right", "status", "script"), [("+zadd", 1, "open"), ("+srem", 0, "start"), ("+zrangebylex", 0, "lease")]
)
def test_a_right_that_is_missing(
    fleet: Callable[..., Fleet], own_server: Server, right: str, status: int, script: str
) -> None:
    """The crawl does not start, or closes with lease_store_refused: one error names the script, ACL LOG the command."""
    rules = [rule for rule in documented("example", "hush").split() if rule != right]
    own_server.client().execute_command("ACL", "SETUSER", *rules)
    shop = fleet(url=url_of(own_server), products=5)
    node = shop.crawl("a")
    assert node.wait(20) == status
    (error,) = [line for line in node.log.splitlines() if " ERROR: " in line and "[scrapy_lease" in line]
    assert f"refused {script}: " in error
    assert right[1:] in {entry["object"] for entry in own_server.client().acl_log()}
    assert node.stats.get("finish_reason", "lease_store_refused") == "lease_store_refused"


def test_what_is_not_of_the_namespace_is_refused(fleet: Callable[..., Fleet], guarded: Server) -> None:
    """Another namespace is out of reach: the crawl does not start, and the error says so without the password."""
    shop = fleet(url=url_of(guarded), products=1)
    node = shop.crawl("a", settings={"LEASE_NAMESPACE": "another"})
    assert node.wait(20) == 1
    (error,) = [line for line in node.log.splitlines() if "ERROR" in line and "[scrapy_lease" in line]
    assert "permissions to access" in error
    assert "hush" not in node.log
    assert not shop.hits()
    guarded.client().acl_log_reset()
