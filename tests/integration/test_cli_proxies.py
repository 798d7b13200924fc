"""``scrapy-lease proxies`` and what ``status`` tells of pools, on a real server whose sessions the tests play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_lease.providers.identity import identity, shown
from scrapy_lease.store.pool_scripts import Backoff
from tests.helpers.fleet import Fleet
from tests.helpers.local_proxies import LocalProxies
from tests.helpers.servers import Server
from tests.integration.cli_tool import Ended, Tool, in_project
from tests.lua.pool_bed import PoolBed

A, B, C = (f"http://ann:s3cret@10.0.0.{number}:8000" for number in (1, 2, 3))
SPACE = "test"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any project."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tool(server: Server) -> Tool:
    return Tool(server.url, SPACE)


@pytest.fixture
def bed(server: Server, tool: Tool) -> Iterator[PoolBed]:
    """The same pool as sessions see it."""
    with PoolBed(server) as bed:
        yield bed


def name(url: str) -> str:
    return shown(identity(url, SPACE))


def proxies(ended: Ended, part: str = "proxies") -> dict[str, dict[str, Any]]:
    """What a command printed of each proxy, by its shown form."""
    return {row["proxy"]: row for row in ended.json[part]}


def test_what_is_added_is_listed(tool: Tool, bed: PoolBed) -> None:
    """Each URL becomes a free proxy; added again it is known; nowhere is a password."""
    assert tool("proxies", "add", A, B, "--json").json["new"] == 2
    again = tool("proxies", "add", A, C, A, "--json")
    assert (again.status, again.json["new"], again.json["known"]) == (0, 1, 1)
    listed = tool("proxies", "list", "--json")
    assert {row["state"] for row in listed.json["proxies"]} == {"free"}
    assert set(proxies(listed)) == {name(url) for url in (A, B, C)}
    assert "s3cret" not in listed.stdout + tool("proxies", "list").stdout
    assert all(key.startswith(b"10.0.0.") for key in bed.client.hgetall(bed.pool.key("resources")))


def test_a_file_tells_more(tool: Tool) -> None:
    """A line is a URL or an object with exit and end of life; wrong lines are named, left out, and show no password."""
    lines = (
        f'{A}\n\n{{"url": "{B}", "exit": "198.51.100.7", "lifetime": 3600}}\n{{"url": "{C}", "expires": 12}}\n'
        'http://ann:s3cret@10.0.0.4\n{"url": "http://10.0.0.5:1", "price": 3}\n'
        "http://ann-{session}:s3cret@10.0.0.6:1\n"
    )
    ended = tool("proxies", "add", "-f", "-", "--json", stdin=lines)
    assert ended.status == 1
    counts = {"new": 2, "known": 0, "expired": 1, "revoked": 0, "failed": 0, "wrong": 3}
    assert ended.json == {"pool": "default", **counts}
    faults = ended.stderr.splitlines()
    assert [fault.split()[:2] for fault in faults] == [["line", "5"], ["line", "6"], ["line", "7"]]
    assert ("has no port" in faults[0], "price" in faults[1], "LEASE_PROXIES" in faults[2]) == (True, True, True)
    assert "s3cret" not in ended.stderr
    row = proxies(tool("proxies", "list", "--json"))[name(B)]
    assert (row["exit"], row["expires"] is None) == ("198.51.100.7", False)


def test_list_tells_who_holds_what(tool: Tool, bed: PoolBed) -> None:
    """The holder's node, session and fence, since when; sites for which it rests, and what rests for all of them."""
    tool("proxies", "add", A, B, C)
    member = bed.member("a")
    banned, broken = member.get(2)
    member.say(banned, "ban", "shop.test")
    member.say(broken, "broken", Backoff(60_000, 60_000))
    rows = {row["id"]: row for row in tool("proxies", "list", "--json").json["proxies"]}
    held, rests = rows[banned.id], rows[broken.id]
    assert (held["state"], held["node"], held["session"], held["fence"]) == ("leased", "a", "a", banned.fence)
    assert held["since"] is not None
    assert list(held["rests"]) == ["shop.test"]
    assert 5 < held["rests"]["shop.test"] <= 10
    assert (rests["state"], rests["strikes"], rests["node"]) == ("resting", 1, None)
    assert 55 < rests["wait"] <= 60
    text = tool("proxies", "list").stdout.splitlines()
    assert text[0] == "3 proxies: 1 free, 1 leased, 1 resting"
    assert text[2].startswith(shown(banned.id))
    assert "shop.test 10 s" in text[2]


def test_one_of_each_exit_is_in_play(tool: Tool) -> None:
    """Where two identities lead to one exit address, the one that is not in play is shown as behind it."""
    lines = "\n".join(f'{{"url": "{url}", "exit": "198.51.100.7"}}' for url in (A, B))
    tool("proxies", "add", "-f", "-", stdin=lines)
    assert [row["state"] for row in tool("proxies", "list", "198.51.100.7", "--json").json["proxies"]] == [
        "free", "behind"
    ]  # fmt: skip


