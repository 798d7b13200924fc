"""Processes that begin as copies of one that has imported what a crawl imports.

A crawl imports a thousand modules before it does anything, which costs ten times what the crawl of a test does. A
nursery has imported them and does nothing else; what it starts is a process of its own, with its own reactor, files
and signals, from the fork on. Copies share what an interpreter draws when it starts, such as the seed of hashes: the
demo's nodes are fresh interpreters, as are all with ``SCRAPY_LEASE_TEST_LONG=1``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Protocol

ORDER_LIMIT = 1 << 17
WORD = struct.Struct("i")

#: Elsewhere the system may not let a copy do much.
HAS_NURSERY = sys.platform == "linux" and os.environ.get("SCRAPY_LEASE_TEST_LONG") != "1"

#: What a crawl imports, or the example project, besides the commands and default components of Scrapy.
MODULES = (
    "aiohttp.web",
    "scrapy.cmdline",
    "scrapy_lease.extension",
    "scrapy_lease.gate",
    "scrapy_lease.guard.coordinator",
    "scrapy_lease.middlewares.downloader",
    "scrapy_lease.middlewares.spider",
    "scrapy_lease.middlewares.start",
    "scrapy_lease.pipelines",
    "scrapy_lease.scheduler",
    "scrapy_lease.spider_notices",
    "sqlalchemy.dialects.sqlite",
    "twisted.internet.asyncioreactor",
)


class Process(Protocol):
    """What tests use of a process: a part of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Child:
    """A process that a nursery started; its keeper tells how it ended."""

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper = keeper
        self._status: int | None = None
        self.pid: int = WORD.unpack(keeper.recv(WORD.size))[0]

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while the process runs."""
        with suppress(BlockingIOError):
            self._receive(0.0)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status."""
        try:
            return self._receive(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(["scrapy"], timeout or 0.0) from None

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _receive(self, timeout: float | None) -> int:
        if self._status is None:
            self._keeper.settimeout(timeout)
            self._status = WORD.unpack(self._keeper.recv(WORD.size))[0]
            self._keeper.close()
        return self._status


class Nursery:
    """The process that forks, as seen by who wants processes; it and what it started end with who started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=environment, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def start(
        self, module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str],
        stdout: int, stderr: int | None = None,
    ) -> Child:  # fmt: skip
        """Start ``python -m module arguments`` in a session of its own, with these files."""
        ours, theirs = socket.socketpair()
        order = {"module": module, "arguments": [*arguments], "cwd": str(cwd), "env": dict(env)}
        with theirs:
            files = [theirs.fileno(), stdout, 2 if stderr is None else stderr]
            socket.send_fds(self._control, [json.dumps(order).encode()], files)
        return Child(ours)

    def close(self) -> None:
        """End the nursery."""
        self._control.close()
        self._process.wait(10)


def start_fresh(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: int, stderr: int | None = None
) -> Process:
    """Start ``python -m module arguments`` as a user does, in a session of its own."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, start_new_session=True)


def start_copy(module: str, arguments: Sequence[str], **options: Any) -> Process:
    """The same, from the nursery where there is one."""
    start = nursery().start if HAS_NURSERY else start_fresh
    return start(module, arguments, **options)


@cache
def nursery() -> Nursery:
    """The nursery of this process, started when it is first asked for."""
    started = Nursery({**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    atexit.register(started.close)
    return started


def default_components() -> Iterator[str]:
    """The dotted paths of what Scrapy uses unless it is told otherwise."""
    from scrapy.settings import default_settings

    for value in vars(default_settings).values():
        for each in [*value, *value.values()] if isinstance(value, dict) else [value]:
            if isinstance(each, str) and each.startswith("scrapy.") and each not in sys.modules:
                yield each


def import_all() -> None:
    """Import what a crawl imports, install no reactor, start no thread; no copy collects what all of them share."""
    from scrapy.utils.misc import load_object, walk_modules_iter

    list(walk_modules_iter("scrapy.commands"))
    for module in MODULES:
        import_module(module)
    for path in default_components():
        load_object(path)
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each order; return, in the process that is to carry it out, what is ordered."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(control, ORDER_LIMIT, 3)
        if not data:
            sys.exit()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (pid := os.fork()) != 0:
                keep(pid, files[0])
            os.dup2(files[1], 1)
            os.dup2(files[2], 2)
            os.closerange(3, max(files) + 1)
            control.detach()
            return dict(json.loads(data))
        for file in files:
            os.close(file)


def keep(pid: int, report: int) -> NoReturn:
    """Tell the pid of a child of this process, and its exit status in the end; kill it when nobody listens any more."""
    os.write(report, WORD.pack(pid))
    ended = os.pidfd_open(pid)
    readable, _, _ = select.select([report, ended], [], [])
    if ended not in readable:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(report, WORD.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def main(control: int) -> None:
    """Be a nursery, and then what it is asked to be."""
    import_all()
    order = serve(socket.socket(fileno=control))
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[0] = order["cwd"]
    sys.argv[1:] = order["arguments"]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
