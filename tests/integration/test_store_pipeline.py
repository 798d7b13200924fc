"""The example's table of products: the highest fence wins, on every database, however many write at once."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy.dialects import postgresql

from example.items import Product
from example.pipelines import StorePipeline
from example.products import ProductTable, opened, upsert
from tests.helpers.servers import need

EXAMPLE = Path(__file__).parents[2] / "example_project"
START_TIMEOUT = 30.0


def row(fence: int, sku: str = "SKU-1") -> dict[str, Any]:
    """A row whose every value tells its fence, so that a mixture of two rows shows."""
    return {
        "sku": sku,
        "name": f"name {fence}",
        "price": fence % 1000,
        "url": f"/product/{fence}",
        "fence": fence,
        "node": f"node-{fence}",
    }


def stored(table: ProductTable) -> list[dict[str, Any]]:
    """The stored rows without the time, which the database sets."""
    return [{name: value for name, value in row.items() if name != "updated"} for row in table.rows()]


def wait_until_listening(mariadbd: subprocess.Popen[bytes], path: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        assert mariadbd.poll() is None, "mariadbd ended while it was starting"
        assert time.monotonic() < deadline, f"mariadbd did not listen within {START_TIMEOUT} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    """The URL of an empty database in a MariaDB of this module's own, reached by its socket only."""
    server, installer = need("mariadbd"), need("mariadb-install-db")
    # Not tmp_path: a socket's path has 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
    # As root it must be told to stay root; anyone else runs it as himself.
    options = [
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        *(["--user=root"] if os.getuid() == 0 else []),
    ]
    process = None
    try:
        subprocess.run(
            [installer, *options, "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True,
            capture_output=True,
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [server, *options, "--skip-networking", f"--socket={folder / 'socket'}"],
                stdout=log,
                stderr=log,
            )
        wait_until_listening(process, folder / "socket")
        with pymysql.connect(unix_socket=str(folder / "socket"), user="root") as connection:
            connection.cursor().execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield f"mariadb+pymysql://root@/shop?unix_socket={folder / 'socket'}"
    finally:
        if process is not None:
            process.terminate()
            process.wait(START_TIMEOUT)
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database URL of each kind that is tested against a real database."""
    if request.param == "mariadb":
        return str(request.getfixturevalue("mariadb"))
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def table(url: str) -> Iterator[ProductTable]:
    with opened(url) as table:
        yield table


def test_a_lower_fence_changes_nothing(table: ProductTable) -> None:
    """A row is replaced as a whole by an equal or a higher fence, and not at all by a lower one."""
    sku = "refused"
    for fence, expected in [(10, 10), (9, 10), (11, 11), (10, 11), (2**62, 2**62), (11, 2**62)]:
        table.save(row(fence, sku))
        assert row(expected, sku) in stored(table)
    table.save({**row(2**62, sku), "name": "the same holder, again"})
    assert {**row(2**62, sku), "name": "the same holder, again"} in stored(table)


def test_the_highest_fence_wins_a_race(table: ProductTable) -> None:
    """Of 8 threads that write 40 fences in any order, the highest is stored, unmixed with any other."""
    fences = list(range(1, 41))
    random.Random(7).shuffle(fences)
    with ThreadPoolExecutor(8) as threads:
        for attempt in range(5):
            skus = f"race {attempt}"
            list(threads.map(lambda fence, sku=skus: table.save(row(fence, sku)), fences))
            assert row(40, skus) in stored(table)


WRITER = """
import sys
from example.products import opened
url, fence = sys.argv[1], int(sys.argv[2])
with opened(url) as table:
    for number in range(100):
        sku = f"SKU-{number:03}"
        table.save({"sku": sku, "name": "n", "price": 1, "url": "/", "fence": fence, "node": "n"})
"""


def test_processes_share_a_database(url: str) -> None:
    """Three processes that create the table and write the same products at once neither fail nor lose one."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, url, str(fence)],
            cwd=EXAMPLE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for fence in (1, 2, 3)
    ]
    outcomes = [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers]
    assert outcomes == [("", 0)] * 3
    with opened(url) as table:
        rows = [row for row in table.rows() if row["sku"].startswith("SKU-0")]
    assert [row["fence"] for row in rows] == [3] * 100


def test_postgresql_compares_and_writes_in_one_statement() -> None:
    """On PostgreSQL the fence is compared by the statement that writes."""
    columns = ["sku", "name", "price", "url", "fence", "node"]
    sql = " ".join(str(upsert("postgresql").compile(dialect=postgresql.dialect(), column_keys=columns)).split())
    assert "ON CONFLICT (sku) DO UPDATE SET" in sql
    assert sql.endswith("WHERE products.fence <= excluded.fence")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mssql+pyodbc://user:s3cret@host/shop", "'mssql' is none of sqlite, postgresql, mysql, mariadb"),
        ("user:s3cret@host", "is not a database URL"),
    ],
)
def test_a_wrong_url_is_named_without_its_password(url: str, message: str) -> None:
    """An address that cannot be used is refused by the name of its setting, and its password is not shown."""
    with pytest.raises(ValueError, match=message) as refused:
        ProductTable(url)
    assert "SHOP_DATABASE_URL" in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def process_while_locked(path: Path) -> tuple[float, float]:
    """Stores a product while another has the database locked for half a second.

    Returns how long that took and the longest pause of the loop, in seconds.
    """
    pipeline = StorePipeline(ProductTable(f"sqlite:///{path}"), "here")
    await pipeline.open_spider()
    loop = asyncio.get_running_loop()
    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        loop.call_later(0.5, lock.execute, "COMMIT")
        started, longest = loop.time(), 0.0
        done = asyncio.ensure_future(pipeline.process_item(Product("SKU-1", "Thing", 199, "/product/1")))
        while not done.done():
            before = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - before)
        await done
        took = loop.time() - started
    await pipeline.close_spider()
    return took, longest


def test_the_reactor_does_not_wait_for_the_database(tmp_path: Path) -> None:
    """While the database is locked the item waits and the loop does not; without a lease the fence is 0."""
    took, longest_pause = asyncio.run(process_while_locked(tmp_path / "shop.db"))
    assert took >= 0.5
    assert longest_pause < 0.3
    with opened(f"sqlite:///{tmp_path / 'shop.db'}") as table:
        assert [(row["sku"], row["fence"], row["node"]) for row in table.rows()] == [("SKU-1", 0, "here")]
