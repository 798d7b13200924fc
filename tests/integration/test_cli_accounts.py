"""``scrapy-lease accounts``, on a real server whose sessions the tests play, and in a crawl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.fleet import Fleet, until
from tests.helpers.members import MemberBed, account_keys
from tests.helpers.servers import Server
from tests.integration.cli_tool import Ended, Tool

LINES = '{"id": "ann", "password": "hunter2", "cookies": {"sid": "hunter2"}}\n{"id": "ben", "username": "ben"}\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any project."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tool(server: Server) -> Tool:
    return Tool(server.url, "test")


def accounts(ended: Ended) -> dict[str, dict[str, Any]]:
    return {row["account"]: row for row in ended.json["accounts"]}


def test_what_is_added_is_listed(tool: Tool) -> None:
    """Each line becomes a cold account; added again it is known; wrong lines are named; no secret is shown."""
    added = tool("accounts", "add", "-f", "-", "--json", stdin=LINES)
    assert (added.status, added.json["new"], added.json["wrong"]) == (0, 2, 0)
    again = tool(
        "accounts", "add", "-f", "-", "--json", stdin='{"id": "ann"}\n{"id": "ann", "pasword": "hunter2"}\n{x\n'
    )
    assert (again.status, again.json["known"], again.json["wrong"]) == (1, 1, 2)
    assert again.stderr.splitlines()[0].startswith("line 2 has 'pasword', which is no field of an account")
    listed = tool("accounts", "list", "--json")
    assert {name: row["state"] for name, row in accounts(listed).items()} == {"ann": "cold", "ben": "cold"}
    table = tool("accounts", "list")
    assert table.stdout.startswith("2 accounts: 2 cold")
    for ended in (added, again, listed, table):
        assert "hunter2" not in ended.stdout + ended.stderr


def test_who_is_not_there(tool: Tool) -> None:
    """It is named, the others are shown or changed, and the exit status is 1; so is a pool that nobody knows."""
    tool("accounts", "add", "-f", "-", stdin=LINES)
    for words in (("list",), ("cool",), ("free",)):
        ended = tool("accounts", *words, "ann", "mallory")
        assert (ended.status, ended.stderr) == (1, "Not there: mallory\n")
    assert tool("accounts", "list", "--pool", "gold").status == 1
    assert tool("accounts", "cool").status == 2
    assert tool("accounts", "add").status == 2


def test_one_that_cools(tool: Tool) -> None:
    """Nobody gets it for so long, unless it is freed."""
    tool("accounts", "add", "-f", "-", stdin=LINES)
    assert tool("accounts", "cool", "ann", "--for", "600", "--json").json == {"changed": 1, "unchanged": 0}
    row = accounts(tool("accounts", "list", "ann", "--json"))["ann"]
    assert row["state"] in ("cooling", "benched")
    assert 590 < row["wait"] <= 600
    assert tool("accounts", "free", "ann", "--json").json["changed"] == 1
    assert accounts(tool("accounts", "list", "ann", "--json"))["ann"]["state"] in ("cold", "free")


@pytest.mark.one_server
def test_who_goes_as_whom(club: Callable[..., MemberBed], server: Server) -> None:
    """While a node crawls: its accounts with node, session, since when and how often; one that cools it gives back."""
    b = club(2, latency=0.1)
    tool = Tool(server.url, "scrapybot")
    node = b.crawl(pages=200, settings={"LEASE_ACCOUNT_QUOTA": "1000"})
    until(lambda: len(b.uses()) == 2, 30, "both members")
    rows = accounts(tool("accounts", "list", "--json"))
    assert {(row["state"], row["node"]) for row in rows.values()} == {("leased", "n0")}
    assert all(row["session"] and row["since"] and row["used"] for row in rows.values())
    assert tool("accounts", "cool", "m0", "--for", "60").status == 0
    until(lambda: accounts(tool("accounts", "list", "--json"))["m0"]["state"] == "cooling", 10, "m0 cools")
    seen = b.uses()
    until(lambda: b.uses()["m1"] > seen["m1"] + 5, 20, "pages of m1")
    assert b.uses()["m0"] <= seen["m0"] + 1
    node.terminate()
    assert node.wait(20) == 0
    assert b.client.hlen(account_keys().key("leases")) == 0


@pytest.mark.one_server
@pytest.mark.slow
def test_the_example_spider(fleet: Callable[..., Fleet]) -> None:
    """s07_members on two nodes: each product once at the price of members, and the shop's ban costs none."""
    shop = fleet(products=150, latency=0.05)
    nodes = [shop.crawl(name, "s07_members", pages="150") for name in ("a", "b")]
    shop.wait(nodes)
    pages = [hit for hit in shop.hits() if hit.path.startswith("/members/") and hit.status == 200]
    assert len({hit.path for hit in pages}) == len(pages) == 150
    assert len([hit for hit in shop.hits() if hit.path == "/account" and hit.status == 200]) == 6
    assert sum(node.stats.get("lease/account/demoted/default", 0) for node in nodes) == 1
    assert sum(node.stats.get("lease/account/logins/default", 0) for node in nodes) == 6
    assert json.dumps(sorted({hit.status for hit in shop.hits()})) == "[200, 302, 403]"
