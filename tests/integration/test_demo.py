"""``scrapy-lease demo`` as a stranger runs it: real processes, a real kill, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scrapy_lease
from example.hits import read
from example.products import opened

ROOT = Path(scrapy_lease.__file__).parents[1]
DEMO = "from scrapy_lease.cli.demo import command; command()"


def start(folder: Path, *options: str, root: Path = ROOT, **variables: str) -> subprocess.Popen[str]:
    """Starts the demo with its files, and those of its processes, in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-c", DEMO, *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(root), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *options: str, **others: Any) -> tuple[int, str, str]:
    """Runs the demo to its end: exit status, stdout, stderr."""
    process = start(folder, *options, **others)
    stdout, stderr = process.communicate(timeout=90)
    return process.returncode, stdout, stderr


def processes_of(folder: Path) -> dict[int, str]:
    """The processes that work in ``folder`` or were started with it in their arguments."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if str(folder) in arguments or where.startswith(str(folder)):
            found[int(process.name)] = arguments
    return found


def left_behind(folder: Path) -> list[Any]:
    """Processes and files that are left; the folder for the sockets of embedded servers may stay, empty."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return [*processes_of(folder).items(), *files, *folder.glob("scrapy-lease-demo-*")]


def wait_until(question: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline, f"nothing happened within {seconds} s"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_node_is_taken_over(tmp_path: Path) -> None:
    """Three nodes, one killed: nothing is lost, only what it had in flight is fetched twice, no IP is ever shared."""
    status, stdout, stderr = run(tmp_path, "--items=120", "--json")
    assert status == 0, stderr
    verdict = json.loads(stdout)
    assert verdict["ok"]
    assert (verdict["products"], verdict["fetched"], verdict["stored"], verdict["lost"]) == (120, 120, 120, 0)
    assert verdict["fetched_twice"] == verdict["fetched_twice_in_flight"]
    assert (verdict["ips_shared"], verdict["most_at_once_on_an_ip"], verdict["direct"]) == (0, 1, 0)
    assert 2 <= verdict["ips_used"] <= verdict["proxies"] == 12
    assert 0 < verdict["worst_window"] <= verdict["limit"] * 1.05
    exits = {node["node"]: node["exit_status"] for node in verdict["nodes"]}
    assert exits == {name: -signal.SIGKILL if name == verdict["killed"] else 0 for name in exits}
    assert sum(node["hits"] > 0 for node in verdict["nodes"]) >= 2
    assert verdict["seconds"] < 60
    assert left_behind(tmp_path) == []


@pytest.mark.slow
def test_without_a_kill_nothing_is_fetched_twice(tmp_path: Path) -> None:
    """Two nodes that both live fetch each page once between them; the table for people says so."""
    status, stdout, stderr = run(tmp_path, "--items=60", "--nodes=2", "--no-kill")
    assert status == 0, stderr
    assert re.search(r"fetched +60 +by the shop's log", stdout)
    assert re.search(r"lost +0 ", stdout)
    assert re.search(r"fetched twice +0 ", stdout)
    assert re.search(r"IPs used +\d+ +of 12 proxies; requests: one at a time on each", stdout)
    assert re.search(r"IPs shared +0 ", stdout)
    assert re.search(r"direct +0 ", stdout)
    assert len(re.findall(r"node-\d .* finished", stdout)) == 2


def test_without_proxies_each_crawl_fetches_by_itself(tmp_path: Path) -> None:
    """--proxies 0: the shop is asked from its own host, and the verdict says nothing of IPs."""
    status, stdout, stderr = run(tmp_path, "--items=20", "--nodes=1", "--proxies=0", "--no-kill", "--keep", "--json")
    assert status == 0, stderr
    verdict = json.loads(stdout)
    assert not [name for name in verdict if "ip" in name.split("_") or "ips" in name.split("_")]
    assert {hit.client for hit in read(Path(verdict["folder"]) / "hits.jsonl")} == {"127.0.0.1"}


def test_a_crawl_that_did_not_finish_is_no_success(tmp_path: Path) -> None:
    """Out of time: exit status 1, the losses in the verdict, the nodes' last log lines, nothing left.

    The terminal's encoding may lack the characters of the picture.
    """
    status, stdout, stderr = run(tmp_path, "--items=50", "--timeout=1", PYTHONIOENCODING="ascii")
    assert status == 1
    assert re.search(r"lost +50 ", stdout)
    assert "--- node-1.log" in stderr
    assert "Traceback" not in stderr
    assert left_behind(tmp_path) == []


def test_keep_leaves_the_evidence(tmp_path: Path) -> None:
    """With --keep the shop's log and the database stay; each product is there under its node and its fence."""
    status, stdout, stderr = run(tmp_path, "--items=20", "--nodes=1", "--no-kill", "--keep", "--json")
    assert status == 0, stderr
    folder = Path(json.loads(stdout)["folder"])
    assert {"hits.jsonl", "node-1.log"} <= {path.name for path in folder.iterdir()}
    with opened(f"sqlite:///{folder / 'shop.db'}") as table:
        rows = table.rows()
    assert {row["node"] for row in rows} == {"node-1"}
    assert min(row["fence"] for row in rows) > 0
    assert len(rows) == 20
    assert processes_of(tmp_path) == {}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_process(tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C and SIGTERM in the middle of the crawl end the nodes, the server, the proxies and the shop."""
    demo = start(tmp_path)
    wait_until(lambda: [log for log in tmp_path.glob("*/hits.jsonl") if log.stat().st_size])
    assert len(processes_of(tmp_path)) >= 6
    demo.send_signal(how)
    stderr = demo.communicate(timeout=30)[1]
    assert demo.returncode == 1
    assert "Aborted" in stderr
    assert left_behind(tmp_path) == []


def test_a_kill_needs_a_survivor(tmp_path: Path) -> None:
    """One node that is to be killed is wrong usage."""
    status, _, stderr = run(tmp_path, "--nodes=1")
    assert status == 2
    assert "--kill needs --nodes 2 or more" in stderr


def test_without_the_example_project(tmp_path: Path) -> None:
    """An installed package has no example project: the demo says where it looked and what to do."""
    site = tmp_path / "site"
    shutil.copytree(ROOT / "scrapy_lease", site / "scrapy_lease")
    status, _, stderr = run(tmp_path, root=site)
    assert status == 1
    assert str(site / "example_project") in stderr
    assert "run `scrapy-lease demo` from a clone" in stderr
    assert "Traceback" not in stderr
