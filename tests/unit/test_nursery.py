"""Processes from the nursery are processes like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.helpers.fleet import environment
from tests.helpers.nursery import HAS_NURSERY, Process, start_copy, start_fresh

Start = Callable[..., Process]


@pytest.fixture(params=[start_copy, start_fresh])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts Python text in a process, with arguments; what it prints is in `out`."""

    def run(source: str, *arguments: str, **variables: str) -> Process:
        (tmp_path / "text.py").write_text(textwrap.dedent(source))
        with (tmp_path / "out").open("wb") as out:
            env = environment(**variables)
            files = {"stdout": out.fileno(), "stderr": out.fileno()}
            return request.param("text", arguments, cwd=tmp_path, env=env, **files)

    return run


def test_it_has_what_it_was_given(start: Start, tmp_path: Path) -> None:
    """Arguments, directory, environment and files are those of the order; the session and the pid are its own."""
    process = start(
        """
        import os, sys
        print(__name__, sys.argv[1:], os.getcwd(), sys.path[0], os.environ["GIVEN"], os.getpid(), os.getsid(0))
        print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4], "twisted.internet.reactor" in sys.modules)
        print(sys.dont_write_bytecode)
        sys.exit(3)
        """,
        "--one", "two words", GIVEN="word",
    )  # fmt: skip
    assert process.wait(20) == 3
    pid, folder = process.pid, tmp_path.resolve()
    first, second, third = (tmp_path / "out").read_text().splitlines()
    assert first == f"__main__ ['--one', 'two words'] {folder} {folder} word {pid} {pid}"
    # The fourth is the one that lists them.
    assert second == "[0, 1, 2, 3] False"
    assert third == "True"


def test_how_it_ended(start: Start) -> None:
    """An exit, an exception and a signal each have their status, told again and again."""
    for source, status in (("pass", 0), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", -9)):
        process = start(source)
        assert [process.wait(20), process.wait(), process.poll()] == [status] * 3
        process.send_signal(signal.SIGTERM)


def test_a_wait_is_bounded_and_a_kill_is_seen(start: Start) -> None:
    """A process that runs has no status; killed it is gone, and leaves no zombie."""
    process = start("import time; time.sleep(60)")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.kill()
    assert process.wait(20) == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)


@pytest.mark.skipif(not HAS_NURSERY, reason="there is no nursery")
def test_nothing_outlives_who_started_it(tmp_path: Path) -> None:
    """A test process that is killed takes the nursery and what that had started along."""
    source = """
        import os, sys, time
        from pathlib import Path
        from tests.helpers.nursery import nursery, start_copy
        Path("sleeper.py").write_text("import time; time.sleep(60)")
        process = start_copy("sleeper", [], cwd=Path.cwd(), env=dict(os.environ), stdout=2)
        print(nursery().pid, process.pid, flush=True)
        time.sleep(60)
        """
    command = [sys.executable, "-c", textwrap.dedent(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment(), text=True) as starter:
        assert starter.stdout is not None
        left = [psutil.Process(int(pid)) for pid in starter.stdout.readline().split()]
        os.kill(starter.pid, signal.SIGKILL)
    assert psutil.wait_procs(left, timeout=20)[1] == []
