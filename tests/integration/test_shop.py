"""The local shop and its log: every promise of the other tests rests on what this site says it saw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from example import hits
from example.hits import ABORTED, Hit, HitLog, HitReader, Kill, Verdict
from example.products import opened

EXAMPLE = Path(__file__).parents[2] / "example_project"


class RunningShop:
    """The shop as a process of its own: 45 products, and a log."""

    def __init__(self, log: Path, *options: str) -> None:
        self.log = log
        command = [
            sys.executable,
            "-m",
            "example.shop",
            "--port=0",
            "--products=45",
            "--json",
            f"--log={log}",
        ]
        self.process = subprocess.Popen(
            [*command, f"--log={log}", *options], cwd=EXAMPLE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def get(self, path: str, node: str = "test", **options: object) -> requests.Response:
        return requests.get(self.url + path, headers={"X-Node": node}, timeout=10, **options)  # type: ignore[arg-type]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=10)
        return self.process.returncode


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[RunningShop]:
    shop = RunningShop(tmp_path / "hits.jsonl")
    yield shop
    if shop.process.poll() is None:
        shop.stop()


def wait_until(question: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline, f"nothing happened within {seconds} s"
        time.sleep(0.05)


def hit(path: str, node: str, started: float, ended: float | None, status: int | None = 200) -> Hit:
    return Hit(0, path, "127.0.0.1", "shop", node, started, 0.0, ended, None if ended is None else status)


def test_lists_lead_to_every_product(shop: RunningShop) -> None:
    """Following the lists' pagination leads to each product exactly once, as HTML and as JSON."""
    names: list[str] = []
    page: int | None = 1
    while page:
        listed = shop.get(f"/api/products?page={page}").json()
        html = shop.get(f"/lists?page={page}").text
        assert all(f'href="{product["url"]}"' in html for product in listed["products"])
        assert ("class=\"next\"" in html) == (listed["next"] is not None)  # fmt: skip
        names += [product["sku"] for product in listed["products"]]
        page = listed["next"]
    assert names == [f"SKU-{number:06d}" for number in range(1, 46)]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/product/45", 200),
        ("/product/46", 404),
        ("/product/0", 404),
        ("/missing", 404),
        ("/lists?page=4", 404),
        ("/lists?page=x", 400),
        ("/slow/1?s=0", 200),
    ],
)
def test_pages_answer(shop: RunningShop, path: str, status: int) -> None:
    """A page that is there answers 200, one that is not 404, and each is logged with its status."""
    assert shop.get(path).status_code == status
    assert [(hit.path, hit.status, hit.node) for hit in hits.read(shop.log)] == [(path, status, "test")]


def test_flaky_pages_fail_once(shop: RunningShop) -> None:
    """A flaky page fails the first time only, and asking it again does not count as fetching it twice."""
    assert [shop.get("/flaky/7").status_code for _ in range(3)] == [500, 200, 200]
    log = hits.read(shop.log)
    assert hits.again(log[:2]) == set()
    assert hits.again(log) == {"/flaky/7"}


def test_redirects_lead_to_the_product(shop: RunningShop) -> None:
    """/go/N redirects to product N; both hits are logged."""
    assert 'data-sku="SKU-000009"' in shop.get("/go/9").text
    assert [(hit.path, hit.status) for hit in hits.read(shop.log)] == [("/go/9", 302), ("/product/9", 200)]


def test_a_page_with_many_links(shop: RunningShop) -> None:
    """/links/N has N links to products."""
    assert shop.get("/links/500").text.count('class="product"') == 500


def test_the_account_is_for_those_who_logged_in(shop: RunningShop) -> None:
    """Without the cookie of a login the account page sends one to the form; a wrong password gives none."""
    assert shop.get("/account").url.endswith("/login")
    with requests.Session() as browser:
        wrong = browser.post(shop.url + "/login", {"user": "ann", "password": "guess"}, timeout=10)
        assert (wrong.status_code, browser.cookies.get_dict()) == (403, {})
        right = browser.post(shop.url + "/login", {"user": "ann", "password": "secret"}, timeout=10)
        assert right.url.endswith("/account")
        assert '<h1 id="user">ann</h1>' in right.text


