"""``scrapy-lease doctor`` and ``status``, and how all commands meet a store that is away, closed or embedded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_lease.store.embedded import status
from scrapy_lease.store.scripts import Scripts, Settlement
from tests.helpers.relay import Relay
from tests.helpers.servers import Server, reserve_port
from tests.integration.cli_tool import Ended, Tool, in_project

COMMANDS = (
    ("status",),
    ("doctor",),
    ("push", "shop", "http://a.test/"),
    ("queue", "clear", "--yes", "--job", "shop"),
    ("queue", "export", "--job", "shop"),
    ("items", "dead", "--job", "shop"),
    ("items", "retry", "--all", "--job", "shop"),
    ("items", "forget", "--all", "--yes", "--job", "shop"),
    ("pause", "shop"),
    ("resume", "shop"),
    ("drain", "node"),
    ("undrain", "node"),
    ("proxies", "list"),
    ("proxies", "add", "http://10.0.0.1:8000"),
    ("proxies", "check", "--via", "http://a.test/"),
    ("proxies", "free", "10.0.0.1"),
    ("proxies", "history"),
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any project."""
    monkeypatch.chdir(tmp_path)


def findings(ended: Ended) -> dict[str, str]:
    return {found["check"]: found["verdict"] for found in ended.json["findings"]}


def test_doctor_finds_a_good_store_good(server: Server) -> None:
    """All is ok, for people one line each, and the exit status is 0."""
    tool = Tool(server.url)
    ended = tool("doctor", "--json")
    assert ended.status == 0
    assert set(findings(ended).values()) == {"ok"}
    assert set(findings(ended)) == {
        "settings", "reactor", "store", "version", "writes", "append-only file", "eviction", "clocks", "lease clock"
    }  # fmt: skip
    assert server.client().exists("{ns:0}:clock") == 0
    lines = tool("doctor").stdout.splitlines()
    assert len(lines) == len(findings(ended))
    assert all(line.startswith("ok ") for line in lines)


def test_doctor_warns_of_what_can_lose_data(make_server: Callable[..., Server]) -> None:
    """No append-only file and an evicting policy are warnings that say what to do; warnings exit with 0."""
    server = make_server(config={"appendonly": "no", "maxmemory-policy": "allkeys-lru"})
    ended = Tool(server.url)("doctor", "--json")
    assert ended.status == 0
    warned = {found["check"]: found["advice"] for found in ended.json["findings"] if found["verdict"] == "warn"}
    assert set(warned) == {"append-only file", "eviction"}
    assert all(warned.values())


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "noeviction"),
        ({"min-replicas-to-write": "1"}, "NOREPLICAS"),
    ],
)
def test_doctor_fails_a_store_that_crawls_cannot_use(
    make_server: Callable[..., Server], config: dict[str, str], word: str
) -> None:
    """A server that may evict leases, or takes no writes, is a failure that names the cause; exit status 1."""
    ended = Tool(make_server(config=config).url)("doctor", "--json")
    assert ended.status == 1
    (failed,) = [found for found in ended.json["findings"] if found["verdict"] == "fail"]
    assert failed["check"] == "store"
    assert word in failed["text"]


def test_doctor_tells_a_clock_that_is_off(make_server: Callable[..., Server]) -> None:
    """A server whose clock is an hour off is a warning; a lease clock that runs on all the same is ok."""
    server = make_server(kind="redis", clock=True)
    server.set_clock(3600)
    tool = Tool(server.url)
    tool("push", "shop", "http://a.test/")
    ended = tool("doctor", "--json")
    assert ended.status == 0
    assert (findings(ended)["clocks"], findings(ended)["lease clock"]) == ("warn", "ok")


def test_doctor_tells_that_leases_are_off(server: Server, tmp_path: Path) -> None:
    """Switched off by the settings is a warning, each switch a line of its own."""
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = off\n")
    (tmp_path / "off.py").write_text("LEASE_ENABLED = False\nLEASE_ITEMS_ENABLED = False\n")
    ended = in_project(tmp_path, "--url", server.url, "doctor", "--json")
    assert ended.status == 0
    warned = [found["text"] for found in ended.json["findings"] if found["verdict"] == "warn"]
    assert warned == [f"{name} is False: crawls lease nothing" for name in ("LEASE_ENABLED", "LEASE_ITEMS_ENABLED")]


