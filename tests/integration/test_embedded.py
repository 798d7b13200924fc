"""The embedded server with real processes: one for all of a directory, and never at the price of the data."""

from __future__ import annotations

import json
import os
import platform
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from scrapy_lease.cli import main
from scrapy_lease.exceptions import EmbeddedServerError, StoreUnavailable
from scrapy_lease.store.embedded import EmbeddedServer, EmbeddedStatus, acquire, directory_of, status
from tests.helpers.embedded_user import User
from tests.helpers.servers import need


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A directory that all may read and none but root may write, with one inside that had a server."""
    need("valkey")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        acquire(path / "used").release()
        for each in (path / "used", path):
            each.chmod(0o555)
        yield path
        for each in (path, path / "used"):
            each.chmod(0o755)


@pytest.fixture
def users(directory: Path) -> Iterator[list[User]]:
    """Three processes that may use the directory."""
    with ExitStack() as stack:
        yield [stack.enter_context(User(directory)) for _ in range(3)]


def client(found: EmbeddedServer | EmbeddedStatus) -> redis.Redis:
    """Return a client for the server of a share or a status."""
    return redis.Redis.from_url(found.url)


def kill_server(directory: Path) -> int:
    """End the directory's server with SIGKILL and return its process id."""
    pid = status(directory).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    while status(directory).running:
        time.sleep(0.01)
    return pid


def test_crawls_that_start_at_once_share_one_server(directory: Path, users: list[User]) -> None:
    """Three processes that acquire at the same time get one server, append-only and without eviction."""
    for user in users:
        user.ask("acquire")
    pids = {user.answer()["server"] for user in users}
    assert len(pids) == 1
    found = status(directory)
    assert (found.pid, found.users) == (*pids, tuple(sorted(user.pid for user in users)))
    with client(found) as store:
        config = store.config_get("appendonly", "appendfsync", "maxmemory-policy", "save", "port")
        assert store.info("server")["process_id"] == found.pid
    expected = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    assert config == expected | {"save": "", "port": "0"}


def test_the_last_that_leaves_stops_it_and_the_data_stays(directory: Path) -> None:
    """The server lives while one user is left, ends with the last, and a later one finds the data."""
    first, second = acquire(directory), acquire(directory)
    with client(first) as store:
        store.set("kept", 1)
    first.release()
    first.release()
    assert status(directory).running
    second.release()
    assert not status(directory).running
    third = acquire(directory)
    with client(third) as store:
        assert store.get("kept") == b"1"
    third.release()


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_a_dead_crawl_neither_ends_nor_keeps_the_server(directory: Path, users: list[User], how: str) -> None:
    """A crawl that started the server and dies of SIGKILL or Ctrl-C leaves it to the others."""
    starter, survivor, _ = users
    started = starter.do("acquire")["server"]
    survivor.do("acquire")
    getattr(starter, how)()
    time.sleep(0.1)
    assert (status(directory).pid, status(directory).users) == (started, (survivor.pid,))
    survivor.do("release")
    assert not status(directory).running


def test_a_server_left_by_a_killed_crawl_is_found(directory: Path, users: list[User]) -> None:
    """When the only crawl is killed, the next one uses the same server and stops it when it leaves."""
    started = users[0].do("acquire")["server"]
    users[0].kill()
    assert users[1].do("acquire")["server"] == started
    assert users[1].do("release")["server"] is None


def test_survivors_restart_a_killed_server_once(directory: Path, users: list[User]) -> None:
    """When the server is killed its users start one new server between them, with the data."""
    for user in users:
        user.do("acquire")
    with client(status(directory)) as store:
        store.set("kept", 1)
    # With everysec the server puts off writing while an fsync runs: a kill may cost what was answered then.
    time.sleep(1.1)
    killed = kill_server(directory)
    for user in users:
        user.ask("ensure")
    pids = {user.answer()["server"] for user in users}
    assert len(pids) == 1
    assert killed not in pids
    with client(status(directory)) as store:
        assert store.get("kept") == b"1"


def test_who_has_left_starts_nothing(directory: Path) -> None:
    """A late `ensure_running` of a user that has left does not bring the server back."""
    share = acquire(directory)
    share.release()
    share.ensure_running()
    assert not status(directory).running


def test_files_of_an_earlier_life_mislead_nobody(directory: Path) -> None:
    """A dead server's process id that is another's now, its socket, a broken state file: a clean start."""
    share = acquire(directory)
    with client(share) as store:
        store.set("kept", 1)
    share.release()
    (directory / "server.pid").write_text(f"{os.getpid()}\n")
    (directory / "server.sock").write_text("")
    (directory / "state.json").write_text('{"socket": ')
    (directory / "users" / f"{os.getpid()}-00000000").touch()
    assert not status(directory).running
    share = acquire(directory)
    assert status(directory).users == (os.getpid(),)
    with client(share) as store:
        assert store.get("kept") == b"1"
    share.release()
    assert not status(directory).running


def test_a_cut_tail_of_the_append_only_file_is_loaded(directory: Path) -> None:
    """What was written before a torn last command is there after the start."""
    share = acquire(directory)
    with client(share) as store:
        store.set("kept", 1)
        store.set("torn", "x" * 1000)
    share.release()
    tail = next((directory / "appendonlydir").glob("*.incr.aof"))
    os.truncate(tail, tail.stat().st_size - 500)
    share = acquire(directory)
    with client(share) as store:
        assert store.mget("kept", "torn") == [b"1", None]
    share.release()