def test_status_counts_and_is_not_counted(shop: RunningShop) -> None:
    """/status tells the counts of hits by node and status, and is itself neither counted nor logged."""
    shop.get("/product/1", node="a")
    shop.get("/nothing", node="b")
    status = shop.get("/status").json()
    assert (status["hits"], status["open"], status["products"]) == (2, 0, 45)
    assert (status["nodes"], status["statuses"]) == ({"a": 1, "b": 1}, {"200": 1, "404": 1})
    assert len(hits.read(shop.log)) == 2


def test_latency_delays_every_page(tmp_path: Path) -> None:
    """With --latency every answer takes that long, and the log shows how many were open at once."""
    shop = RunningShop(tmp_path / "hits.jsonl", "--latency=0.4")
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda number: shop.get(f"/product/{number}", node=f"n{number % 2}"), range(1, 6)))
    log = hits.read(shop.log)
    assert all(hit.ended is not None and hit.ended - hit.started >= 0.4 for hit in log)
    assert hits.max_concurrency(log, "client") == {"127.0.0.1": 5}
    assert hits.max_concurrency(log, "node") == {"n0": 2, "n1": 3}
    assert hits.by_node(log) == {"n0": 2, "n1": 3}
    assert shop.stop() == 0


def test_a_client_that_leaves_is_logged_as_aborted(shop: RunningShop) -> None:
    """A page whose client went away before the answer is not logged as sent."""
    with pytest.raises(requests.ReadTimeout):
        requests.get(shop.url + "/slow/1?s=30", timeout=0.3)
    wait_until(lambda: hits.read(shop.log)[0].ended)
    assert [(hit.status, hit.is_answered) for hit in hits.read(shop.log)] == [(ABORTED, False)]


def test_a_killed_shop_loses_no_line(shop: RunningShop) -> None:
    """The log of a shop killed by SIGKILL has every hit up to then, with those that were open still open."""
    for number in range(1, 21):
        shop.get(f"/product/{number}")
    with ThreadPoolExecutor(1) as threads:
        cut_off = threads.submit(shop.get, "/slow/1?s=30")
        wait_until(lambda: len(hits.read(shop.log)) == 21)
        shop.stop(signal.SIGKILL)
        assert isinstance(cut_off.exception(), requests.ConnectionError)
    log = hits.read(shop.log)
    assert [hit.status for hit in log] == [200] * 20 + [None]


def test_a_growing_log_is_read_on(tmp_path: Path) -> None:
    """A reader takes in what was added since its last look, and leaves a half-written line for the next."""
    path = tmp_path / "hits.jsonl"
    reader = HitReader(path)
    assert reader.poll() == []
    log = HitLog(path)
    first = log.start(path="/a", client="c", host="h", node="n")
    assert [(hit.path, hit.ended) for hit in reader.poll()] == [("/a", None)]
    log.end(first, 200)
    log.start(path="/b", client="c", host="h", node="n")
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert [(hit.path, hit.status) for hit in reader.poll()] == [("/a", 200)]
    path.write_bytes(whole)
    assert [(hit.path, hit.status) for hit in reader.poll()] == [("/a", 200), ("/b", None)]


KILL = Kill("k", at=10.0)
RIGHT = [
    hit("/p/1", "k", 1, 2),
    hit("/p/2", "k", 9.5, 10.1, ABORTED),
    hit("/p/3", "k", 9, 9.5),
    hit("/p/2", "s", 15, 16),
    hit("/p/3", "s", 15, 16),
]