def test_doctor_names_wrong_settings(server: Server, tmp_path: Path) -> None:
    """A wrong setting, a missing add-on, another reactor, a spider's wrong attribute: each a failing line."""
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = wrong.settings\n")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "__init__.py").touch()
    (tmp_path / "wrong" / "spiders.py").write_text(
        "from scrapy import Spider\nclass Odd(Spider):\n    name = 'odd'\n    lease_window = 0\n"
        "class Lone(Spider):\n    name = 'lone'\n    lease_proxies = 'not_there.txt'\n"
    )
    (tmp_path / "wrong" / "settings.py").write_text(
        "SPIDER_MODULES = ['wrong.spiders']\nTWISTED_REACTOR = 'twisted.internet.selectreactor.SelectReactor'\n"
    )
    ended = in_project(tmp_path, "--url", server.url, "doctor", "--json")
    assert ended.status == 1
    failed = {found["check"]: found["text"] for found in ended.json["findings"] if found["verdict"] == "fail"}
    assert set(failed) == {"add-on", "spider odd", "spider lone", "reactor"}
    assert "lease_proxies" in failed["spider lone"]
    assert "lease_window" in failed["spider odd"]
    with (tmp_path / "wrong" / "settings.py").open("a") as file:
        file.write("LEASE_TTL = 'soon'\n")
    ended = in_project(tmp_path, "--url", server.url, "doctor", "--json")
    assert findings(ended)["store"] == "fail"
    assert "LEASE_TTL" in next(found["text"] for found in ended.json["findings"] if found["check"] == "settings")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_store_that_is_away_is_one_line(arguments: tuple[str, ...]) -> None:
    """Each command says in one line that the store does not answer, without its password, and exits with 1."""
    port, holder = reserve_port()
    ended = Tool(f"redis://:s3cret@127.0.0.1:{port}/0")(*arguments)
    holder.close()
    assert ended.status == 1
    text = ended.stdout + ended.stderr
    assert text.count("does not answer") == 1
    assert "s3cret" not in text
    if arguments != ("doctor",):
        assert (ended.stdout, len(ended.stderr.splitlines())) == ("", 1)


def test_a_store_that_is_silent_is_given_up_in_time(own_relay: Relay) -> None:
    """A server that accepts and never answers costs no more than LEASE_STORE_TIMEOUT."""
    own_relay.freeze()
    started = time.monotonic()
    ended = Tool(own_relay.url)("status")
    assert ended.status == 1
    assert "no answer within 5 s" in ended.stderr
    assert time.monotonic() - started < 6


def test_a_wrong_password_is_one_line(make_server: Callable[..., Server]) -> None:
    """The server's refusal is told without the password."""
    server = make_server(config={"requirepass": "right"})
    ended = Tool(server.url.replace("right", "wr0ng"))("status")
    assert (ended.status, len(ended.stderr.splitlines())) == (1, 1)
    assert "refuses the user or password" in ended.stderr
    assert "wr0ng" not in ended.stderr


def test_status_tells_who_waits_for_what(server: Server) -> None:
    """Delayed requests with the time of the next, what a silent holder holds, and what nobody is there to take."""
    tool = Tool(server.url)
    tool("push", "shop", *(f"http://a.test/{n}" for n in range(6)))

    async def fail_one_hold_two(scripts: Scripts, sid: str) -> None:
        await scripts.start(sid, "claim", "one")
        _, grants = await scripts.lease(sid, 1, want=3, rooms={"a.test": 3})
        failed = Settlement(grants[0].digest, grants[0].fence, "failed", (90_000, 3, "reason", ""))
        await scripts.settle(sid, 1, [failed])

    tool.play("shop", fail_one_hold_two)
    found = tool.status("shop")
    (session,) = found["sessions"]
    assert (session["node"], session["state"], session["held"], session["pid"]) == ("player", "live", 2, 1)
    assert found["reader"] == f"player ({session['id']})"
    causes = {why["cause"]: why for why in found["why"]}
    assert {cause: why["requests"] for cause, why in causes.items()} == {"downloader full": 3, "delayed": 1}
    assert 80 < causes["delayed"]["seconds"] <= 90
    tool("drain", "player")
    assert tool.status("shop")["why"][0]["cause"] == "draining"
    server.client().hset(f"{{ns:0}}:session:{session['id']}", mapping={"opened": "1000", "ttl": "5000"})
    silent = tool.status("shop")
    assert silent["sessions"][0]["state"] == "silent"
    assert [why["cause"] for why in silent["why"]][-1] == "holder gone"
    text = tool("status", "--why").stdout
    assert "3 ready, 1 delayed (next in " in text
    assert "holder gone" in text


def test_status_of_an_unknown_job_fails(server: Server) -> None:
    """A job that the namespace never had: exit status 1; no job at all without a name: 0."""
    tool = Tool(server.url)
    assert (tool("status", "--job", "shop").status, tool("status").status) == (1, 0)
    assert tool("status", "--json").json["jobs"] == []


def test_names_with_signs_of_their_own_are_kept_apart(server: Server) -> None:
    """Colons, braces, stars, brackets and spaces in namespace, job and run mislead no command."""
    tool, other = Tool(server.url, "n*:{x}[y]"), Tool(server.url, "nn:{x}y")
    assert tool("push", "a*:b@c", "--run", "r?:1", "http://a.test/").status == 0
    assert other("push", "other", "http://a.test/").status == 0
    (job,) = tool("status", "--json").json["jobs"]
    assert (job["job"], job["run"], job["ready"]) == ("a*:b@c", "r?:1", 1)
    assert tool("pause", "a*:b@c", "--json").json["known"] is True
    assert tool.status("a*:b@c")["paused"] is True


def test_an_embedded_server_keeps_what_is_pushed(directory: Path) -> None:
    """Looking starts nothing where nothing was; a push starts the server, and its data outlives it."""
    tool = Tool(f"embedded://{directory}")
    looked = tool("status")
    assert looked.status == 1
    assert "there is nothing to see" in looked.stderr
    assert not directory.exists()
    assert tool("push", "shop", "http://a.test/1").status == 0
    assert not status(directory).running
    assert tool.status("shop")["ready"] == 1
    assert not status(directory).running