def test_a_damaged_append_only_file_is_named(directory: Path) -> None:
    """A file damaged in the middle is not loaded in part: the error names the directory and the ways out."""
    share = acquire(directory)
    with client(share) as store:
        store.set("first", "x" * 1000)
        store.set("second", 2)
    share.release()
    file = next((directory / "appendonlydir").glob("*.incr.aof"))
    damaged = bytearray(file.read_bytes())
    damaged[100:200] = b"\0" * 100
    damaged[20:60] = b"?" * 40
    file.write_bytes(damaged)
    with pytest.raises(EmbeddedServerError, match=r"append-only file is damaged.*appendonlydir") as error:
        acquire(directory)
    assert str(directory) in str(error.value)
    assert status(directory).users == ()


def test_a_hung_server_is_reported_and_can_be_stopped(directory: Path) -> None:
    """A server that answers nothing is an error for who waits for it; the last that leaves kills it."""
    share = acquire(directory)
    pid = status(directory).pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(StoreUnavailable, match=r"has not answered for 0\.1 s"):
        share.ensure_running(timeout=0.1)
    share.release(timeout=0.2)
    assert not status(directory).running


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A path below a file is refused with the path and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match=r"file/lease cannot be written: Not a directory\. Name one"):
        acquire(tmp_path / "file" / "lease")


def test_a_read_only_directory_is_named(read_only: Path) -> None:
    """A user who may not write a directory gets one clear error, whether a server was ever there or not."""
    for path in (read_only / "used", read_only / "fresh"):
        with User(path, unprivileged=True) as user:
            error = user.do("acquire")["error"]
        assert f"{path} cannot be written: Permission denied. Name one that can" in error


def test_a_path_too_long_for_a_socket_works(directory: Path) -> None:
    """A deep directory has its socket in a directory of this user alone; spaces, quotes and ? do no harm."""
    deep = directory / ("d" * 100) / 'it\'s a "lease"? #1 é'
    share = acquire(deep)
    with client(share) as store:
        store.set("a", 1)
    place = Path(share.url.removeprefix("unix://")).parent
    assert place.stat().st_mode & 0o777 == 0o700
    assert (deep / "appendonlydir").is_dir()
    share.release()
    assert not status(deep).running


def test_another_users_socket_directory_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the socket's directory exists and others may write it, no server is started."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        place = Path(short) / f"scrapy-lease-{os.getuid()}"
        place.mkdir()
        place.chmod(0o777)
        deep = directory / ("d" * 100)
        with pytest.raises(EmbeddedServerError, match="not a directory of this user alone"):
            acquire(deep)
        assert not status(deep).running


def test_a_long_temporary_directory_works(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TMPDIR is too long for a socket as well, the socket is in /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", str(directory / ("t" * 100)))
    share = acquire(directory / ("d" * 100))
    assert share.url.startswith("unix:///tmp/")
    share.release()


def test_a_machine_without_the_server_is_told_what_to_set(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform for which the wheel has no program the error names it and LEASE_REDIS_URL."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EmbeddedServerError, match=r"riscv64.*set LEASE_REDIS_URL"):
        acquire(directory)


def test_url_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a directory it is .scrapy/lease; a relative one counts from the project or from here."""
    monkeypatch.chdir(tmp_path)
    assert directory_of("embedded://") == tmp_path / ".scrapy" / "lease"
    assert directory_of("embedded://a/b%20c") == tmp_path / "a" / "b c"
    assert directory_of("embedded:///srv/lease") == Path("/srv/lease")
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = example.settings\n")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert directory_of("embedded://a") == tmp_path / "a"


def run(*arguments: str) -> tuple[int, dict[str, object]]:
    """Run ``scrapy-lease embedded`` and return its exit status and what it printed as JSON."""
    result = CliRunner().invoke(main, ["embedded", *arguments, "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_a_pinned_server_outlives_its_users(directory: Path) -> None:
    """Started by hand it stays when the last crawl leaves, also after a restart, and ends with `stop`."""
    code, shown = run("start", str(directory))
    assert (code, shown["running"], shown["pinned"]) == (0, True, True)
    share = acquire(directory)
    assert status(directory).pid == shown["pid"]
    kill_server(directory)
    share.ensure_running()
    share.release()
    assert run("status", str(directory))[0] == 0
    code, shown = run("stop", str(directory))
    assert (code, shown["running"], shown["pinned"], shown["pid"]) == (0, False, False, None)
    assert run("status", str(directory))[0] == 1


def test_stop_leaves_a_used_server_to_its_last_user(directory: Path) -> None:
    """`stop` exits with 1 and says who uses the server, which then ends with the last of them."""
    run("start", str(directory))
    share = acquire(directory)
    result = CliRunner().invoke(main, ["embedded", "stop", str(directory)])
    assert result.exit_code == 1
    assert f"Crawls still use it (process ids {os.getpid()})" in result.stderr
    share.release()
    assert not status(directory).running


def test_status_creates_nothing(directory: Path) -> None:
    """`status` and `stop` of a directory without a server leave no trace."""
    assert run("status", str(directory))[0] == 1
    assert run("stop", str(directory))[0] == 0
    assert not directory.exists()


def test_the_command_line_knows_its_exits(directory: Path, tmp_path: Path) -> None:
    """Wrong usage exits with 2, an error of ours with 1 and one line; --url names the directory too."""
    assert CliRunner().invoke(main, ["embedded", "begin"]).exit_code == 2
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
    (tmp_path / "file").touch()
    failed = CliRunner().invoke(main, ["embedded", "start", str(tmp_path / "file" / "lease")])
    assert (failed.exit_code, failed.stderr.count("\n")) == (1, 1)
    assert failed.stderr.startswith("Error: embedded server: the directory ")
    started = CliRunner().invoke(main, ["--url", f"embedded://{directory}", "embedded", "start"])
    assert started.exit_code == 0
    assert status(directory).pinned
    assert f"directory  {directory}\n" in started.stdout