@pytest.mark.parametrize(
    ("more", "twice", "lost"),
    [
        pytest.param([], set(), set(), id="only what the killed node had in flight"),
        pytest.param([hit("/p/1", "s", 15, 16)], {"/p/1"}, set(), id="finished long before the kill"),
        pytest.param([hit("/p/2", "t", 15, 16)], {"/p/2"}, set(), id="fetched by two survivors"),
        pytest.param([hit("/p/4", "s", 5, 6), hit("/p/4", "t", 5, 6)], {"/p/4"}, set(), id="not of the killed"),
        pytest.param([hit("/p/5", "s", 15, 16, 404)], set(), {"/p/5"}, id="not answered"),
        pytest.param([hit("/p/3", "s", 3, 4)], {"/p/3"}, set(), id="shared while both lived"),
    ],
)
def test_the_verdict(more: list[Hit], twice: set[str], lost: set[str]) -> None:
    """A second fetch is right only for what the killed node had in flight, once, after it was killed."""
    log = sorted([*RIGHT, *more], key=lambda hit: hit.started)
    expected = {"/p/1", "/p/2", "/p/3"} | lost
    verdict = Verdict.of(log, expected, stored=expected, kill=KILL)
    assert verdict.twice - verdict.excused == twice
    assert verdict.lost == lost
    assert verdict.is_right == (not twice and not lost)
    assert verdict.fetched == len(expected) - len(lost)


def test_the_verdict_counts_what_was_not_stored() -> None:
    """A page that was fetched and not stored is lost; without a kill no second fetch is right."""
    assert Verdict.of(RIGHT, ["/p/1", "/p/2"], stored=["/p/1"], kill=KILL).lost == {"/p/2"}
    unkilled = Verdict.of(RIGHT, ["/p/1"], stored=["/p/1"])
    assert (unkilled.twice, unkilled.excused, unkilled.is_right) == ({"/p/2", "/p/3"}, set(), False)


def test_paths_are_told_apart_by_how_often_they_were_fetched() -> None:
    """Once, more than once, and never answered are counted by path; an open hit counts as asked for."""
    log = [*RIGHT, hit("/p/6", "s", 17, None)]
    assert hits.once(log) == {"/p/1", "/p/6"}
    assert hits.again(log) == {"/p/2", "/p/3"}
    assert hits.lost(log, ["/p/1", "/p/6", "/p/7"]) == {"/p/6", "/p/7"}
    assert hits.open_by_node(log) == {"s": 1}


def test_the_timeline_has_every_hit() -> None:
    """Each hit is in the column of its time, the last one in the last; none is under half a second."""
    log = [hit("/", "a", 100 + second, None) for second in range(9)] + [hit("/", "b", 108, None)]
    assert hits.timeline(log, 5) == ({"a": [2, 2, 2, 2, 1], "b": [0, 0, 0, 0, 1]}, 2.0)
    assert hits.timeline(log[:1], 5) == ({"a": [1, 0, 0, 0, 0]}, 0.5)
    assert hits.timeline([], 5) == ({}, 0.5)


COMMAND_LINE = "from scrapy_lease.cli import main; main()"


def python(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Starts Python in the example project."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parent)}
    return subprocess.Popen([sys.executable, *arguments], cwd=EXAMPLE, env=environment, text=True, **options)


def test_a_standing_worker_is_fed(shop: RunningShop, tmp_path: Path) -> None:
    """s02_fed fetches what is pushed, once each, stays when nothing is left, and ends on SIGTERM."""
    store, database = f"embedded://{tmp_path / 'server'}", f"sqlite:///{tmp_path / 'shop.db'}"
    settings = ["-s", f"LEASE_REDIS_URL={store}", "-s", f"SHOP_DATABASE_URL={database}"]
    with (tmp_path / "log").open("wb") as log, opened(database) as table:
        worker = python("-m", "scrapy", "crawl", "s02_fed", *settings, stderr=log)
        try:
            for urls in [["/product/1", "/product/2"], ["/product/2", "/product/3"]]:
                pushed = [shop.url + url for url in urls]
                push = python("-c", COMMAND_LINE, "--url", store, "push", "s02_fed", *pushed)
                assert push.wait(30) == 0
                wait_until(lambda expected=urls[-1]: expected in {urlsplit(row["url"]).path for row in table.rows()})
            assert worker.poll() is None
        finally:
            worker.terminate()
            worker.wait(20)
    assert worker.returncode == 0, (tmp_path / "log").read_text()
    assert sorted(hit.path for hit in hits.read(shop.log)) == ["/product/1", "/product/2", "/product/3"]