def test_a_proxy_has_several_names(tool: Tool) -> None:
    """The shown form, id, endpoint, host and exit address all find it; what none is called is told, with status 1."""
    tool("proxies", "add", "-f", "-", stdin=f'{{"url": "{A}", "exit": "198.51.100.7"}}\n{B}\n')
    for called in (name(A), identity(A, SPACE), "10.0.0.1:8000", "10.0.0.1", "198.51.100.7"):
        found = tool("proxies", "list", called, "--json")
        assert (found.status, list(proxies(found))) == (0, [name(A)])
    ended = tool("proxies", "list", "10.0.0.9", "10.0.0.2", "--json")
    assert (ended.status, list(proxies(ended)), ended.stderr) == (1, [name(B)], "Not there: 10.0.0.9\n")


def test_an_operator_steers(tool: Tool, bed: PoolBed) -> None:
    """drain, undrain, revoke, free do as the store says; repeated they change nothing; the holder is told."""
    tool("proxies", "add", A, B)
    member = bed.member("a")
    (lease,) = member.get()
    (other,) = {identity(A, SPACE), identity(B, SPACE)} - {lease.id}

    def states() -> dict[str, tuple[str, str | None]]:
        return {row["id"]: (row["state"], row["flag"]) for row in tool("proxies", "list", "--json").json["proxies"]}

    assert tool("proxies", "drain", "--all", "--json").json == {"changed": 2, "unchanged": 0}
    assert states() == {lease.id: ("leased", "drained"), other: ("aside", "drained")}
    assert tool("proxies", "drain", "--all", "--json").json == {"changed": 0, "unchanged": 2}
    assert tool("proxies", "undrain", "--all", "--json").json["changed"] == 2
    assert tool("proxies", "revoke", lease.id, "--json").json["changed"] == 1
    assert member.take().recalled == (lease.id,)
    assert tool("proxies", "add", A, B, "--json").json["revoked"] == 1
    assert tool("proxies", "free", lease.id, "--json").json["changed"] == 1
    assert states() == {lease.id: ("resting", None), other: ("free", None)}
    assert tool("proxies", "drain", "nobody").status == 1
    assert tool("proxies", "drain").status == 2


def test_all_are_ended_only_when_that_is_meant(tool: Tool) -> None:
    """revoke and free ask before they do it to all."""
    tool("proxies", "add", A)
    assert tool("proxies", "revoke", "--all", stdin="n\n").status == 1
    assert tool("proxies", "list", "--json").json["proxies"][0]["flag"] is None
    assert tool("proxies", "revoke", "--all", "--yes", "--json").json["changed"] == 1


def test_pools_are_kept_apart(tool: Tool) -> None:
    """--pool names one; without it all are meant, but for add; one that is not there is told with those that are."""
    tool("proxies", "add", A)
    tool("proxies", "add", B, C, "--pool", "resi")
    assert {row["pool"] for row in tool("proxies", "list", "--json").json["proxies"]} == {"default", "resi"}
    assert len(tool("proxies", "list", "--pool", "resi", "--json").json["proxies"]) == 2
    limited = tool("proxies", "list", "--limit", "1", "--json").json
    assert (len(limited["proxies"]), limited["total"]) == (1, 3)
    ended = tool("proxies", "drain", "--all", "--pool", "dc")
    assert (ended.status, "it knows default, resi" in ended.stderr) == (1, True)


def test_history_tells_node_and_ip(tool: Tool, bed: PoolBed) -> None:
    """Which node had which proxy from when to when, and how that ended, by IP or by node; also when it is gone."""
    tool("proxies", "add", "-f", "-", stdin=f'{{"url": "{A}", "exit": "198.51.100.7"}}')
    first, second = bed.member("a"), bed.member("b")
    (lease,) = first.get()
    first.back(lease)
    (lease,) = second.get()
    second.say(lease, "ban", "shop.test")
    second.say(lease, "gone", "refused")
    ended = tool("proxies", "history", "198.51.100.7", "--json")
    assert ended.status == 0
    told = [(row["what"], row["node"], row["why"]) for row in ended.json["history"]]
    assert told == [
        ("new", None, None), ("lease", "a", "given back"), ("lease", "b", "refused"), ("ban", "b", "shop.test"),
        ("gone", "b", "refused"),
    ]  # fmt: skip
    leases = [row for row in ended.json["history"] if row["what"] == "lease"]
    assert all(row["until"] >= row["at"] and row["proxy"] == name(A) for row in leases)
    of_a = tool("proxies", "history", "--node", "a", "--json").json["history"]
    assert [(row["what"], row["exit"]) for row in of_a] == [("lease", "198.51.100.7")]
    assert [row["what"] for row in tool("proxies", "history", "--limit", "1", "--json").json["history"]] == ["gone"]
    assert "given back" in tool("proxies", "history").stdout
    nothing = tool("proxies", "history", "10.9.9.9")
    assert (nothing.status, "Nothing is known" in nothing.stderr) == (1, True)


def test_status_tells_the_pools(tool: Tool, bed: PoolBed) -> None:
    """What is free, leased and resting, who holds how many, and who waits for how many since when."""
    tool("proxies", "add", A, B, C)
    tool("proxies", "drain", name(C))
    holder, waiter = bed.member("a"), bed.member("b")
    (lease, _) = holder.get(2)
    waiter.get(3)
    holder.say(lease, "broken")
    (pool,) = tool("status", "--json").json["pools"]
    places = {place: pool[place] for place in ("known", "free", "leased", "resting", "behind", "aside", "waiting")}
    assert places == {"known": 3, "free": 0, "leased": 1, "resting": 1, "behind": 0, "aside": 1, "waiting": 1}
    first, second = pool["members"]
    assert (first["node"], first["held"], first["waits"]) == ("a", 1, None)
    assert (second["node"], second["held"], second["wants"], second["is_live"]) == ("b", 0, 3, True)
    assert second["waits"] >= 0
    text = tool("status").stdout
    assert "proxy pool default: 3 known, 0 free, 1 leased, 1 resting, 1 drained or revoked, 1 session waiting" in text


def test_a_paused_site_is_told(tool: Tool, bed: PoolBed) -> None:
    """A site that bans the pool is shown with the time left of its pause."""
    tool("proxies", "add", A)
    member = bed.member("a")
    (lease,) = member.get(1, "shop.test")
    assert member.say(lease, "ban", "shop.test") == "="
    (pool,) = tool("status", "--json").json["pools"]
    assert 5 < pool["paused"]["shop.test"] <= 10
    assert "shop.test is paused" in tool("status").stdout


def test_check_tries_each(tool: Tool, tmp_path: Path) -> None:
    """A page is fetched through each, with its password and never directly; what fails is told, with exit status 1."""
    with Fleet(tmp_path, "") as shop, LocalProxies(3, "--user=ann", "--password=s3cret") as local:
        tool("proxies", "add", *local.urls)
        local.tell(2, "die")
        page = f"{shop.base}/product/1"
        ended = tool("proxies", "check", "--via", page, "--json")
        assert ended.status == 1
        works = {row["proxy"]: row["works"] for row in ended.json["proxies"]}
        assert works == {name(url): number != 2 for number, url in enumerate(local.urls, 1)}
        assert sorted(hit.client for hit in shop.hits()) == [local.exits[0], local.exits[2]]
        assert tool("proxies", "check", local.exits[0], "--via", page).status == 0
        assert "s3cret" not in tool("proxies", "check", "--via", page).stdout


def test_check_can_leave_out_what_is_leased(tool: Tool, bed: PoolBed, tmp_path: Path) -> None:
    """--free tries only what nobody holds."""
    with Fleet(tmp_path, "") as shop, LocalProxies(2) as local:
        tool("proxies", "add", *local.urls)
        (lease,) = bed.member("a").get()
        ended = tool("proxies", "check", "--free", "--via", f"{shop.base}/product/1", "--json")
        assert [row["proxy"] for row in ended.json["proxies"]] == [
            name(url) for url in local.urls if identity(url, SPACE) != lease.id
        ]


def test_check_needs_a_page(tool: Tool) -> None:
    """Without LEASE_PROXY_CHECK, and with what is no URL, it is wrong usage."""
    tool("proxies", "add", A)
    for arguments in ((), ("--via", "shop")):
        assert tool("proxies", "check", *arguments).status == 2


def test_in_a_project_its_pools_count(server: Server, tmp_path: Path) -> None:
    """add refuses a pool that the project lacks, and leaves out what fails the pool's check."""
    with Fleet(tmp_path, "") as shop, LocalProxies(2) as local:
        local.tell(1, "hang")
        (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = pools\n")
        (tmp_path / "pools.py").write_text(
            f"LEASE_NAMESPACE = {SPACE!r}\nLEASE_REDIS_URL = {server.url!r}\nLEASE_PROXY_POOL = 'dc'\n"
            f'LEASE_PROXY_POOLS = {{"dc": {{"check": "{shop.base}/product/1", "check_timeout": 1}}}}\n'
        )
        wrong = in_project(tmp_path, "proxies", "add", local.urls[1])
        assert (wrong.status, "it has dc" in wrong.stderr) == (2, True)
        ended = in_project(tmp_path, "proxies", "add", "--pool", "dc", *local.urls, "--json")
        assert (ended.status, ended.json["new"], ended.json["failed"]) == (1, 1, 1), ended.stderr
        assert in_project(tmp_path, "proxies", "check", "--json").status == 0
        unchecked = in_project(tmp_path, "proxies", "add", "--pool", "dc", "--no-check", local.urls[0], "--json")
        assert (unchecked.status, unchecked.json["new"]) == (0, 1)


def test_nothing_is_there_yet(tool: Tool) -> None:
    """A namespace without pools: list is empty, and what needs a pool says so."""
    ended = tool("proxies", "list", "--json")
    assert (ended.status, ended.json) == (0, {"total": 0, "proxies": []})
    assert tool("proxies", "history").status == 1
    assert tool("proxies", "list", "--pool", "default").status == 1
